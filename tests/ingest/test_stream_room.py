"""A tenant that may have so many streams: a new one beyond them is told to nobody but the dead letters."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ingest.commit.stream_room import StreamRoom
from ingest.model.link import Opened, OpenTables
from ingest.node import refused_streams
from lake.errors import NotFoundError, UnavailableError
from lake.limits import UNBOUND, Bound
from lake.retention import Level
from lake.retention_policies import BELIEVED_S
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.node_world import TABLE, NodeWorld
from tests.ingest.test_pipeline import Worker
from tests.ingest.test_pipeline import worker as worker

NEW = [TableId(TABLE.tenant, f"s{number}") for number in range(4)]
OTHER = TableId(TenantId("other"), "logs")


@dataclass
class Said:
    """What a test says of tenants, and of their tables."""

    most: dict[str, int] = field(default_factory=dict)
    tables: dict[str, set[str]] = field(default_factory=dict)
    is_away: bool = False
    listed: int = 0

    def streams(self, namespace: str) -> Bound:
        return Bound(self.most[namespace], Level.TENANT) if namespace in self.most else UNBOUND

    def list(self, namespace: str) -> Iterable[str]:
        self.listed += 1
        if self.is_away:
            raise UnavailableError("no answer")
        if namespace not in self.tables:
            raise NotFoundError("no such namespace")
        return self.tables[namespace]


@pytest.fixture
def said() -> Said:
    return Said({"t": 3}, {"t": {"logs"}})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def room(said: Said, clock: FakeClock) -> StreamRoom:
    return StreamRoom(said, said.list, clock)


def let_in(room: StreamRoom, tables: Iterable[TableId]) -> list[str]:
    """Streams of tables that are let in."""
    tables = list(tables)
    room.look(tables)
    return [table.stream for table in tables if room.take(table) is None]


def test_so_many_streams_begin_as_the_limit_leaves_room_for(
    room: StreamRoom, said: Said, clock: FakeClock
) -> None:
    """With those that are there, and those that were let in and have not come yet; other tenants begin as
    many as they like. A refusal names the limit and who set it."""
    assert let_in(room, [*NEW, OTHER]) == ["s0", "s1", "logs"]
    assert let_in(room, NEW) == ["s0", "s1"]
    why = room.take(NEW[2])
    assert why is not None
    assert (why.reason.value, "streams is 3, as the tenant says" in why.detail) == ("over_limit", True)
    said.tables["t"] = {"logs", "s0"}
    clock.s += BELIEVED_S
    assert let_in(room, NEW) == ["s0", "s1"]
    assert said.listed == 2
    said.tables["t"] = {"s0"}
    clock.s += BELIEVED_S
    assert let_in(room, [NEW[3], NEW[2]]) == ["s3"]


def test_a_limit_that_is_lifted_refuses_nobody(room: StreamRoom, said: Said, clock: FakeClock) -> None:
    """At the next look; a tenant without any table begins with the first."""
    said.tables.clear()
    assert let_in(room, NEW) == ["s0", "s1", "s2"]
    said.most.clear()
    assert let_in(room, NEW) == ["s0", "s1", "s2", "s3"]
    said.most["t"] = 1
    assert let_in(room, NEW) == ["s0"]


def test_a_catalog_that_does_not_answer_changes_nothing(
    room: StreamRoom, said: Said, clock: FakeClock
) -> None:
    """What it said last counts; before that nobody is refused."""
    said.is_away = True
    assert let_in(room, NEW[:1]) == ["s0"]
    said.is_away = False
    assert let_in(room, NEW) == ["s0", "s1"]
    said.is_away = True
    clock.s += BELIEVED_S
    assert let_in(room, NEW) == ["s0", "s1"]


@pytest.fixture
def world(tmp_path: Path, room: StreamRoom) -> Iterator[NodeWorld]:
    with ThreadPoolExecutor(1) as pool:
        made = NodeWorld(tmp_path, pool)
        made.node_states.room = room
        made.node_states.new_tables.per_minute = 100
        yield made


def test_a_node_tells_its_workers_of_what_is_not_to_be(world: NodeWorld, said: Said) -> None:
    """Streams that are there go on; of refused ones nothing is left, so that they are asked about anew."""
    said.most["t"] = 2
    world.node.handle(0, OpenTables([TABLE, *NEW, OTHER]))
    world.steps()
    told = [message for _, message in world.messages if isinstance(message, Opened)]
    assert {table for message in told for table in message.views} == {TABLE, NEW[0], OTHER}
    assert {table for message in told for table in message.refused} == set(NEW[1:])
    assert not world.node.is_busy
    assert not set(NEW[1:]) & world.node_states.lives.keys()
    assert len(world.node_states.lives.postponed) == 0
    said.most["t"] = 9
    world.clock.s += BELIEVED_S
    world.node_states.room.clock.s += BELIEVED_S  # type: ignore[union-attr]
    world.messages.clear()
    world.node.handle(0, OpenTables(NEW[1:]))
    world.steps()
    told = [message for _, message in world.messages if isinstance(message, Opened)]
    assert {table for message in told for table in message.views} == set(NEW[1:])


def test_a_worker_makes_dead_letters_of_refused_streams(worker: Worker, room: StreamRoom) -> None:
    """Of what waits for them, and of what comes for them within a minute; after that they are asked about
    again. Streams that are there go on, also those that this worker has not met yet."""
    room.look([TABLE])
    why = next(why for table in NEW if (why := room.take(table)) is not None)
    tenant = TenantId("t0")
    known, unmet, first, second = (TableId(tenant, stream) for stream in ("logs", "old", "one", "two"))

    def dead() -> list[tuple[str, str]]:
        letters = worker.settings.internal_topics.dead_letters
        headers = [dict(message.headers()) for message in worker.broker.messages(letters)]
        return [(each["firn.table"].decode(), each["firn.reason"].decode()) for each in headers]

    worker.take(first)
    assert worker.link.asked == [first]
    worker.pipeline.opened({}, [], {first: why})
    worker.pipeline.flush_due()
    worker.take(unmet)
    assert worker.link.asked[-1] == unmet
    worker.pipeline.opened({unmet: worker.view}, [], {})
    worker.take(second)
    worker.pipeline.opened({}, [], {second: why})
    worker.pipeline.flush_due()
    worker.take(known)
    worker.take(first)
    worker.pipeline.durable_offsets(1.0)
    assert dead() == [(str(table), "over_limit") for table in (first, second, first)]
    assert {buffer.table for buffer in worker.pipeline.buffers} == {known, unmet}
    worker.clock.s += BELIEVED_S
    worker.take(second)
    assert worker.link.asked[-1] == second
    assert len(dead()) == 3


def test_made_up_names_are_not_remembered_for_ever(
    worker: Worker, room: StreamRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ones are asked about again."""
    monkeypatch.setattr(refused_streams, "REFUSED_MAX", 2)
    room.look([TABLE])
    why = next(why for table in NEW if (why := room.take(table)) is not None)
    names = [TableId(TenantId("t0"), f"n{at}") for at in range(3)]
    worker.pipeline.opened({}, [], dict.fromkeys(names, why))
    for table in names:
        worker.take(table)
    assert worker.link.asked == names[:1]
