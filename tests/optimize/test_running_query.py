"""A query that runs while its table is merged and its snapshot expires."""

import threading
from contextlib import closing
from typing import Any

import pytest
import trino

from infra.local.supervisor import Stack
from lake.storage import open_storage
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.line import Line, Sql, trino_connection
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

FILES, ROWS = 60, 20
# So long is each row of the answer. Trino reads on only while somebody takes what it has read: its buffers
# hold some 50 MB, less than half of it.
ROW_CHARACTERS = 100_000


class RunningQuery(threading.Thread):
    """A statement on Trino that waits after its first row until it `may_go_on`."""

    def __init__(self, stack: Stack, statement: str) -> None:
        super().__init__()
        self._connection = trino_connection(stack)
        self._cursor = self._connection.cursor()
        self._statement = statement
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.rows: list[tuple[Any, ...]] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with closing(self._connection):
                self._cursor.execute(self._statement)
                first = self._cursor.fetchone()
                self.has_begun.set()
                self.may_go_on.wait()
                self.rows = [tuple(row) for row in (first, *self._cursor.fetchall())]
        except trino.exceptions.Error as error:
            self.error = error

    def splits(self, trino: Sql) -> tuple[int, int]:
        """Those that are done, and all that are known."""
        ((done, known),) = trino(
            "SELECT sum(completed_splits), sum(splits) FROM system.runtime.tasks WHERE query_id = "
            f"'{self._cursor.query_id}'"
        )
        return done, known


def test_query_that_runs_across_a_merge_and_an_expiry_finishes_right(line: Line) -> None:
    """A query that has read some of sixty files sees them merged and its snapshot expired; it reads the
    others to the end and counts every row."""
    table = SmallFiles(line.catalog, open_storage(), fresh("long"))
    hour = this_hour() - 3
    table.append(hour, ROWS, times=FILES)
    snapshot = table.state.head
    statement = f'SELECT _offset, rpad(message, {ROW_CHARACTERS}, \'x\') FROM "{table.name.namespace}"."logs"'
    query = RunningQuery(line.stack, statement)
    query.start()
    try:
        wait_for(lambda: query.has_begun.is_set() or not query.is_alive(), 120, "the query's first row")
        for _ in range(2):
            maintenance(line.catalog, [table.name], snapshots__count_max=1, merge__late_cooldown_s=0).run()
        done, known = query.splits(line.sql)
        assert query.is_alive(), f"the query ended before the maintenance ({query.error})"
        assert done < known
        assert live_files(line.catalog, table.storage, table.name) == {hour: 1}
        assert snapshot not in {
            s["snapshot-id"] for s in line.catalog.load_table(table.name)["metadata"]["snapshots"]
        }
    finally:
        query.may_go_on.set()
        query.join()
    assert query.error is None
    assert query.rows is not None
    assert len(query.rows) == len({offset for offset, _ in query.rows}) == FILES * ROWS
    assert missing_files(line.catalog, table.storage, table.name) == []
