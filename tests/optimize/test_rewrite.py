"""Spark's rewrite_data_files, the second executor, on hours with position deletes."""

from collections.abc import Callable

import pytest

from lake.storage import open_storage
from tests.optimize.conftest import Optimizer
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.line import Line
from tests.stack.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]


def test_rows_deleted_by_trino_stay_deleted_through_merges(line: Line, optimizer: Callable[..., Optimizer]) -> None:
    """After Trino's DELETE (position deletes) the touched hour is rewritten by Spark, the other by PyArrow: no deleted row comes back, none is lost."""
    table = SmallFiles(line.catalog, open_storage(), fresh("del"))
    touched, other = this_hour() - 3, this_hour() - 4
    table.append(touched, 10, times=4)
    table.append(other, 10, times=4)
    sql_name, name = f'"{table.name.namespace}"."logs"', f"{table.name.namespace}.{table.name.name}"
    line.sql(f"DELETE FROM {sql_name} WHERE _offset < 40 AND _offset % 4 = 1")
    wanted = [(70, 70)]
    count = f"SELECT count(*), count(DISTINCT _offset) FROM {sql_name} WHERE _offset >= 40 OR _offset % 4 <> 1"
    everything = f"SELECT count(*), count(DISTINCT _offset) FROM {sql_name}"
    assert line.sql(everything) == wanted
    for _ in range(2):
        optimizer(late_cooldown_s=0).run("run", "--once", "--table", name)
        assert line.sql(everything) == line.sql(count) == wanted
    assert live_files(line.catalog, table.storage, table.name) == {touched: 1, other: 1}
    assert missing_files(line.catalog, table.storage, table.name) == []
