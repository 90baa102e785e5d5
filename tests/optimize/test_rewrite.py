"""Spark's rewrite_data_files, the second executor, on hours with position deletes."""

import threading
from collections.abc import Callable

import pytest

from lake.storage import open_storage
from optimize.replacement import REWRITE_BRANCH
from optimize.table_view import load_view
from tests.optimize.conftest import Optimizer
from tests.optimize.live_files import live_files, missing_files
from tests.optimize.small_files import SmallFiles, this_hour
from tests.stack.line import Line
from tests.stack.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]


def delete_files(table: SmallFiles) -> int:
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    assert REWRITE_BRANCH not in view.metadata["refs"]
    return sum(len(files) for files in view.delete_files().values())


def test_rows_deleted_by_trino_stay_deleted_through_merges(line: Line, optimizer: Callable[..., Optimizer]) -> None:
    """Rows that Trino's DELETE took stay away through a rewrite by Spark, a merge with late data by PyArrow, and a second DELETE with its rewrite.

    After each round no delete file is left, every hour is one file, and no other row is lost.
    """
    table = SmallFiles(line.catalog, open_storage(), fresh("del"))
    touched, other = this_hour() - 3, this_hour() - 4
    table.append(touched, 10, times=4)
    table.append(other, 10, times=4)
    sql_name, name = f'"{table.name.namespace}"."logs"', f"{table.name.namespace}.{table.name.name}"

    def round_leaves(wanted: set[int]) -> None:
        optimizer(late_cooldown_s=0).run("run", "--once", "--table", name)
        assert [offset for (offset,) in line.sql(f"SELECT _offset FROM {sql_name} ORDER BY 1")] == sorted(wanted)
        assert live_files(line.catalog, table.storage, table.name) == {touched: 1, other: 1}
        assert missing_files(line.catalog, table.storage, table.name) == []
        assert delete_files(table) == 0

    line.sql(f"DELETE FROM {sql_name} WHERE _offset < 40 AND _offset % 4 = 1")
    assert delete_files(table) > 0
    kept = {offset for offset in range(80) if offset >= 40 or offset % 4 != 1}
    round_leaves(kept)
    table.reload()
    table.append(touched, 10, times=2)
    kept |= set(range(80, 100))
    round_leaves(kept)
    line.sql(f"DELETE FROM {sql_name} WHERE _offset % 10 = 2")
    round_leaves({offset for offset in kept if offset % 10 != 2})


def test_rewrite_is_committed_although_ingestion_never_stops(line: Line, optimizer: Callable[..., Optimizer]) -> None:
    """While Spark rewrites an hour on its branch, a writer adds files to the same hour all the time: the rewrite lands, no row is lost or comes back."""
    table = SmallFiles(line.catalog, open_storage(), fresh("busy"))
    hour, sql_name = this_hour() - 3, f'"{table.name.namespace}"."logs"'
    table.append(hour, 10, times=4)
    line.sql(f"DELETE FROM {sql_name} WHERE _offset % 5 = 0")
    stop = threading.Event()

    def append_on() -> None:
        while not stop.wait(0.2):
            table.append(hour, 5)

    writer = threading.Thread(target=append_on)
    writer.start()
    try:
        log = optimizer(late_cooldown_s=0).run("run", "--once", "--table", f"{table.name.namespace}.{table.name.name}")
    finally:
        stop.set()
        writer.join()
    assert "optimize.rewritten" in log
    assert '"action": "rewrite"' in log
    assert table.offset > 45
    rows = {offset for (offset,) in line.sql(f"SELECT _offset FROM {sql_name}")}
    assert rows == {offset for offset in range(table.offset) if offset >= 40 or offset % 5 != 0}
    assert delete_files(table) == 0
    assert missing_files(line.catalog, table.storage, table.name) == []
