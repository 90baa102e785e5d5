"""Which engines of this stack read row deletes right that Firn has written: position delete files of format
version 2, deletion vectors of version 3."""

from datetime import timedelta
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from lake.commit import load_state
from lake.storage import local_text
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.query.support.four_engines import READ_RIGHT, Reader, readers, right, upgrade, with_catalog
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.reference import START
from tests.stack.support.line import Line

pytestmark = pytest.mark.stack

ROWS, ROWS_PER_FILE = 60, 10


class ChangedTable:
    """A table and its truth: the numbers `n` of the rows that are alive."""

    def __init__(self, catalog: CatalogClient, version: int) -> None:
        self.table = LogTable(catalog, fresh_tenant(f"deletes-{version}"), types={"n": "long"})
        self._next = 0
        for _ in range(2):  # two commits, each with files of several hours, the second in the new version
            self.table.append(self._records(ROWS // 2, spread=True), rows_per_file=ROWS_PER_FILE)
            upgrade(catalog, self.table.name, version)
        self.alive = set(range(ROWS))
        self.files = sorted(file.uri for file in self.table.files())

    def _records(self, count: int, *, spread: bool = False) -> list[dict[str, Any]]:
        first, self._next = self._next, self._next + count
        step = timedelta(minutes=6 if spread else 0)
        return [{"timestamp": START + step * (n % 30), "n": n} for n in range(first, first + count)]

    def change(self, dead: dict[int, list[int]], *, inserts: int = 0, own_dead: tuple[int, ...] = ()) -> None:
        """Deletes rows by the number of a file and positions in it, and inserts some."""
        by_uri = {self.files[at]: positions for at, positions in dead.items()}
        for uri, positions in by_uri.items():
            numbers = pq.read_table(local_text(uri), columns=["n"])["n"].to_pylist()
            self.alive -= {numbers[position] for position in positions}
        records = self._records(inserts)
        self.alive |= {record["n"] for at, record in enumerate(records) if at not in own_dead}
        self.table.change(by_uri, records, own_dead)


def _readers(line: Line, session: Any, api: httpx.Client, table: LogTable) -> dict[str, Reader]:
    hour = timedelta(hours=1)
    times = {"from": (START - hour).isoformat(), "to": (START + 9 * hour).isoformat()}
    return readers(line, session, api, {"tenant": table.tenant, **times}, table.name, ["n"])


def _right(engines: dict[str, Reader], alive: set[int]) -> list[str]:
    return right(engines, [(n,) for n in alive])


@pytest.fixture
def session(spark: Any, line: Line) -> Any:  # noqa: F811
    return with_catalog(spark, line.stack.address("catalog"))


@pytest.mark.parametrize("version", [2, 3])
def test_engines_read_deletes(version: int, line: Line, session: Any, api: httpx.Client) -> None:
    """After one delete, a second one of the same file, deletes over several files with inserts of which one
    is deleted in the same commit, and an append."""
    changed = ChangedTable(line.catalog, version)
    table, readers = changed.table, _readers(line, session, api, changed.table)
    ids = _row_ids(session, table, version)
    changed.change({0: [0, 3]})
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    changed.change({0: [1, 3]})
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    changed.change({0: [9], 1: list(range(5)), 3: list(range(ROWS_PER_FILE))}, inserts=8, own_dead=(2,))
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    table.append([{"timestamp": START, "n": 1_000}])
    changed.alive.add(1_000)
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    after = _row_ids(session, table, version)
    assert {n: after[n] for n in after if n in ids} == {n: ids[n] for n in changed.alive if n in ids}
    assert version == 2 or len(set(after.values())) == len(changed.alive)
    state = load_state(table.catalog, table.storage, table.name)
    assert state is not None
    # Version 2 keeps a file for each delete of a data file; version 3 has one vector for each data file.
    expected = (
        (ROWS + 8 + 1, 6, 2 + 2 + 1 + 5 + 10 + 1) if version == 2 else (ROWS + 8 + 1, 4, 4 + 5 + 10 + 1)
    )
    totals = state.totals
    assert (totals.rows, totals.delete_files, totals.position_deletes) == expected


def _row_ids(session: Any, table: LogTable, version: int) -> dict[int, int]:
    """The ids of version 3 by number, none of version 2."""
    if version == 2:
        return {}
    name = f"deletes.{table.name.namespace}.{table.name.name}"
    return {int(n): int(row_id) for n, row_id in session.sql(f"SELECT n, _row_id FROM {name}").collect()}
