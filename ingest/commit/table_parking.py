"""The parking of a table: what follows from the events of one that is parked, or is to be."""

from dataclasses import replace
from uuid import uuid4

from ingest.commit.promised_columns import PromisedColumns
from ingest.commit.table_entry import TableEntry
from ingest.commit.table_events import (
    AT_WORK,
    DRAINS,
    Ask,
    DrainEnded,
    Entered,
    Event,
    Failed,
    GiveUp,
    HeldBy,
    NotAnswered,
    ParkTable,
    Probe,
    RecordFound,
    RecordRead,
    RecordWritten,
    RequestKind,
    StartDrain,
    State,
    StopDrain,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
)
from ingest.commit.table_work import PROBE_FIRST_S, Parked
from ingest.model.parked_record import REREAD, ParkedRecord
from ingest.model.trouble import FOR_A_PERSON, VERDICTS, Cause, Trouble

PROBE_MAX_S = 60.0
# A table that fails again so soon after its release is tried again ever more seldom.
RELAPSE_S = 120.0
HOLD_MAX_S = 30.0
TRIES_MAX = 3
AGAIN_AFTER_S = 1.0


class TableParking(TableEntry):
    """How a parked table goes on."""

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
            case Failed(trouble):
                self._failed(parked, trouble)
            case HeldBy(worker, workers, number) if parked.stage is State.HOLDING:
                self._held(parked, worker, workers, number)
            case DrainEnded(number, reached, trouble) if parked.stage in DRAINS:
                if self._is_answer(parked, number):
                    self._drained(parked, reached, trouble)
            case Tick():
                self._tick(parked)
            case Probe() if parked.stage is State.PARKED:
                self._probe(parked)
            case _:
                self._on_record(parked, event)

    def _on_record(self, parked: Parked, event: Event) -> None:
        match event:
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

    def _probe(self, parked: Parked) -> None:
        self._enter(parked, State.OPENING)
        parked.tries = 0
        self.is_fresh = False
        self._want()

    def _held(self, parked: Parked, worker: int, workers: int, number: int) -> None:
        if self._is_answer(parked, number):
            parked.held.add(worker)
            if self._all_hold(parked, workers):
                self._all_held(parked)

    def _tick(self, parked: Parked) -> None:
        if parked.request is not None:
            if not parked.asked and parked.not_before_s <= self._now_s:
                parked.asked = True
                self._commands.append(Ask(parked.request, parked.record, parked.key))
        elif parked.stage in (State.HOLDING, State.FINISHING) and self._now_s - parked.since_s > HOLD_MAX_S:
            self._back(parked, Trouble(Cause.FAILING, "what is left could not be drained in time"))

    # ---- the parked record

    def resume(self, record: ParkedRecord, now_s: float) -> None:
        """Begins with a table that is parked, as all workers do."""
        self._commands, self._now_s = [], now_s
        self._parked = Parked(record, told=record.id)
        self._rest(self._parked, now=True)

    def _put(self, parked: Parked) -> None:
        """Has the record written; nothing is committed to the table any more."""
        self._stop_work(parked)
        self._enter(parked, State.WRITING)
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
        elif parked.stage is State.RELEASING:
            self._release(parked)
        else:
            parked.record = replace(parked.record, version=0)
            self._put(parked)

    def _adopt(self, parked: Parked, found: ParkedRecord) -> None:
        """Takes over what somebody else has written."""
        self._stop_work(parked, forget=self._is_decided(found))
        parked.record, parked.changed_s = found, self._now_s
        if found.id:
            parked.probe_after_s = PROBE_FIRST_S
            self._rest(parked, now=True)
        else:
            self._put(parked)

    # ---- from state to state

    def _enter(self, parked: Parked, stage: State) -> None:
        parked.stage, parked.since_s = stage, self._now_s
        self._commands.append(Entered(stage))

    def _rest(self, parked: Parked, *, now: bool = False) -> None:
        """Parked from here on, until it is tried again."""
        if parked.told != parked.record.id:
            self._commands.append(TellParked(parked.record.id))
        parked.told = parked.record.id
        parked.not_before_s = self._now_s + (0.0 if now else parked.probe_after_s)
        self._enter(parked, State.PARKED)

    def _failed(self, parked: Parked, trouble: Trouble) -> None:
        """The table could not be loaded, or what was drained of it not be written or committed."""
        if parked.stage not in AT_WORK:
            return
        parked.tries += 1
        if trouble.cause in VERDICTS or parked.stage is State.OPENING or parked.tries >= TRIES_MAX:
            self._back(parked, trouble)

    def _back(self, parked: Parked, trouble: Trouble) -> None:
        """The table does not take its records yet."""
        self._commands.append(GiveUp(parked.stage, trouble))
        parked.probe_after_s = min(PROBE_MAX_S, parked.probe_after_s * 2)
        if self._is_for_a_person(trouble):
            expected = parked.record.expected.joined(trouble.expected)
            parked.record = replace(
                parked.record, cause=trouble.cause, sentence=trouble.sentence, expected=expected
            )
            self._put(parked)
        else:
            self._stop_work(parked)
            self._rest(parked)

    def _stop_work(self, parked: Parked, *, forget: bool = False) -> None:
        """Nothing is committed or loaded any more; the records of its flushes go another way. `forget`: what
        was known of the table goes, too."""
        self.job, self.waiting = None, []
        self.loading, self.is_fresh = None, False
        self.told_postponed = False
        self.asked_by.clear()
        if forget:
            self.known = None
            self.columns = PromisedColumns()
        if parked.stage in DRAINS:
            self._commands.append(StopDrain())

    def _next_number(self, parked: Parked) -> int:
        self._orders += 1
        parked.number = self._orders
        return parked.number

    def _drain(self, parked: Parked, state: State) -> None:
        """Live records wait while the drain is finished: it goes on where the one before has ended."""
        record = parked.record
        self._enter(parked, state)
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
        elif parked.stage is State.DRAINING:
            parked.reached, parked.told = reached, ""
            parked.held.clear()
            self._enter(parked, State.HOLDING)
            self._commands.append(TellHold(self._next_number(parked)))
        else:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        self._enter(parked, State.RELEASING)
        self._request(parked, RequestKind.REMOVE)

    def _release(self, parked: Parked) -> None:
        self._parked = None
        self._released_s, self._relapse_after_s = self._now_s, parked.probe_after_s
        self._commands.append(TellReleased(parked.record))

    def _after_relapse(self) -> float:
        """How long a table rests that is parked now: longer where it was released a moment ago."""
        released_s, self._released_s = self._released_s, 0.0
        if released_s and self._now_s - released_s < RELAPSE_S:
            return min(PROBE_MAX_S, 2 * self._relapse_after_s)
        return PROBE_FIRST_S

    # ---- rules

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

    def _is_decided(self, found: ParkedRecord) -> bool:
        """Once a person has decided, what was known is no measure any more of what there should be."""
        return found.cause is Cause.RESOLVED
