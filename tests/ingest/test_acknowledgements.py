"""What waits for the broker to acknowledge dead letters: flushes for those of their own tables, group offsets
for all that came before them, and nothing else."""

from typing import Any

import pytest

from ingest.dead_letters import dead_letter
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model.link import Outcome
from ingest.node.pipeline import DEAD_LETTERS_S
from lake.errors import Reason, Rejected, UnavailableError
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker, Headers
from tests.ingest.test_pipeline import OTHERS, SLOW, Worker
from tests.ingest.test_pipeline import worker as worker

OVER = Rejected(Reason.OVER_LIMIT, "its tenant has as many streams as it may")
REFUSED = [TableId(TenantId("t0"), f"made up {number}") for number in range(3)]
SHORT_S = 0.01


@pytest.fixture(autouse=True)
def _nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "FLUSH_TIMEOUT_S", SHORT_S)


def of(*tables: TableId) -> set[bytes]:
    return {str(table).encode() for table in tables}


def take_none_of(broker: FakeBroker, tables: set[bytes]) -> None:
    """From here on the broker takes no dead letters of these."""

    def waits(headers: Headers) -> bool:
        return dict(headers).get("firn.table") in tables

    broker.waits = waits


def refuse(worker: Worker, *tables: TableId) -> None:
    """A record comes for each, and it is not to be."""
    for table in tables:
        worker.take(table)
    worker.pipeline.opened({}, [], dict.fromkeys(tables, OVER))


def refuse_and_settle(worker: Worker, *tables: TableId) -> None:
    """The same, and all of it becomes dead letters."""
    refuse(worker, *tables)
    worker.pipeline.flush_due()


def dead(worker: Worker) -> list[int]:
    """Offsets of dead letters that are acknowledged."""
    letters = worker.broker.messages(worker.settings.internal_topics.dead_letters)
    return [int(dict(each.headers())["firn.offset"]) for each in letters]


def test_refused_streams_hold_up_no_flush_of_others(worker: Worker) -> None:
    """Not even one with dead letters of its own, nor another table of the same tenant; the offset stays until
    they are acknowledged."""
    take_none_of(worker.broker, of(*REFUSED))
    refuse_and_settle(worker, *REFUSED)
    worker.take(SLOW)
    worker.take(OTHERS[0])
    worker.take_bytes(OTHERS[0], b"\xff")
    worker.pipeline.flush_all()
    assert set(worker.flushed) == {SLOW, OTHERS[0]}
    worker.pipeline.settle([(table, Outcome.DONE, worker.view) for table in worker.flushed])
    assert worker.pipeline.durable_offsets(SHORT_S) == {}
    assert dead(worker) == [5]
    take_none_of(worker.broker, set())
    assert worker.pipeline.durable_offsets(SHORT_S) == {0: 6}
    assert sorted(dead(worker)) == [0, 1, 2, 5]


def test_a_flush_waits_for_the_dead_letters_of_its_own_table(worker: Worker) -> None:
    """Also for those from before it was let in: behind its mark nobody would send them again."""
    take_none_of(worker.broker, of(*REFUSED))
    refuse_and_settle(worker, *REFUSED)
    first = REFUSED[0]
    worker.pipeline.opened({first: worker.view}, [], {})
    worker.take(first)
    with pytest.raises(UnavailableError, match="1 dead letters are not acknowledged"):
        worker.pipeline.flush_all()
    assert worker.flushed == []
    take_none_of(worker.broker, of(*REFUSED[1:]))


def test_a_flush_waits_for_dead_letters_of_no_table(worker: Worker) -> None:
    """Which table a message is for of which that is not known may yet turn out: after a restart with other
    settings, say."""
    worker.broker.waits = lambda _: True
    worker.pass_by(1)
    worker.take(SLOW)
    with pytest.raises(UnavailableError):
        worker.pipeline.flush_all()
    assert worker.flushed == []


def test_offsets_move_as_far_as_all_is_acknowledged(worker: Worker) -> None:
    """While dead letters come without an end, too: those that came later are not waited for."""
    take_none_of(worker.broker, of(*REFUSED))
    refuse_and_settle(worker, REFUSED[0])
    assert worker.pipeline.durable_offsets(SHORT_S) == {}
    refuse_and_settle(worker, REFUSED[1])
    assert worker.pipeline.durable_offsets(SHORT_S) == {}
    take_none_of(worker.broker, of(REFUSED[1], REFUSED[2]))
    refuse_and_settle(worker, REFUSED[2])
    assert worker.pipeline.durable_offsets(SHORT_S) == {0: 1}
    worker.pipeline.store({0: 1}, "")
    take_none_of(worker.broker, of(REFUSED[2]))
    assert worker.pipeline.durable_offsets(SHORT_S) == {}
    take_none_of(worker.broker, set())
    assert worker.pipeline.durable_offsets(SHORT_S) == {0: 3}
    worker.pipeline.store({0: 3}, "")
    assert worker.pipeline.durable_offsets(SHORT_S) == {}


def test_offsets_wait_for_parked_messages(worker: Worker) -> None:
    """The same of these, which have no table's marks to be behind."""
    worker.pipeline.park({SLOW: "0-parking"})
    worker.broker.waits = lambda headers: "firn.parked" in dict(headers)
    worker.take(SLOW)
    assert worker.pipeline.durable_offsets(SHORT_S) == {}
    worker.broker.waits = lambda _: False
    assert worker.pipeline.durable_offsets(SHORT_S) == {0: 1}
    assert worker.parked == [(0, SLOW.tenant.name, "0-parking")]


# ---- what waits for refused streams


@pytest.fixture
def slow(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Its dead letters take longer than there is for them between two flushes."""
    send = DeadLetters.send

    def slowly(letters: DeadLetters, *told: Any) -> None:
        worker.clock.s += 2 * DEAD_LETTERS_S
        send(letters, *told)

    monkeypatch.setattr(DeadLetters, "send", slowly)
    return worker


def test_others_are_flushed_between_the_dead_letters_of_refused_streams(slow: Worker) -> None:
    """Some of them each time; what comes for one that waits goes with it, and the offset stays."""
    slow.take(SLOW)
    refuse(slow, *REFUSED)
    assert dead(slow) == []
    slow.clock.s += 3 * 3_600.0
    slow.pipeline.flush_due()
    assert slow.flushed == [SLOW]
    slow.pipeline.settle([(SLOW, Outcome.DONE, slow.view)])
    assert slow.pipeline.durable_offsets(SHORT_S) == {0: 2}
    assert dead(slow) == [1]
    asked = list(slow.link.asked)
    slow.take(REFUSED[2])
    for _ in REFUSED:
        slow.pipeline.flush_due()
    assert slow.pipeline.durable_offsets(SHORT_S) == {0: 5}
    assert (dead(slow), slow.link.asked) == ([1, 2, 3, 4], asked)


def test_a_node_that_stops_makes_all_dead_letters(slow: Worker) -> None:
    """Else it would read them again."""
    refuse(slow, *REFUSED)
    slow.pipeline.flush_all()
    assert slow.pipeline.durable_offsets(SHORT_S) == {0: 3}
    assert dead(slow) == [0, 1, 2]


def test_a_stream_that_is_let_in_while_it_waits_is_written(slow: Worker) -> None:
    """Or parked, where it is there and takes no rows: each record goes one way."""
    refuse(slow, *REFUSED)
    slow.pipeline.flush_due()
    _, let_in, parked = REFUSED
    slow.pipeline.opened({let_in: slow.view}, [], {})
    slow.pipeline.park({parked: "0-parking"})
    slow.pipeline.flush_all()
    assert slow.flushed == [let_in]
    slow.pipeline.settle([(let_in, Outcome.DONE, slow.view)])
    assert slow.pipeline.durable_offsets(SHORT_S) == {0: 3}
    assert (dead(slow), [offset for offset, _, _ in slow.parked]) == ([0], [2])
