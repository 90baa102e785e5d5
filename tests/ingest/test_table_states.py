"""When a table that was loaded counts as known: not before the node has taken up what its parked record
says."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from catalog.model.error_response import CatalogError, unavailable
from ingest.commit.table_events import Entered, GiveUp, Probe, RecordRead, State
from ingest.commit.table_states import Arrivals, TableStates
from ingest.model.link import Grown, GrowTables, Opened, OpenTables
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause
from lake.log_schema import LogSchema
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.node_world import NAME, PLACE, POLLS, TABLE, NodeWorld, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def states(world: World, clock: FakeClock) -> Iterator[TableStates]:
    """Of this catalog."""
    with ThreadPoolExecutor(1) as pool:
        yield world.states(pool, clock)


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
    states: TableStates, world: World, record: ParkedRecord | None, version: int | None, expected: bool
) -> None:
    """Else rows that a person has read again would be overtaken by others, whose commit carries the marks
    past them."""
    if record is not None:
        world.park(record)
    assert known(states, version) is expected


def test_a_table_becomes_known_once_the_record_is_taken_up(
    states: TableStates, world: World, clock: FakeClock
) -> None:
    """It is loaded again until then."""
    world.park(ParkedRecord(TABLE, Cause.RESOLVED, version=2))
    assert not known(states, None)
    world.catalog.parked.clear()
    clock.s += 10.0
    assert known(states, None)


def test_marks_that_went_back_are_noticed_whatever_is_to_be_written(
    states: TableStates, world: World
) -> None:
    """A restored database, met while the table is parked for something else: its drain would carry the marks
    past what was taken away."""
    world.mark(7)
    assert known(states, None)
    world.mark(5)
    record = ParkedRecord(TABLE, Cause.FAILING, version=2, id="p")
    world.park(record)
    states.lives.run |= dict.fromkeys((Entered, GiveUp), lambda *_: None)
    states.lives.resume(record, 0.0)
    life = states.lives[TABLE]
    states.lives.on(life, Probe(), 100.0)
    assert not known(states, None)
    assert life.record is not None
    lost = life.record.expected.of(PLACE)
    assert (life.state, life.record.cause, lost) == (State.WRITING, Cause.ROLLED_BACK, 7)


def test_marks_that_a_person_has_set_back_stand(states: TableStates, world: World) -> None:
    """Once the node has taken the decision up."""
    world.mark(7)
    assert known(states, None)
    world.mark(5)
    record = ParkedRecord(TABLE, Cause.RESOLVED, version=3, id="p")
    world.park(record)
    life = states.lives[TABLE]
    life.on(RecordRead(record, 1.0), 2.0)
    assert life.known is None
    assert known(states, 3)


@pytest.mark.long
def test_a_table_that_nobody_can_read_fails_alone(
    states: TableStates, world: World, clock: FakeClock
) -> None:
    """Whatever is in its metadata: trouble of this table, and the node goes on."""
    schema_id = world.metadata.pop("current-schema-id")
    ((table, trouble),) = arrivals(states, None).failed
    assert (table, trouble.cause) == (TABLE, Cause.METADATA)
    world.metadata["current-schema-id"] = schema_id
    clock.s += 10.0
    assert known(states, None)


def tables(*names: str) -> list[TableId]:
    return [TableId(TenantId(name), "logs") for name in names]


def polls(states: TableStates, *asked: TableId) -> set[TableId]:
    """What becomes known of these."""
    found = set[TableId]()
    states.want(asked)
    for _ in range(2 * POLLS):
        found |= set(states.poll(live=True).known)
        states.pool.submit(lambda: None).result()
    return found


def test_many_tables_are_asked_for_together(world: World, states: TableStates) -> None:
    """One question for all of them, whether they are there or not; then what has to be known of each."""
    world.mark(7)
    states.new_tables.per_minute = 10
    new = tables("one", "two", "three")
    assert polls(states, TABLE, *new) == {TABLE, *new}
    assert [word for word in world.catalog.asked if word in ("loads", "logs")] == ["loads"]
    state = states.get(TABLE)
    assert state is not None
    assert state.marks.of(PLACE) == 7
    assert not any(states.lives[table].known.exists for table in new)  # type: ignore[union-attr]


@pytest.mark.parametrize("refused", ["of the table", "of all"])
def test_a_table_of_which_the_catalog_says_nothing_together_is_asked_for_alone(
    world: World, states: TableStates, refused: str
) -> None:
    """What one table's metadata does to a question about many harms no other; an older catalog does not
    understand the question at all."""
    if refused == "of all":
        world.catalog.refuses["loads"] = CatalogError(404, "NoSuchRouteException", "no such route")
    else:
        world.catalog.unreadable[NAME] = unavailable("the storage did not give it in time")
    states.new_tables.per_minute = 10
    (other,) = tables("other")
    assert polls(states, TABLE, other) == {TABLE, other}
    assert world.catalog.asked.count("loads") == 1


def test_what_an_answer_leaves_out_is_asked_for_again(
    world: World, states: TableStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are bounded, so there may be fewer results than tables."""
    whole = world.client.load_tables
    monkeypatch.setattr(world.client, "load_tables", lambda names, **more: whole(names[:2], **more))
    states.new_tables.per_minute = 10
    asked = tables("one", "two", "three", "four", "five")
    assert polls(states, *asked) == set(asked)
    assert world.catalog.asked.count("loads") == 2


@pytest.fixture
def told(tmp_path: Path) -> Iterator[NodeWorld]:
    with ThreadPoolExecutor(1) as pool:
        yield NodeWorld(tmp_path, pool)


def test_the_node_says_that_it_moves_live_marks(told: NodeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it takes in what was loaded."""
    asked = list[bool]()
    poll = told.node_states.poll

    def noted(*, live: bool = False) -> Arrivals:
        asked.append(live)
        return poll(live=live)

    monkeypatch.setattr(told.node_states, "poll", noted)
    told.steps(2)
    assert asked == [True, True]


def test_who_was_told_that_a_table_waits_is_told_when_it_does_not(told: NodeWorld) -> None:
    """All workers, not only those that asked: its records would be dead letters as soon as memory is full."""
    first, second = (TableId(TenantId(name), "logs") for name in ("one", "two"))
    told.node.handle(1, OpenTables([first, second]))
    told.steps()
    assert told.messages == [(None, Opened({}, [second])), (1, Opened({first: told.view(first)}))]
    told.messages.clear()
    told.clock.s += 60.0
    told.steps()
    assert told.messages == [(None, Opened({second: told.view(second)}))]
    told.steps()
    assert len(told.messages) == 1


def test_columns_of_a_table_that_is_not_known_any_more_are_nobodys(told: NodeWorld) -> None:
    """A person has decided about it while a drain was writing: the others get theirs."""
    other = TableId(TenantId("t"), "other")
    told.node.handle(1, OpenTables([TABLE]))
    told.steps()
    told.messages.clear()
    told.node.handle(1, GrowTables({TABLE: {"a": "/a"}, other: {"a": "/a"}}))
    ((worker, grown),) = told.messages
    assert isinstance(grown, Grown)
    assert (worker, set(grown.schemas)) == (1, {TABLE})
    assert "a" in LogSchema(orjson.loads(grown.schemas[TABLE])).by_name


def test_many_new_tables_of_one_tenant_hold_up_no_other_tenants(told: NodeWorld) -> None:
    """Of those that wait for `tables.new_per_minute` each tenant's first is created before any second; that
    they wait is told once."""
    many = [TableId(TenantId("many"), f"s{number}") for number in range(20)]
    late = TableId(TenantId("late"), "logs")
    told.node_states.new_tables.per_minute = 2
    told.node.handle(0, OpenTables(many))
    told.steps()
    told.node.handle(1, OpenTables([late]))
    told.steps()
    assert len(told.node_states.lives.postponed) == 19
    told.clock.s += 60.0
    told.steps()
    created = {
        table for _, message in told.messages if isinstance(message, Opened) for table in message.views
    }
    assert created == {*many[:3], late}
    waited = [
        table for _, message in told.messages if isinstance(message, Opened) for table in message.postponed
    ]
    assert sorted(waited) == sorted([*many[2:], late])
