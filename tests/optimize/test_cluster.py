"""The same program on a Spark standalone cluster of one master and two workers."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.line import Line
from tests.stack.support.spark_cluster import OPTIONS, spark_machines
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]


def test_two_workers_merge_the_tables(
    line: Line, optimizer: Callable[..., Optimizer], tmp_path: Path
) -> None:
    """On a standalone cluster the tables are merged by the workers' Python and rewritten by their JVMs, with
    our packages and jars shipped to them."""
    tables = [SmallFiles(line.catalog, open_storage(), fresh("cluster")) for _ in range(4)]
    for table in tables:
        table.append(this_hour() - 3, 10, times=6)
    deleted = tables[0]
    line.sql(f'DELETE FROM "{deleted.name.namespace}"."logs" WHERE _offset % 10 = 1')
    names = [part for table in tables for part in ("--table", f"{table.name.namespace}.{table.name.name}")]
    with spark_machines(tmp_path) as machines:
        log = optimizer(spark__master=machines.master, spark__options=orjson.dumps(OPTIONS).decode()).run(
            "run", "--once", *names
        )
    assert '"action": "rewrite"' in log
    assert line.sql(f'SELECT count(*) FROM "{deleted.name.namespace}"."logs"') == [(54,)]
    for table in tables:
        assert live_files(line.catalog, table.storage, table.name) == {this_hour() - 3: 1}
        assert missing_files(line.catalog, table.storage, table.name) == []
