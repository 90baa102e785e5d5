"""What the committer does with a flush, row by row of its tables: on the real catalog, over a proxy where
answers are to be late or lost."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
import pytest

from ingest.commit.committer import Committer, Step
from ingest.commit.table_states import Arrivals, NewTables, TableStates
from ingest.model.link import NewColumn, Outcome, WrittenFlush
from ingest.model.trouble import Cause
from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.commit import load_state, prepare_append, prepare_replace
from lake.log_schema import LogSchema
from lake.manifest_list import read_manifest_list
from lake.marks import Marks, Range, TopicPartition
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.optimize.support.live_files import missing_files
from tests.stack.support.line import Line
from tests.stack.support.parked import table_name, unwritable
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

P0 = TopicPartition("topic", 0)
STORAGE = open_storage()
SETTLED_S = 20.0


@dataclass
class Commits:
    """A committer over one catalog, driven by hand."""

    states: TableStates
    committer: Committer
    line: Line

    def table(self) -> TableId:
        """A table nobody has heard of."""
        return TableId(TenantId(fresh("Row-")), "logs")

    def known(self, table: TableId) -> None:
        """Has the table loaded."""
        self.states.want([table])
        wait_for(
            lambda: self.states.poll() and self.states.get(table) is not None,
            SETTLED_S,
            f"{table} being known",
        )

    def flush(
        self, table: TableId, start: int, end: int, *, uuid: str = "", new: dict[str, NewColumn] | None = None
    ) -> WrittenFlush:
        """A written flush of one row per offset; the table is known."""
        state = self.states.last_known(table)
        assert state is not None
        files = write_files(STORAGE, state.location, _rows(start, end), state.schema)
        STORAGE.sync([file.uri for file in files])
        return WrittenFlush(table, uuid or state.uuid, {P0: Range(start, end)}, files, end - start, new or {})

    def step(self) -> tuple[Step, Arrivals]:
        arrivals = self.states.poll()
        return self.committer.step(), arrivals

    def until(self, holds: Callable[[Step, Arrivals], bool], what: str) -> tuple[Step, Arrivals]:
        """Steps until something shows; returns the step that showed it."""
        found: list[tuple[Step, Arrivals]] = []

        def shown() -> bool:
            found.append(self.step())
            return holds(*found[-1])

        wait_for(shown, SETTLED_S, what, poll_s=0.01)
        return found[-1]

    def settled(self, *flushes: WrittenFlush) -> list[Outcome]:
        """Submits and returns what became of them."""
        self.committer.submit(0, flushes)
        outcomes: list[Outcome] = []

        def all_settled(step: Step, _: Arrivals) -> bool:
            outcomes.extend(outcome for _, _, outcome, _ in step.settled)
            return len(outcomes) == len(flushes)

        self.until(all_settled, "the flushes being settled")
        return outcomes

    def committed(self, table: TableId, end: int) -> None:
        """The table has rows up to an offset."""
        self.known(table)
        assert self.settled(self.flush(table, 0, end)) == [Outcome.DONE]

    def tries(self, table: TableId) -> int:
        """How often the commit that goes on has failed."""
        job = self.states.lives[table].job
        assert job is not None
        return job.tries

    def rows(self, table: TableId) -> int:
        return self.line.rows_written(table.tenant.name)

    def trouble(self) -> Cause:
        """The cause of the first trouble that shows."""
        step, arrivals = self.until(lambda step, arrivals: bool(step.failed or arrivals.failed), "a trouble")
        return (step.failed or arrivals.failed)[0][1].cause


def _rows(start: int, end: int) -> pa.Table:
    count = end - start
    times = pa.array([490_000 * 3_600_000_000] * count, pa.int64()).cast(pa.timestamp("us", "UTC"))
    same = {
        "_topic": pa.array(["t"] * count),
        "_topic_id": pa.array([P0.topic_id] * count),
        "_topic_partition": pa.array([0] * count, pa.int32()),
    }
    numbers = {
        "_offset": pa.array(range(start, end), pa.int64()),
        "_index": pa.array([0] * count, pa.int32()),
    }
    return pa.table({"timestamp": times, "observed_timestamp": times, **same, **numbers})


@contextmanager
def _commits(
    line: Line, uri: str, *, timeout_s: float = 3.0, on_deleted: str = "park", per_minute: int = 10_000
) -> Iterator[Commits]:
    catalog, clock = CatalogClient(uri), SystemClock()
    assert line.catalog.warehouse is not None
    with ThreadPoolExecutor(8) as pool:
        states = TableStates(
            catalog,
            STORAGE,
            line.catalog.warehouse,
            None,
            pool,
            clock,
            timeout_s,
            NewTables(per_minute, clock),
            lease="",
        )
        yield Commits(states, Committer(states, pool, clock, timeout_s, on_deleted, "test"), line)
    catalog.close()


@pytest.fixture
def commits(line: Line) -> Iterator[Commits]:
    """A committer over the stack's catalog."""
    with _commits(line, line.stack.address("catalog")) as commits:
        yield commits


def _elsewhere(line: Line, table: TableId, end: int, rows: int = 1) -> None:
    """Another writer commits to the table, with marks up to `end`."""
    state = load_state(line.catalog, STORAGE, table_name(table.tenant.name))
    assert state is not None
    files = write_files(STORAGE, state.location, _rows(end - rows, end), state.schema)
    prepared = prepare_append(
        state, files, state.schema, Marks({**state.marks.offsets, P0: end}), 1, writer="elsewhere"
    )
    STORAGE.write_all(prepared.files)
    assert line.catalog.commit_all([prepared.request])[0].status == "committed"


def _nobodys(line: Line, table: TableId) -> set[str]:
    """Manifests and manifest lists below a table that no snapshot has."""
    state = load_state(line.catalog, STORAGE, table_name(table.tenant.name))
    assert state is not None
    metadata = line.catalog.load_table(table_name(table.tenant.name))["metadata"]
    lists = {snapshot["manifest-list"] for snapshot in metadata["snapshots"]}
    manifests = {manifest.uri for uri in lists for manifest in read_manifest_list(STORAGE.read(uri))}
    folder = local_path(state.location) / "metadata"
    return {f"file://{path}" for path in folder.glob("*.avro")} - lists - manifests


def test_marks_at_the_start_commit(commits: Commits) -> None:
    """A flush that starts where the table stands is committed, and the table is created with the first
    one."""
    table = commits.table()
    commits.committed(table, 5)
    assert commits.settled(commits.flush(table, 5, 8)) == [Outcome.DONE]
    assert commits.rows(table) == 8


def test_marks_at_or_beyond_the_end_are_done(commits: Commits) -> None:
    """What is there already is settled without another commit."""
    table = commits.table()
    commits.committed(table, 5)
    assert commits.settled(commits.flush(table, 2, 5)) == [Outcome.DONE]
    assert commits.rows(table) == 5


def test_marks_inside_send_the_flush_back(commits: Commits, line: Line) -> None:
    """Part of a flush was written by somebody else: it is to be written again without that part."""
    table = commits.table()
    commits.committed(table, 5)
    _elsewhere(line, table, 7, rows=2)
    assert commits.settled(commits.flush(table, 5, 9)) == [Outcome.REDO]
    assert commits.rows(table) == 7


def test_marks_before_the_start_are_a_table_moved_back(commits: Commits, line: Line) -> None:
    """A flush that starts beyond the marks is not committed: the table has lost what lies between, and the
    trouble says up to where."""
    table = commits.table()
    commits.committed(table, 5)
    commits.committer.submit(0, [commits.flush(table, 8, 9)])
    step, _ = commits.until(lambda step, _: bool(step.failed), "a trouble")
    ((_, trouble),) = step.failed
    assert (trouble.cause, trouble.expected.of(P0)) == (Cause.ROLLED_BACK, 8)


def test_another_uuid_sends_the_flush_back(commits: Commits) -> None:
    """Files written for a table that was dropped do not go into the one that has its name now."""
    table = commits.table()
    commits.committed(table, 5)
    assert commits.settled(commits.flush(table, 5, 6, uuid="another")) == [Outcome.REDO]


def test_conflict_is_compared_again(commits: Commits, line: Line) -> None:
    """Somebody else changed the table meanwhile, without touching the marks: the flush is committed on
    top, and nothing is left of the attempt that lost."""
    table = commits.table()
    commits.committed(table, 5)
    flush = commits.flush(table, 5, 6)
    _elsewhere(line, table, 5, rows=1)
    assert commits.settled(flush) == [Outcome.DONE]
    assert commits.rows(table) == 7
    wait_for(lambda: _nobodys(line, table) == set(), SETTLED_S, "the files of the lost attempt being deleted")
    assert missing_files(line.catalog, STORAGE, table_name(table.tenant.name)) == []


def test_a_table_whose_name_a_view_has_is_refused(commits: Commits, line: Line) -> None:
    """The catalog says conflict, and nobody was faster: it is told as a fault of this table, and tried ever
    more seldom."""
    table = commits.table()
    name = table_name(table.tenant.name)
    commits.known(table)
    flush = commits.flush(table, 0, 1)
    line.catalog.create_namespace(name.namespace, {})
    representation = {"type": "sql", "sql": "select 1", "dialect": "trino"}
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "default-namespace": [name.namespace],
    }
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "a", "type": "int", "required": False}],
    }
    body = {
        "name": name.name,
        "schema": schema,
        "view-version": {**version, "representations": [representation]},
        "properties": {},
    }
    line.catalog.post(f"/v1/namespaces/{name.namespace}/views", body)
    commits.committer.submit(0, [flush])
    assert commits.trouble() is Cause.REFUSED
    began_s, tries = time.monotonic(), commits.tries(table)
    commits.until(lambda *_: time.monotonic() - began_s > 2, "two seconds")
    assert commits.tries(table) - tries <= 3
    line.catalog.delete(f"/v1/namespaces/{name.namespace}/views/{name.name}")
    assert commits.until(lambda step, _: bool(step.settled), "the commit")[0].settled[0][2] is Outcome.DONE


def test_columns_whose_ids_somebody_else_took_send_the_flush_back(commits: Commits, line: Line) -> None:
    """The id of a new column is a promise that ends when another writer adds a column."""
    table = commits.table()
    commits.committed(table, 5)
    schema = LogSchema(orjson.loads(commits.states.grow(table, {"mine": "/mine"})))
    flush = commits.flush(table, 5, 6, new={"mine": NewColumn(schema.by_name["mine"].id, "string")})
    line.sql(f"ALTER TABLE {line.table(table.tenant.name)} ADD COLUMN theirs VARCHAR")
    assert commits.settled(flush) == [Outcome.REDO]


def test_lost_answer_is_found_out(line: Line) -> None:
    """The commit landed and nobody heard: the table is loaded, its marks tell, and it is not committed
    twice."""
    with CatalogProxy(line.stack.address("catalog")) as proxy, _commits(line, proxy.address) as commits:
        table = commits.table()
        commits.committed(table, 5)
        proxy.hold()
        commits.committer.submit(0, [commits.flush(table, 5, 8)])
        commits.until(lambda *_: proxy.held.is_set(), "the commit being sent")
        proxy.land()
        step, _ = commits.until(lambda step, _: bool(step.settled), "the flush being settled")
        assert [outcome for _, _, outcome, _ in step.settled] == [Outcome.DONE]
        assert commits.rows(table) == 8


def test_unanswered_commit_that_did_not_land_is_sent_again_and_the_late_one_is_refused(line: Line) -> None:
    """The head is as asserted: the identical request goes out again; when the first one lands after all, it
    changes nothing."""
    with (
        CatalogProxy(line.stack.address("catalog")) as proxy,
        _commits(line, proxy.address, timeout_s=1.0) as commits,
    ):
        table = commits.table()
        commits.committed(table, 5)
        proxy.hold()
        assert commits.settled(commits.flush(table, 5, 8)) == [Outcome.DONE]
        proxy.land()
        assert b'"conflict"' in proxy.answer[1]
        assert commits.rows(table) == 8


def test_table_of_which_nothing_comes_in_time_is_slow_and_delays_nobody(line: Line) -> None:
    """One table's deadline passes: the others of the batch are done, it is told as slow, and goes alone from
    then on."""
    with CatalogProxy(line.stack.address("catalog")) as proxy, _commits(line, proxy.address) as commits:
        slow, quick = commits.table(), commits.table()
        commits.committed(slow, 1)
        commits.committed(quick, 1)
        proxy.slow[table_name(slow.tenant.name)] = 60.0
        commits.committer.submit(0, [commits.flush(slow, 1, 2), commits.flush(quick, 1, 2)])
        commits.until(lambda step, _: quick in step.committed, "the quick table being committed")
        assert commits.trouble() is Cause.SLOW
        assert commits.settled(commits.flush(quick, 2, 3)) == [Outcome.DONE]


def test_storage_that_takes_no_metadata_of_one_table_is_its_trouble(commits: Commits, line: Line) -> None:
    """Manifests that cannot be written hold up their own table only."""
    sick, well = commits.table(), commits.table()
    commits.committed(sick, 1)
    commits.committed(well, 1)
    flushes = [commits.flush(sick, 1, 2), commits.flush(well, 1, 2)]
    state = commits.states.last_known(sick)
    assert state is not None
    with unwritable(local_path(state.location) / "metadata"):
        commits.committer.submit(0, flushes)
        step, _ = commits.until(lambda step, _: well in step.committed, "the well table being committed")
        assert [(table, trouble.cause) for table, trouble in step.failed] == [(sick, Cause.STORAGE)]


def test_refused_commit_is_the_tables_trouble(commits: Commits, line: Line) -> None:
    """What the catalog calls invalid is told with its sentence, and tried again."""
    table = commits.table()
    commits.known(table)
    flush = commits.flush(table, 0, 1)
    state = commits.states.last_known(table)
    assert state is not None
    commits.states.lives[table].learn(
        replace(state, location="file:///outside/of/the/warehouse/" + state.uuid)
    )
    commits.committer.submit(0, [replace(flush, files=[])])
    assert commits.trouble() in (Cause.REFUSED, Cause.STORAGE)


@pytest.mark.parametrize("policy", ["park", "dead-letter", "recreate"])
def test_dropped_table_follows_on_deleted(line: Line, policy: str) -> None:
    """A name that is kept for a dropped table: parked, its records made dead letters, or the table created
    anew for them."""
    with _commits(line, line.stack.address("catalog"), on_deleted=policy) as commits:
        table = commits.table()
        commits.committed(table, 2)
        flush = commits.flush(table, 2, 3)
        line.catalog.drop_table(table_name(table.tenant.name))
        assert commits.settled(flush) == [Outcome.REDO]  # written for a table that is gone
        flush = commits.flush(table, 0, 3)
        if policy == "park":
            commits.committer.submit(0, [flush])
            assert commits.trouble() is Cause.DELETED
        elif policy == "dead-letter":
            assert commits.settled(flush) == [Outcome.DEAD_LETTER]
        else:
            assert commits.settled(flush) == [Outcome.DONE]
            assert commits.rows(table) == 3


def test_head_older_than_the_marks_is_a_table_moved_back(commits: Commits, line: Line) -> None:
    """A rollback shows by comparing the marks with those of the head's summary, also under maintenance on top
    of it."""
    table = commits.table()
    commits.committed(table, 2)
    name = table_name(table.tenant.name)
    first = load_state(line.catalog, STORAGE, name)
    assert commits.settled(commits.flush(table, 2, 5)) == [Outcome.DONE]
    assert first is not None
    update = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first.head}
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )
    state = load_state(line.catalog, STORAGE, name)
    assert state is not None
    assert state.moved_back
    maintained = prepare_replace(state, [], [], [], state.manifests, 1)
    assert maintained.after.moved_back
    STORAGE.write_all(maintained.files)
    assert line.catalog.commit_all([maintained.request])[0].status == "committed"
    commits.committer.submit(0, [commits.flush(table, 5, 6)])
    assert commits.trouble() is Cause.ROLLED_BACK


def test_table_that_is_gone_without_having_been_dropped_counts_as_moved_back(
    commits: Commits, line: Line
) -> None:
    """Somebody renamed the table, or the catalog lost it: its name is not given to a new one unseen."""
    table = commits.table()
    commits.committed(table, 2)
    name = table_name(table.tenant.name)
    other = {"namespace": [name.namespace], "name": "other"}
    line.catalog.post(
        "/v1/tables/rename",
        {"source": {"namespace": [name.namespace], "name": name.name}, "destination": other},
    )
    commits.committer.submit(0, [commits.flush(table, 2, 3)])
    assert commits.trouble() is Cause.ROLLED_BACK


def test_new_tables_wait_for_their_minute(line: Line) -> None:
    """No more new tables than allowed are created at once; the others are known as postponed."""
    with _commits(line, line.stack.address("catalog"), per_minute=2) as commits:
        tables = [commits.table() for _ in range(4)]
        commits.states.want(tables)
        known: set[TableId] = set()

        def told() -> bool:
            known.update(commits.states.poll().known)
            return len(known) == 2 and len(commits.states.lives.postponed) == 2

        wait_for(told, SETTLED_S, "two tables being known and two postponed")
