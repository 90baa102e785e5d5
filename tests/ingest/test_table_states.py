"""When a table that was loaded counts as known: not before the node has taken up what its parked record
says."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingest.commit.table_events import Entered, GiveUp, Probe, RecordRead, State
from ingest.commit.table_states import Arrivals, NewTables, TableStates
from ingest.commit.tables import Tables
from ingest.model.link import Grown, GrowTables, Opened, OpenTables
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause
from ingest.node.node import Node
from lake.catalog_client import TableName
from lake.clock import SystemClock
from lake.commit import TableState, new_table_state
from lake.marks import Marks, TopicPartition
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("t"), "logs")
POLLS = 4


class Parked:
    """The parked records of a catalog whose leases are all in force."""

    def __init__(self) -> None:
        self.record: ParkedRecord | None = None

    def confirm(self, lease: str) -> None:
        """It is."""

    def all(self) -> dict[TableId, ParkedRecord]:
        return {} if self.record is None else {TABLE: self.record}


@pytest.fixture
def parked() -> Parked:
    return Parked()


@dataclass
class Catalog:
    """Has the table, as far as these marks."""

    mark: int = 0

    def load(self, *_: Any, **__: Any) -> TableState:
        state = new_table_state(TableName("t", "logs"), "t", "logs", "file:///warehouse")
        return replace(state, exists=True, uuid="u", marks=Marks({TopicPartition("id", 0): self.mark}))


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


@pytest.fixture
def states(parked: Parked, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableStates]:
    """Of this catalog."""
    monkeypatch.setattr("ingest.commit.table_states.load_state", catalog.load)
    clock, unused = SystemClock(), cast("Any", None)
    with ThreadPoolExecutor(1) as pool:
        yield TableStates(
            unused,
            unused,
            "file:///warehouse",
            cast("ParkedRecords", parked),
            pool,
            clock,
            5.0,
            NewTables(1, clock),
            "node:1",
        )


def due_now(states: TableStates) -> None:
    """The table may be loaded again without a pause."""
    loading = states.lives[TABLE].loading
    assert loading is not None
    loading.not_before_s = 0.0


def arrivals(states: TableStates, version: int | None) -> Arrivals:
    """What becomes known to a node that knows this version of the table's parked record."""
    if version is not None:
        states.lives.resume(ParkedRecord(TABLE, Cause.FAILING, version=version, id="p"), 0.0)
    states.want([TABLE])
    for _ in range(POLLS):
        found = states.poll(live=True)
        if found.known or found.failed:
            return found
        states.pool.submit(lambda: None).result()  # what was asked before it is answered
    return Arrivals()


def known(states: TableStates, version: int | None) -> bool:
    """Whether the table becomes known."""
    return TABLE in arrivals(states, version).known


@pytest.mark.parametrize(
    ("record", "version", "expected"),
    [
        pytest.param(None, None, True, id="not parked"),
        pytest.param(
            ParkedRecord(TABLE, Cause.RESOLVED, version=2),
            None,
            False,
            id="a person decided before the node heard of it",
        ),
        pytest.param(
            ParkedRecord(TABLE, Cause.RESOLVED, version=3, id="p"),
            2,
            False,
            id="a person decided while the node tries the table again",
        ),
        pytest.param(
            ParkedRecord(TABLE, Cause.FAILING, version=2, id="p"),
            2,
            True,
            id="the node tries the table again",
        ),
        pytest.param(
            ParkedRecord(TABLE, Cause.FAILING, version=2, id="p"),
            None,
            True,
            id="the node has just released it",
        ),
    ],
)
def test_a_table_is_known_when_its_parked_record_is(
    states: TableStates, parked: Parked, record: ParkedRecord | None, version: int | None, expected: bool
) -> None:
    """Else rows that a person has read again would be overtaken by others, whose commit carries the marks
    past them."""
    parked.record = record
    assert known(states, version) is expected


def test_a_table_becomes_known_once_the_record_is_taken_up(states: TableStates, parked: Parked) -> None:
    """It is loaded again until then."""
    parked.record = ParkedRecord(TABLE, Cause.RESOLVED, version=2)
    assert not known(states, None)
    parked.record = None
    due_now(states)
    assert known(states, None)


def test_marks_that_went_back_are_noticed_whatever_is_to_be_written(
    states: TableStates, parked: Parked, catalog: Catalog
) -> None:
    """A restored database, met while the table is parked for something else: its drain would carry the marks
    past what was taken away."""
    catalog.mark = 7
    assert known(states, None)
    catalog.mark, parked.record = 5, ParkedRecord(TABLE, Cause.FAILING, version=2, id="p")
    states.lives.run |= dict.fromkeys((Entered, GiveUp), lambda *_: None)
    states.lives.resume(parked.record, 0.0)
    life = states.lives[TABLE]
    states.lives.on(life, Probe(), 100.0)
    assert not known(states, None)
    assert life.record is not None
    lost = life.record.expected.of(TopicPartition("id", 0))
    assert (life.state, life.record.cause, lost) == (State.WRITING, Cause.ROLLED_BACK, 7)


def test_marks_that_a_person_has_set_back_stand(
    states: TableStates, parked: Parked, catalog: Catalog
) -> None:
    """Once the node has taken the decision up."""
    catalog.mark = 7
    assert known(states, None)
    catalog.mark, parked.record = 5, ParkedRecord(TABLE, Cause.RESOLVED, version=3, id="p")
    life = states.lives[TABLE]
    life.on(RecordRead(parked.record, 1.0), 2.0)
    assert life.known is None
    assert known(states, 3)


def test_a_table_that_nobody_can_read_fails_alone(
    states: TableStates, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in its metadata: trouble of this table, and the node goes on."""
    monkeypatch.setattr(
        "ingest.commit.table_states.load_state", lambda *_, **__: dict[str, int]()["current-schema-id"]
    )
    ((table, trouble),) = arrivals(states, None).failed
    assert (table, trouble.cause) == (TABLE, Cause.METADATA)
    monkeypatch.setattr("ingest.commit.table_states.load_state", catalog.load)
    due_now(states)
    assert known(states, None)


class Told:
    """A node of which two parts are real: what it is asked, and what it tells its workers."""

    def __init__(self) -> None:
        self.messages: list[tuple[int | None, Any]] = []
        self.lives = Tables()
        self.asked: list[bool] = []
        self.arrivals = Arrivals()
        self.postponed: dict[TableId, None] = {}
        self.tables = dict[TableId, Any]()
        self.parking = SimpleNamespace(step=lambda **_: None)
        nothing = SimpleNamespace(committed=(), failed=(), settled=())
        troubles = SimpleNamespace(now={}, verdicts=dict, suspects=lambda _: {}, passed=lambda *_: None)
        parts: Any = (
            self,
            SimpleNamespace(step=lambda: nothing),
            self.parking,
            troubles,
            None,
            None,
            None,
            SystemClock(),
            self._tell,
        )
        self.node = Node(*parts)

    def _tell(self, worker: int | None, message: Any) -> None:
        self.messages.append((worker, message))

    def step(self, *known: TableId) -> None:
        self.arrivals = Arrivals(known=list(known))
        self.tables |= dict.fromkeys(known, "view")
        self.node.step(stopping=False)

    # ---- as TableStates

    def poll(self, *, live: bool = False) -> Arrivals:
        self.asked.append(live)
        return self.arrivals

    def get(self, table: TableId) -> Any:
        return self.tables.get(table)

    last_known = view = get

    def want(self, _: Any) -> None:
        """Later."""

    def grow(self, table: TableId, _: Any) -> bytes:
        return str(self.tables[table]).encode()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr("ingest.node.node.Node._is_parked", lambda *_: False)
    return Told()


def test_the_node_says_that_it_moves_live_marks(told: Told) -> None:
    """Each time it takes in what was loaded."""
    told.step()
    assert told.asked == [True]


def test_who_was_told_that_a_table_waits_is_told_when_it_does_not(told: Told) -> None:
    """All workers, not only those that asked: its records would be dead letters as soon as memory is full."""
    told.node.handle(1, OpenTables([TABLE]))
    told.postponed = {TABLE: None}
    told.step()
    told.postponed = {}
    told.step()
    told.step(TABLE)
    assert told.messages == [(None, Opened({}, [TABLE])), (None, Opened({TABLE: cast("Any", "view")}))]
    told.step(TABLE)
    assert len(told.messages) == 2


def test_columns_of_a_table_that_is_not_known_any_more_are_nobodys(told: Told) -> None:
    """A person has decided about it while a drain was writing: the others get theirs."""
    other = TableId(TenantId("t"), "other")
    told.step(TABLE)
    told.node.handle(1, GrowTables({TABLE: {"a": "/a"}, other: {"a": "/a"}}))
    assert told.messages == [(1, Grown({TABLE: b"view"}))]
