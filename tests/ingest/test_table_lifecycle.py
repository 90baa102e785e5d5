"""The life of a table in the main process, event by event: the state that follows, and what is to be done.

Whether that loses or doubles anything is tried by the protocol's model
(`tests/faults/model/protocol_model.py`).
"""

from dataclasses import replace

import pytest

from ingest.commit.table_events import (
    Answered,
    Ask,
    BecameKnown,
    BeginCheck,
    BeginLoad,
    Checked,
    Command,
    Commit,
    CommitTrouble,
    Compare,
    CreateTable,
    DrainEnded,
    Entered,
    Event,
    Failed,
    Flushed,
    Gather,
    GiveUp,
    Gone,
    HeldBy,
    Loaded,
    LoadTable,
    LoadTrouble,
    MayCreate,
    NotAnswered,
    ParkTable,
    Probe,
    RecordRead,
    RecordWritten,
    RequestKind,
    Sent,
    Settle,
    StartDrain,
    State,
    Submitted,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
    Took,
    Want,
)
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_parking import HOLD_MAX_S, TRIES_MAX
from ingest.commit.table_work import PROBE_FIRST_S
from ingest.model.link import Outcome, WrittenFlush
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause, Trouble
from lake.catalog_client import CommitStatus, TableName
from lake.commit import Prepared, TableState, new_table_state
from lake.marks import Marks, Range, TopicPartition
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("t"), "logs")
P0 = TopicPartition("topic", 0)
TROUBLE = Trouble(Cause.STORAGE, "its files cannot be written")
WORKERS = 2


def state(mark: int = 0, uuid: str = "u") -> TableState:
    """A table that has committed offsets up to a mark."""
    empty = new_table_state(TableName("t", "logs"), "t", "logs", "file:///warehouse")
    return replace(empty, exists=True, uuid=uuid, head=mark, marks=Marks({P0: mark}))


def flush(start: int, end: int, *, drain: int = 0) -> WrittenFlush:
    """One row per offset."""
    return WrittenFlush(TABLE, "u", {P0: Range(start, end)}, (), end - start, {}, drain)


class Life:
    """A life whose clock goes on by a second with every event."""

    def __init__(self) -> None:
        self.life, self.now_s = TableLifecycle(TABLE), 0.0

    def is_at(self, state: State) -> bool:
        """Whether this is where the table is."""
        return self.life.state is state

    def on(self, *events: Event) -> list[Command]:
        """What follows from these, in order."""
        commands: list[Command] = []
        for event in events:
            self.now_s += 1.0
            commands += self.life.on(event, self.now_s)[1]
        return commands

    def kinds(self, *events: Event) -> list[type]:
        """The same without what only people are told."""
        return [type(each) for each in self.on(*events) if not isinstance(each, Entered | GiveUp)]

    def known(self, mark: int = 0) -> "Life":
        """Loaded and checked."""
        self.on(Want())
        loading = self.life.loading
        assert loading is not None
        number = loading.number
        self.on(
            BeginLoad(),
            Loaded(number, state(mark)),
            BeginCheck(),
            Checked(number, self.life.record, live=True),
        )
        return self

    def committing(self, start: int, end: int, *, drain: int = 0) -> Prepared:
        """A flush is on its way to the catalog."""
        assert self.life.known is not None
        self.on(Submitted(Flushed(0, flush(start, end, drain=drain))), Gather())
        assert self.kinds(Compare(self.life.known.marks)) == [Commit]
        prepared = Prepared({}, (), end, state(end))
        self.on(Sent(prepared))
        return prepared

    def written(self) -> "Life":
        """The parked record's pending change is in the catalog."""
        (ask,) = [command for command in self.on(Tick()) if isinstance(command, Ask)]
        self.on(RecordWritten(ask.key, replace(ask.record, id=ask.record.id or "p"), 7))
        return self

    def parked(self) -> "Life":
        self.on(ParkTable(TROUBLE))
        return self.written()

    def draining(self) -> "Life":
        self.on(Probe())
        return self.known()


@pytest.fixture
def life() -> Life:
    return Life()


def test_a_table_is_known_when_it_was_loaded_and_checked(life: Life) -> None:
    """In this order, and no state is skipped."""
    assert life.is_at(State.UNKNOWN)
    assert life.kinds(Want(), BeginLoad()) == [LoadTable]
    assert life.is_at(State.LOADING)
    assert life.kinds(Loaded(1, state()), BeginCheck()) == []
    assert life.is_at(State.LOADING)
    assert life.kinds(Checked(1, None, live=True)) == [BecameKnown]
    assert life.is_at(State.LIVE)


def test_a_new_table_waits_until_it_may_be_created(life: Life) -> None:
    """And is checked once more when it is there."""
    life.on(Want(), BeginLoad(), Gone(1, dropped=False), BeginCheck(), Checked(1, None, live=True))
    assert life.is_at(State.POSTPONED)
    assert life.kinds(MayCreate()) == [CreateTable]
    assert life.kinds(Loaded(1, state()), BeginCheck(), Checked(1, None, live=True)) == [BecameKnown]


def test_what_was_loaded_before_a_table_was_parked_does_not_count(life: Life) -> None:
    """It may be from before a person decided about it."""
    life.on(Want(), BeginLoad())
    life.parked()
    assert life.kinds(Probe(), BeginLoad()) == [LoadTable]
    life.on(Loaded(1, state(5)), BeginCheck())
    assert life.kinds(Checked(1, life.life.record, live=True)) == []
    assert life.is_at(State.OPENING)


def test_marks_before_those_known_are_trouble(life: Life) -> None:
    """The catalog went back."""
    life.known(7)
    life.on(Want(), BeginLoad(), Loaded(2, state(5)), BeginCheck())
    (command,) = life.on(Checked(2, None, live=True))
    assert isinstance(command, LoadTrouble)
    assert (command.trouble.cause, command.trouble.expected.of(P0)) == (Cause.ROLLED_BACK, 7)


def test_a_commit_that_landed_settles_its_flush(life: Life) -> None:
    """The state after it is known without loading."""
    prepared = life.known().committing(0, 3)
    assert life.is_at(State.COMMITTING)
    took, settle = life.on(Answered(prepared, CommitStatus.COMMITTED))
    assert took == Took(3, prepared.after)
    assert isinstance(settle, Settle)
    assert settle.outcome is Outcome.DONE
    assert (life.life.state, life.life.current) == (State.LIVE, prepared.after)


@pytest.mark.parametrize(
    ("mark", "outcome"), [(3, Outcome.DONE), (2, Outcome.REDO)], ids=["committed", "partly committed"]
)
def test_what_is_there_already_is_not_committed(life: Life, mark: int, outcome: Outcome) -> None:
    """Before every attempt the flush is compared with the marks."""
    life.known(mark).on(Submitted(Flushed(0, flush(0, 3))), Gather())
    settled = [command for command in life.on(Compare(Marks({P0: mark}))) if isinstance(command, Settle)]
    assert [command.outcome for command in settled] == [outcome]
    assert life.is_at(State.LIVE)


def test_a_commit_of_unknown_outcome_is_loaded_for_and_sent_again_as_it_was(life: Life) -> None:
    """It is neither taken for done nor prepared anew while the head is the asserted one."""
    prepared = life.known().committing(0, 3)
    assert life.on(Answered(prepared, CommitStatus.UNKNOWN)) == []
    assert life.life.current is None
    life.known()
    assert life.kinds(Compare(Marks({P0: 0}))) == [Commit]
    assert life.life.job is not None
    assert life.life.job.sent is prepared


def test_a_late_answer_to_what_was_given_up_changes_nothing(life: Life) -> None:
    """The table was parked, and its records go another way."""
    prepared = life.known().committing(0, 3)
    life.parked()
    assert life.on(Answered(prepared, CommitStatus.COMMITTED)) == []
    assert life.is_at(State.PARKED)


def test_marks_behind_a_flush_are_trouble_and_nothing_is_sent(life: Life) -> None:
    """The table was moved back since the flush was cut."""
    life.known(5).on(Submitted(Flushed(0, flush(7, 9))), Gather())
    (command,) = life.on(Compare(Marks({P0: 5})))
    assert isinstance(command, CommitTrouble)
    assert command.trouble.cause is Cause.ROLLED_BACK


def test_the_way_through_parking(life: Life) -> None:
    """From the first trouble to the release; each order is given once, and answers to older ones do not
    count."""
    life.known()
    asks = [each for each in life.on(ParkTable(TROUBLE), Tick()) if isinstance(each, Ask)]
    assert asks == [Ask(RequestKind.PUT, life.life.parked.record, life.life.parked.key)]
    key = life.life.parked.key
    record = replace(life.life.parked.record, id="p")
    assert life.kinds(RecordWritten(key, record, 1)) == [TellParked]
    assert life.kinds(Probe(), BeginLoad()) == [LoadTable]
    life.on(Loaded(2, state()), BeginCheck())
    assert life.kinds(Checked(2, replace(record, version=1), live=True)) == [BecameKnown, StartDrain]
    assert life.is_at(State.DRAINING)
    assert life.kinds(DrainEnded(1, reached=10)) == [TellHold]
    assert life.kinds(HeldBy(0, WORKERS, 1), HeldBy(0, WORKERS, 2)) == []
    assert life.kinds(HeldBy(1, WORKERS, 2)) == [StartDrain]
    assert life.is_at(State.FINISHING)
    (ask,) = life.kinds(DrainEnded(3, reached=12), Tick())
    assert (ask, life.life.state) == (Ask, State.RELEASING)
    assert life.kinds(RecordWritten(life.life.parked.key, record, 0)) == [TellReleased]
    assert life.is_at(State.LIVE)


def test_a_parked_table_takes_only_what_is_drained(life: Life) -> None:
    """A flush that was cut before it was parked would be there twice."""
    life.known().parked().draining()
    life.on(Submitted(Flushed(0, flush(0, 3))))
    assert not life.life.has_flushes
    life.on(Submitted(Flushed(0, flush(0, 3, drain=life.life.parked.number))))
    assert life.life.has_flushes


def test_an_unanswered_change_of_the_record_is_repeated_as_it_was(life: Life) -> None:
    """With the same key, so that it happens once."""
    life.on(ParkTable(TROUBLE))
    (first,) = [command for command in life.on(Tick()) if isinstance(command, Ask)]
    begun = replace(first.record, id="p")
    life.on(NotAnswered(first.key, begun))
    life.now_s += 10.0
    assert life.on(Tick()) == [Ask(RequestKind.PUT, begun, first.key)]


def test_a_drain_that_keeps_failing_is_given_up(life: Life) -> None:
    """The table rests longer than before, and what was taken for known is loaded again."""
    life.known().parked().draining()
    life.on(*[Failed(TROUBLE)] * TRIES_MAX)
    assert (life.life.state, life.life.current) == (State.PARKED, None)
    assert not life.life.may_probe(life.now_s + PROBE_FIRST_S)
    assert life.life.may_probe(life.now_s + 2 * PROBE_FIRST_S)


def test_holding_ends_in_time(life: Life) -> None:
    """A worker that does not answer must not let the records of the table wait for ever."""
    life.known().parked().draining().on(DrainEnded(1, reached=10))
    assert life.is_at(State.HOLDING)
    life.now_s += HOLD_MAX_S
    assert life.kinds(Tick()) == [TellParked]


def test_what_a_person_decided_is_taken_up(life: Life) -> None:
    """What was known of the table is no measure any more."""
    life.known(7).parked()
    assert life.life.record is not None
    decided = replace(life.life.record, cause=Cause.RESOLVED, version=9)
    life.on(RecordRead(decided, life.now_s + 0.5))
    assert (life.life.state, life.life.known, life.life.record) == (State.PARKED, None, decided)


def test_a_record_that_is_older_than_what_was_written_is_no_news(life: Life) -> None:
    """It was read before the answer came."""
    life.known().parked()
    assert life.on(RecordRead(None, 0.5), RecordRead(ParkedRecord(TABLE, Cause.SLOW, version=3), 0.5)) == []
    assert life.is_at(State.PARKED)
