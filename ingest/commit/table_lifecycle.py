"""One life of a table, as the main process of a node lives it: what is to happen to it is decided here.

Pure: no clock, no I/O, no thread. `TableLifecycle.on(event, now)` takes what has happened and returns the
state and the commands that follow. Whoever runs it (`Parking`, and the protocol's model in `tests/faults`)
carries these out in order, and tells what comes of them as further events.

               ParkTable               written                Probe
    LIVE ---------------> WRITING ---------------> PARKED ---------------> OPENING
     ^                       ^                       ^                        | known
     |                       | moved back            | trouble, too late      v
     | removed               '-----------------------+------------------- DRAINING
     |                                               |                        | end reached
     |         drained                all hold       |                        v
    RELEASING <--------- FINISHING <-----------------+-------------------- HOLDING

    writing     the parked record is being put into the catalog; before the answer is known nothing happens
                to the table
    parked      every worker sends the table's messages to the parking topic; the table is tried again from
                time to time, or a person decides
    opening     its state is being loaded
    draining    a worker writes what is parked, up to what the topic holds
    holding     every worker has what it parked acknowledged, and lets the table's messages wait
    finishing   the rest is drained
    releasing   the parked record is being taken away; when that is known the table is live again, and what
                waited is its next flush

From opening on, anything that goes wrong leads back to parked. Why each rule is there, and a schedule that
loses or doubles a record without it: `tests/faults/protocol_world.py`, `protocol_script.py`.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple
from uuid import uuid4

from ingest.model.parked_record import REREAD, ParkedRecord
from ingest.model.trouble import FOR_A_PERSON, VERDICTS, Cause, Trouble
from lake.tenant import TableId

PROBE_FIRST_S, PROBE_MAX_S = 2.0, 60.0
# A table that fails again so soon after its release is tried again ever more seldom.
RELAPSE_S = 120.0
HOLD_MAX_S = 30.0
TRIES_MAX = 3
AGAIN_AFTER_S = 1.0


class State(Enum):
    """Where a table is in its life."""

    LIVE = "live"
    WRITING = "writing"
    PARKED = "parked"
    OPENING = "opening"
    DRAINING = "draining"
    HOLDING = "holding"
    FINISHING = "finishing"
    RELEASING = "releasing"


AT_WORK = frozenset({State.OPENING, State.DRAINING, State.HOLDING, State.FINISHING})
DRAINS = frozenset({State.DRAINING, State.FINISHING})


class RequestKind(Enum):
    """What is asked of the catalog about a table's parked record, until an answer is known."""

    PUT = "put"
    REMOVE = "remove"
    FIND = "find"


# ---- events


class ParkTable(NamedTuple):
    """It is certain that the table's trouble is its own."""

    trouble: Trouble


class Failed(NamedTuple):
    """A parked table could not be loaded, or what was drained of it not committed."""

    trouble: Trouble


class StateKnown(NamedTuple):
    """The table's state has been loaded and may be written to."""


class HeldBy(NamedTuple):
    """One of `workers` has all that it parked acknowledged, and lets the table's messages wait."""

    worker: int
    workers: int
    number: int


class DrainEnded(NamedTuple):
    """A worker has come to the end of what was parked, at `reached` in the parking topic; or, with `trouble`,
    could not go on."""

    number: int
    reached: int = 0
    trouble: Trouble | None = None


class Tick(NamedTuple):
    """Time goes on."""


class Probe(NamedTuple):
    """A parked table is to be tried again."""


class RecordRead(NamedTuple):
    """The parked record as the catalog has it; None: it has none. `read_s`: when reading it began."""

    record: ParkedRecord | None
    read_s: float


class RecordWritten(NamedTuple):
    """The answer to a PUT or REMOVE: the record as it was sent, and its version now; None where somebody else
    has changed it."""

    key: str
    record: ParkedRecord
    version: int | None


class RecordFound(NamedTuple):
    """The answer to a FIND."""

    key: str
    record: ParkedRecord | None


class NotAnswered(NamedTuple):
    """Nobody knows what became of a request; `record` as it was sent."""

    key: str
    record: ParkedRecord


Event = (
    ParkTable
    | Failed
    | StateKnown
    | HeldBy
    | DrainEnded
    | Tick
    | Probe
    | RecordRead
    | RecordWritten
    | RecordFound
    | NotAnswered
)

# ---- commands


class StopWork(NamedTuple):
    """Nothing is committed or loaded any more: forget its flushes and whatever is being loaded. `forget`:
    what was known of the table, too, for a person has decided how it goes on."""

    forget: bool = False


class Load(NamedTuple):
    """Have the table's state loaded; StateKnown or Failed tells."""


class Ask(NamedTuple):
    """Ask the catalog about the parked record; an identical request keeps its key."""

    kind: RequestKind
    record: ParkedRecord
    key: str


class TellParked(NamedTuple):
    """All workers: send the table's messages to the parking topic, under this parking."""

    id: str


class TellHold(NamedTuple):
    """All workers: have what was parked acknowledged, and let what comes wait; HeldBy answers."""

    number: int


class StartDrain(NamedTuple):
    """One worker: write what is parked, from `start` in the parking topic on; DrainEnded answers."""

    number: int
    record: ParkedRecord
    start: int
    reread: bool


class GiveUp(NamedTuple):
    """Say that the table does not take its records yet."""

    state: State
    trouble: Trouble


class StopDrain(NamedTuple):
    """That worker: the table is not to be drained any further for now."""


class TellReleased(NamedTuple):
    """All workers: the table takes rows again."""

    record: ParkedRecord


Command = StopWork | Load | Ask | TellParked | TellHold | StartDrain | StopDrain | GiveUp | TellReleased


@dataclass(slots=True)
class Parked:
    """What there is to know of a table that is parked.

    `told`: the id of the parking under which workers send its messages to the topic; empty where they do not.
    `request` is to be asked, and `asked` says that it is on its way; `key` stays the same while an identical
    change is repeated. `changed_s`: when the version of the record became known, so that older listings are
    told apart. `number`: of the hold or drain that goes on. `reached`: offset of the parking topic below
    which all is drained, once it is held.
    """

    record: ParkedRecord
    probe_after_s: float = PROBE_FIRST_S
    told: str = ""
    request: RequestKind | None = None
    asked: bool = False
    key: str = ""
    not_before_s: float = 0.0
    held: set[int] = field(default_factory=set)
    number: int = 0
    since_s: float = 0.0
    changed_s: float = 0.0
    tries: int = 0
    reached: int = 0

    def awaits(self, key: str) -> bool:
        """Whether the answer to this request is still to come."""
        return self.asked and self.key == key


class TableLifecycle:
    """The one entry of a table. Times are monotonic seconds."""

    def __init__(self, table: TableId) -> None:
        self.table = table
        self.state = State.LIVE
        self._parked: Parked | None = None
        self._orders = 0  # an answer to an order that was given up is told by its number
        # When the table was released last, and after how long it was to be tried again then.
        self._released_s, self._relapse_after_s = 0.0, 0.0
        self._commands: list[Command] = []
        self._now_s = 0.0

    def on(self, event: Event, now_s: float) -> tuple[State, list[Command]]:
        """Takes note of what has happened; returns the state after it, and what is to be done, in order."""
        self._commands, self._now_s = [], now_s
        if self._parked is None:
            self._on_live(event)
        else:
            self._on_parked(self._parked, event)
        return self.state, self._commands

    # ---- what others ask

    @property
    def is_parked(self) -> bool:
        """Whether its messages go another way than into the table."""
        return self._parked is not None

    @property
    def parked(self) -> Parked:
        """What is known of its parking; only where it is parked."""
        assert self._parked is not None
        return self._parked

    @property
    def record(self) -> ParkedRecord | None:
        """Its parked record, as it was read or written last; None where it is not parked."""
        parked = self._parked
        return None if parked is None else parked.record

    def accepts(self, drain: int) -> bool:
        """Whether a flush may be committed: one from the input (0) while the table is live, one of the drain
        that goes on, by its number, while it is parked."""
        if self._parked is None:
            return not drain
        return drain == self._parked.number and self.state in DRAINS

    def may_probe(self, now_s: float) -> bool:
        """Whether it is time to try a parked table again."""
        return self.state is State.PARKED and self.parked.not_before_s <= now_s and not self._awaits_person()

    # ---- what happens

    def _on_live(self, event: Event) -> None:
        match event:
            case ParkTable(trouble):
                record = ParkedRecord(self.table, trouble.cause, trouble.sentence, expected=trouble.expected)
                self._parked = Parked(record, self._after_relapse())
                self._put(self._parked)
            case RecordRead(ParkedRecord() as record, read_s) if self._released_s < read_s:
                self._parked = Parked(record)
                self._adopt(self._parked, record)

    def _on_parked(self, parked: Parked, event: Event) -> None:
        match event:
            case Failed(trouble) if self.state in AT_WORK:
                self._failed(parked, trouble)
            case StateKnown() if self.state is State.OPENING:
                self._drain(parked, State.DRAINING)
            case HeldBy(worker, workers, number) if self.state is State.HOLDING:
                if self._is_answer(parked, number):
                    parked.held.add(worker)
                    if self._all_hold(parked, workers):
                        self._all_held(parked)
            case DrainEnded(number, reached, trouble) if self.state in DRAINS:
                if self._is_answer(parked, number):
                    self._drained(parked, reached, trouble)
            case Tick():
                self._tick(parked)
            case Probe() if self.state is State.PARKED:
                self._enter(State.OPENING)
                parked.tries = 0
                self._commands.append(Load())
            case RecordRead(record, read_s) if parked.request is None and parked.changed_s < read_s:
                self._compare_records(parked, record)
            case RecordWritten(key, record, version) if parked.awaits(key):
                self._answered(parked, record, version)
            case RecordFound(key, record) if parked.awaits(key):
                self._found(parked, record)
            case NotAnswered(key, record) if parked.awaits(key):
                # The identical request again, until its fate is known.
                parked.asked, parked.record = False, record
                parked.not_before_s = self._now_s + AGAIN_AFTER_S

    def _tick(self, parked: Parked) -> None:
        if parked.request is not None:
            if not parked.asked and parked.not_before_s <= self._now_s:
                parked.asked = True
                self._commands.append(Ask(parked.request, parked.record, parked.key))
        elif self.state in (State.HOLDING, State.FINISHING) and self._now_s - parked.since_s > HOLD_MAX_S:
            self._back(parked, Trouble(Cause.FAILING, "what is left could not be drained in time"))

    # ---- the parked record

    def resume(self, record: ParkedRecord, now_s: float) -> None:
        """A record that was there when the node began, and that all workers begin with."""
        self._now_s = now_s
        self._parked = Parked(record, told=record.id)
        self._rest(self._parked, now=True)

    def _put(self, parked: Parked) -> None:
        """Has the record written; nothing is committed to the table any more."""
        self._stop_work()
        self._enter(State.WRITING)
        self._request(parked, RequestKind.PUT)

    def _request(self, parked: Parked, kind: RequestKind) -> None:
        parked.request, parked.asked, parked.key, parked.not_before_s = kind, False, self._new_key(), 0.0

    def _new_key(self) -> str:
        return str(uuid4())

    def _compare_records(self, parked: Parked, found: ParkedRecord | None) -> None:
        """Somebody else may have written it: the catalog, a person, a node before this one. Where somebody
        removed it by hand it is put back, for records wait."""
        if found is None:
            parked.record = replace(parked.record, version=0)
            self._put(parked)
        elif parked.record.version != found.version:
            self._adopt(parked, found)

    def _answered(self, parked: Parked, record: ParkedRecord, version: int | None) -> None:
        kind, parked.request, parked.asked = parked.request, None, False
        parked.changed_s = self._now_s
        parked.record = record if version is None else replace(record, version=version)
        if version is None:
            self._request(parked, RequestKind.FIND)
        elif kind is RequestKind.REMOVE:
            self._release(parked)
        else:
            self._rest(parked)

    def _found(self, parked: Parked, found: ParkedRecord | None) -> None:
        parked.request, parked.asked, parked.changed_s = None, False, self._now_s
        if found is not None:
            self._adopt(parked, found)
        elif self.state is State.RELEASING:
            self._release(parked)
        else:
            parked.record = replace(parked.record, version=0)
            self._put(parked)

    def _adopt(self, parked: Parked, found: ParkedRecord) -> None:
        """Takes over what somebody else has written."""
        self._stop_work(forget=self._is_decided(found))
        parked.record, parked.changed_s = found, self._now_s
        if found.id:
            parked.probe_after_s = PROBE_FIRST_S
            self._rest(parked, now=True)
        else:
            self._put(parked)

    # ---- from state to state

    def _enter(self, state: State) -> None:
        self.state = state
        if self._parked is not None:
            self._parked.since_s = self._now_s

    def _rest(self, parked: Parked, *, now: bool = False) -> None:
        """Parked from here on, until it is tried again."""
        if parked.told != parked.record.id:
            self._commands.append(TellParked(parked.record.id))
        parked.told = parked.record.id
        parked.not_before_s = self._now_s + (0.0 if now else parked.probe_after_s)
        self._enter(State.PARKED)

    def _failed(self, parked: Parked, trouble: Trouble) -> None:
        parked.tries += 1
        if trouble.cause in VERDICTS or self.state is State.OPENING or parked.tries >= TRIES_MAX:
            self._back(parked, trouble)

    def _back(self, parked: Parked, trouble: Trouble) -> None:
        """The table does not take its records yet."""
        self._commands.append(GiveUp(self.state, trouble))
        parked.probe_after_s = min(PROBE_MAX_S, parked.probe_after_s * 2)
        if self._is_for_a_person(trouble):
            expected = parked.record.expected.joined(trouble.expected)
            parked.record = replace(
                parked.record, cause=trouble.cause, sentence=trouble.sentence, expected=expected
            )
            self._put(parked)
        else:
            self._stop_work()
            self._rest(parked)

    def _stop_work(self, *, forget: bool = False) -> None:
        self._commands.append(StopWork(forget))
        if self.state in DRAINS:
            self._commands.append(StopDrain())

    def _next_number(self, parked: Parked) -> int:
        self._orders += 1
        parked.number = self._orders
        return parked.number

    def _drain(self, parked: Parked, state: State) -> None:
        """Live records wait while the drain is finished: it goes on where the one before has ended."""
        record = parked.record
        self._enter(state)
        parked.tries = 0
        start, reread = (
            (record.start, record.resolution == REREAD)
            if state is State.DRAINING
            else (parked.reached, False)
        )
        self._commands.append(StartDrain(self._next_number(parked), record, start, reread))

    def _drained(self, parked: Parked, reached: int, trouble: Trouble | None) -> None:
        if trouble is not None:
            self._back(parked, trouble)
        elif self.state is State.DRAINING:
            parked.reached, parked.told = reached, ""
            parked.held.clear()
            self._enter(State.HOLDING)
            self._commands.append(TellHold(self._next_number(parked)))
        else:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        self._enter(State.RELEASING)
        self._request(parked, RequestKind.REMOVE)

    def _release(self, parked: Parked) -> None:
        self._parked, self.state = None, State.LIVE
        self._released_s, self._relapse_after_s = self._now_s, parked.probe_after_s
        self._commands.append(TellReleased(parked.record))

    def _after_relapse(self) -> float:
        """How long a table rests that is parked now: longer where it was released a moment ago."""
        released_s, self._released_s = self._released_s, 0.0
        if released_s and self._now_s - released_s < RELAPSE_S:
            return min(PROBE_MAX_S, 2 * self._relapse_after_s)
        return PROBE_FIRST_S

    # ---- rules, each a method of its own: the protocol's model leaves them out in turn

    def _is_answer(self, parked: Parked, number: int) -> bool:
        """An answer to an order that was given up does not count."""
        return number == parked.number

    def _all_hold(self, parked: Parked, workers: int) -> bool:
        return len(parked.held) == workers

    def _all_held(self, parked: Parked) -> None:
        """What was parked while the drain went on is drained once more, while live records wait."""
        self._drain(parked, State.FINISHING)

    def _is_for_a_person(self, trouble: Trouble) -> bool:
        """A table that was moved back waits for a person."""
        return trouble.cause in FOR_A_PERSON

    def _awaits_person(self) -> bool:
        return self.parked.record.awaits_person

    def _is_decided(self, found: ParkedRecord) -> bool:
        """Once a person has decided, what was known is no measure any more of what there should be."""
        return found.cause is Cause.RESOLVED
