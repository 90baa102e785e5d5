"""A query that runs while its table is merged and its snapshot expires."""

import threading
from contextlib import closing
from math import prod
from typing import Any

import pytest
import trino

from infra.local.service import host_port
from lake.storage import open_storage
from tests.optimize.support.live_files import live_files, missing_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

FILES, ROWS = 60, 20
# How often each row is looked at, so that every file takes Trino a moment: a sequence has 10,000 entries at
# most.
SEQUENCES = (10_000, 3)
REPEATS = prod(SEQUENCES)


class RunningQuery(threading.Thread):
    """A statement on Trino whose progress can be watched while it runs."""

    def __init__(self, address: str, statement: str) -> None:
        super().__init__()
        host, port = host_port(address)
        self._connection: Any = trino.dbapi.Connection(
            host=host, port=port, user="test", catalog="lake", source="firn-tests"
        )
        self._cursor = self._connection.cursor()
        self._statement = statement
        self.rows: list[tuple[Any, ...]] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with closing(self._connection):
                self._cursor.execute(self._statement)
                self.rows = [tuple(row) for row in self._cursor.fetchall()]
        except trino.exceptions.Error as error:
            self.error = error

    def splits(self) -> tuple[int, int]:
        """Those that are done, and all that are known."""
        stats = self._cursor.stats or {}
        return int(stats.get("completedSplits", 0)), int(stats.get("totalSplits", 0))


def test_query_that_runs_across_a_merge_and_an_expiry_finishes_right(line: Line) -> None:
    """A query that has read some of sixty files sees them merged and its snapshot expired; it reads the
    others to the end and counts every row."""
    table = SmallFiles(line.catalog, open_storage(), fresh("long"))
    table.append(this_hour() - 3, ROWS, times=FILES)
    snapshot = table.state.head
    statement = (
        "SELECT count(*), count(DISTINCT _offset), sum(length(message)) > 0 FROM "
        f'"{table.name.namespace}"."logs" '
        f"CROSS JOIN UNNEST(sequence(1, {SEQUENCES[0]})) AS r (n) CROSS JOIN UNNEST(sequence(1, "
        f"{SEQUENCES[1]})) AS s (m) "
        "WHERE crc32(to_utf8(message || cast(n + m AS varchar))) >= 0"
    )
    query = RunningQuery(line.stack.address("trino"), statement)
    query.start()
    try:
        wait_for(lambda: query.splits()[0] > 0 or not query.is_alive(), 120, "the query's first files")
        for _ in range(2):
            maintenance(line.catalog, [table.name], snapshots__count_max=1, merge__late_cooldown_s=0).run()
        done, known = query.splits()
        assert query.is_alive(), (
            f"the query ended before the maintenance ({query.error}); it has to be longer"
        )
        assert done < known
        assert live_files(line.catalog, table.storage, table.name) == {this_hour() - 3: 1}
        assert snapshot not in {
            s["snapshot-id"] for s in line.catalog.load_table(table.name)["metadata"]["snapshots"]
        }
    finally:
        query.join()
    assert query.error is None
    assert query.rows == [(FILES * ROWS * REPEATS, FILES * ROWS, True)]
    assert missing_files(line.catalog, table.storage, table.name) == []
