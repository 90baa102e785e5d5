"""Many commits to a table that nobody maintains, on the real catalog: a commit at the end costs what
one at the beginning did."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

import psutil
import pytest
from pyiceberg.catalog import load_catalog

from ingest.commit.committer import Committer
from ingest.commit.table_states import NewTables, TableStates
from lake.catalog_client import CatalogClient, TableName
from lake.clock import SystemClock
from lake.commit import load_state
from lake.relief import Bounds
from lake.tenant import TableId
from optimize.deletions import Throttle
from optimize.orphan_files import delete_orphans, find_orphans
from tests.stack.support.line import Line
from tests.stack.support.parked import table_name
from tests.stack.test_committer import STORAGE, Commits

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.finding(17)]

# The long proof makes twice as many.
COMMITS, HUNDRED = int(os.environ.get("FIRN_TEST_COMMITS", "400")), 100
TAGGED_AT = 30
# Some hundreds at each end, the first left out. The middle one of them counts, because a second of CPU time
# does less while a JVM starts beside it.
END = 3
CPU_FACTOR, BYTES_FACTOR = 2.0, 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """What two processes, the catalog's and this one, have spent: CPU seconds, bytes written."""

    cpu_s: float
    written_bytes: int

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.cpu_s - other.cpu_s, self.written_bytes - other.written_bytes)


def _cost(line: Line) -> Cost:
    processes = [psutil.Process(line.stack.pid("catalog")), psutil.Process(os.getpid())]
    times = [process.cpu_times() for process in processes]
    return Cost(
        sum(time.user + time.system for time in times),
        sum(process.io_counters().write_chars for process in processes),
    )


@pytest.fixture
def commits(line: Line) -> Iterator[Commits]:
    """A committer with the bounds that a node has by default."""
    catalog, clock = CatalogClient(line.stack.address("catalog")), SystemClock()
    assert line.catalog.warehouse is not None
    with ThreadPoolExecutor(8) as pool:
        states = TableStates(
            catalog,
            STORAGE,
            line.catalog.warehouse,
            None,
            pool,
            clock,
            30.0,
            NewTables(10_000, clock),
            lease="",
        )
        yield Commits(states, Committer(states, pool, clock, 30.0, "park", "test", Bounds()), line)
    catalog.close()


def _commit(commits: Commits, table: TableId, at: int) -> None:
    """One row. After a relief the table is loaded again, as the worker's next flush would have it."""
    if commits.states.get(table) is None:
        commits.known(table)
    commits.settled(commits.flush(table, at, at + 1))


def _tag(catalog: CatalogClient, name: TableName) -> None:
    metadata = catalog.load_table(name)["metadata"]
    update = {
        "action": "set-snapshot-ref",
        "ref-name": "audit",
        "type": "tag",
        "snapshot-id": metadata["current-snapshot-id"],
    }
    uuid = {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}
    (result,) = catalog.commit_all(
        [{"identifier": name.to_json(), "requirements": [uuid], "updates": [update]}]
    )
    assert result.status == "committed"


@pytest.mark.timeout(1_200)
def test_the_cost_of_a_commit_stays_flat(commits: Commits, line: Line) -> None:
    """So does the size of the metadata; rows and a tag are all there, and what expired is found as orphans,
    which nothing live is among."""
    table = commits.table()
    name, spent = table_name(table.tenant.name), list[Cost]()
    for hundred in range(COMMITS // HUNDRED):
        before = _cost(line)
        for at in range(hundred * HUNDRED, (hundred + 1) * HUNDRED):
            _commit(commits, table, at)
            if at + 1 == TAGGED_AT:
                _tag(line.catalog, name)
                commits.states.outdate(table)
        spent.append(_cost(line) - before)
    print(
        "CPU seconds and MB written by the hundred:",
        [(round(c.cpu_s, 2), round(c.written_bytes / 1e6, 1)) for c in spent],
    )
    first, last = spent[1 : 1 + END], spent[-END:]
    assert median(c.written_bytes for c in last) < median(c.written_bytes for c in first) * BYTES_FACTOR
    assert median(c.cpu_s for c in last) < median(c.cpu_s for c in first) * CPU_FACTOR
    metadata = line.catalog.load_table(name)["metadata"]
    assert len(metadata["snapshots"]) <= Bounds().snapshots + 1
    state = load_state(line.catalog, STORAGE, name)
    assert state is not None
    assert len(state.manifests) <= Bounds().manifests
    _all_there(line, name, table)
    _expired_files_are_found(line, name)
    _all_there(line, name, table)
    _moved_back_still_shows(line, name)


def _all_there(line: Line, name: TableName, table: TableId) -> None:
    own = line.table(table.tenant.name)
    assert line.sql(f"SELECT count(*), count(DISTINCT _offset) FROM {own}") == [(COMMITS, COMMITS)]
    assert line.sql(f"SELECT count(*) FROM {own} FOR VERSION AS OF 'audit'") == [(TAGGED_AT,)]
    catalog = load_catalog("lake", type="rest", uri=line.stack.address("catalog"))
    assert (
        catalog.load_table((name.namespace, name.name)).scan(selected_fields=("_offset",)).count() == COMMITS
    )


def _expired_files_are_found(line: Line, name: TableName) -> None:
    """By maintenance that is back: manifest lists of all snapshots but the last hundred, and the manifests
    that became others."""
    later = datetime.now(UTC) + timedelta(days=8)
    orphans = find_orphans(
        line.catalog,
        STORAGE,
        name,
        Throttle(1e6),
        age_min_s=7 * 86_400.0,
        now=later,
        metadata=line.catalog.load_table(name)["metadata"],
    )
    assert orphans is not None
    assert (COMMITS - Bounds().snapshots) * 1.9 < len(orphans.files) < COMMITS * 2.5
    assert all(file.endswith(".avro") for file in orphans.files)
    assert delete_orphans(line.catalog, STORAGE, orphans, Throttle(1e6)) == len(orphans.files)


def _moved_back_still_shows(line: Line, name: TableName) -> None:
    """The oldest snapshot that was kept, beside the tag, still says how far the table was then."""
    metadata = line.catalog.load_table(name)["metadata"]
    oldest = sorted(metadata["snapshots"], key=lambda snapshot: snapshot["sequence-number"])[1]
    update = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": oldest["snapshot-id"],
    }
    (result,) = line.catalog.commit_all(
        [{"identifier": name.to_json(), "requirements": [], "updates": [update]}]
    )
    assert result.status == "committed"
    state = load_state(line.catalog, STORAGE, name)
    assert state is not None
    assert state.moved_back
