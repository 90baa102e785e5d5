"""One life of a table, as the main process of a node lives it: what is to happen to it is decided here.

Pure: no clock, no I/O, no thread. `TableLifecycle.on(event, now)` takes what has happened and returns the
state and the commands that follow (`table_events.py`). Whoever runs it (`TableStates`, `Committer`,
`Parking`, and the protocol's model in `tests/faults`) carries these out in order, and tells what comes of
them as further events.

    UNKNOWN --> LOADING --> LIVE <--> COMMITTING     a table that takes rows; from each of these it may be
                   ^---> POSTPONED                   parked

What was loaded counts as known only after two more questions (`table_states.py` says why). Before every
attempt to commit its flushes are compared with the marks, and outcomes are never guessed (`committer.py` has
the table).

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
loses or doubles a record without it: `tests/faults/model/protocol_rules.py`, `protocol_schedules.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import uuid4

from ingest.commit.promised_columns import PromisedColumns
from ingest.commit.table_events import (
    AT_WORK,
    DRAINS,
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
    LoadFailed,
    LoadTable,
    LoadTrouble,
    MayCreate,
    NotAnswered,
    NotChecked,
    NoteAhead,
    Outdated,
    ParkTable,
    Probe,
    RecordFound,
    RecordRead,
    RecordWritten,
    RequestKind,
    Sent,
    Settle,
    StartDrain,
    State,
    StopDrain,
    Submitted,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
    Took,
    Want,
)
from ingest.model.link import Outcome, WrittenFlush
from ingest.model.parked_record import REREAD, ParkedRecord
from ingest.model.trouble import FOR_A_PERSON, VERDICTS, Cause, Trouble
from lake.backoff import Backoff
from lake.catalog_client import CommitStatus
from lake.commit import Prepared, TableState
from lake.marks import Marks, Range, TopicPartition, Verdict
from lake.tenant import TableId

LOAD_RETRIES, COMMIT_RETRIES = Backoff(0.4, 5.0), Backoff(0.2, 5.0)
PROBE_FIRST_S, PROBE_MAX_S = 2.0, 60.0
# A table that fails again so soon after its release is tried again ever more seldom.
RELAPSE_S = 120.0
HOLD_MAX_S = 30.0
TRIES_MAX = 3
AGAIN_AFTER_S = 1.0


class LoadStep(Enum):
    """How far a table is that is to be known."""

    DUE = "due"  # to be loaded, once it is time
    ASKED = "asked"  # being loaded, or created
    LOADED = "loaded"  # the lease and the parked records are to be asked
    CHECKING = "checking"  # and are
    POSTPONED = "postponed"  # it does not exist, and may not be created yet


@dataclass(slots=True)
class Loading:
    """The way of a table to being known. `number`: what comes of a way that was given up does not count."""

    number: int
    step: LoadStep = LoadStep.DUE
    found: TableState | None = None
    not_before_s: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class Job:
    """The flushes of all workers for one table, merged into one commit; `sent` is out or of unknown
    outcome."""

    flushes: list[Flushed]
    sent: Prepared | None = None
    sent_on: TableState | None = None
    in_air: bool = False
    not_before_s: float = 0.0
    tries: int = 0

    @property
    def ranges(self) -> Mapping[TopicPartition, Range]:
        """The offsets it covers."""
        return {p: r for flushed in self.flushes for p, r in flushed.flush.ranges.items()}

    @property
    def rows(self) -> int:
        """How many rows it brings."""
        return sum(flushed.flush.rows for flushed in self.flushes)


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
    stage: State = State.WRITING
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
    """The one entry of a table. Times are monotonic seconds.

    `known`: its state, as it was when it was last known; `is_fresh`: nobody is known to have changed it
    since. `asked_by`: workers that are told when it is known. `told_postponed`: all were told that it waits
    for its creation.
    """

    def __init__(self, table: TableId) -> None:
        self.table = table
        self.known: TableState | None = None
        self.is_fresh = False
        self.columns = PromisedColumns()
        self.loading: Loading | None = None
        self.waiting: list[Flushed] = []
        self.job: Job | None = None
        self.asked_by: set[int] = set()
        self.told_postponed = False
        self._parked: Parked | None = None
        self._loads = self._orders = 0  # an answer to what was given up is told by its number
        # When the table was released last, and after how long it was to be tried again then.
        self._released_s, self._relapse_after_s = 0.0, 0.0
        self._commands: list[Command] = []
        self._now_s = 0.0

    def on(self, event: Event, now_s: float) -> tuple[State, list[Command]]:
        """Takes note of what has happened; returns the state after it, and what is to be done, in order."""
        self._commands, self._now_s = [], now_s
        if isinstance(event, _LOADING_EVENTS):
            self._on_loading(event)
        elif isinstance(event, _COMMIT_EVENTS):
            self._on_commit(event)
        elif self._parked is None:
            self._on_live(event)
        else:
            self._on_parked(self._parked, event)
        return self.state, self._commands

    # ---- what others ask

    @property
    def state(self) -> State:
        """Where the table is now."""
        if self._parked is not None:
            return self._parked.stage
        if self.has_flushes:
            return State.COMMITTING
        if self.is_fresh:
            return State.LIVE
        if self.loading is None:
            return State.UNKNOWN
        return State.POSTPONED if self.loading.step is LoadStep.POSTPONED else State.LOADING

    @property
    def current(self) -> TableState | None:
        """The state to commit to; None where it has to be loaded first."""
        return self.known if self.is_fresh else None

    @property
    def has_flushes(self) -> bool:
        """Whether flushes of it are between a worker's `Submit` and their settlement."""
        return self.job is not None or bool(self.waiting)

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

    def is_at(self, step: LoadStep) -> bool:
        """Whether it is so far on its way to being known."""
        return self.loading is not None and self.loading.step is step

    def may_load(self, now_s: float) -> bool:
        """Whether it is time to load it."""
        loading = self.loading
        return loading is not None and loading.step is LoadStep.DUE and loading.not_before_s <= now_s

    def may_compare(self, now_s: float) -> bool:
        """Whether it is time for an attempt to commit."""
        return self.job is not None and not self.job.in_air and self.job.not_before_s <= now_s

    def may_probe(self, now_s: float) -> bool:
        """Whether it is time to try a parked table again."""
        parked = self._parked
        return (
            parked is not None
            and parked.stage is State.PARKED
            and parked.not_before_s <= now_s
            and not self._awaits_person(parked.record)
        )

    # ---- loading

    def _on_loading(self, event: Event) -> None:
        match event:
            case Want():
                self._want()
            case Outdated():
                self.is_fresh = False
            case _:
                if self.loading is not None:  # else nobody wants to know any more
                    self._on_way(self.loading, event)

    def _on_way(self, loading: Loading, event: Event) -> None:
        match event:
            case BeginLoad() if loading.step is LoadStep.DUE:
                loading.step = LoadStep.ASKED
                self._commands.append(LoadTable(loading.number, self.known))
            case MayCreate() if loading.step is LoadStep.POSTPONED:
                loading.step = LoadStep.ASKED
                self._commands.append(CreateTable(loading.number))
            case BeginCheck() if loading.step is LoadStep.LOADED:
                loading.step = LoadStep.CHECKING
            case Loaded(number, state) if number == loading.number:
                self._loaded(loading, state)
            case Gone(number, dropped) if number == loading.number:
                self._gone(loading, dropped)
            case LoadFailed(number, trouble) if number == loading.number:
                self._load_failed(loading, trouble)
            case NotChecked(number) if number == loading.number:
                loading.step = LoadStep.LOADED
            case Checked(number, record, live) if number == loading.number:
                self._checked(loading, record, live)

    def _want(self) -> None:
        if self.loading is None:
            self._loads += 1
            self.loading = Loading(self._loads)

    def _loaded(self, loading: Loading, state: TableState) -> None:
        if self._is_moved_back(state):
            self._load_failed(loading, moved_back(state))
        else:
            loading.step, loading.found = LoadStep.LOADED, state

    def _gone(self, loading: Loading, dropped: bool) -> None:
        if not dropped and self._has_vanished():
            sentence = (
                f"table {self.table} is gone without having been dropped: the catalog's database went back, "
                "or somebody renamed the table"
            )
            self._load_failed(loading, Trouble(Cause.ROLLED_BACK, sentence))
        else:
            loading.step, loading.found = LoadStep.LOADED, None

    def _checked(self, loading: Loading, record: ParkedRecord | None, live: bool) -> None:
        """The two questions about what was loaded before they were asked."""
        if record is not None and self._awaits_person(record):
            sentence = f"table {self.table} was moved back to an earlier state"
            self._load_failed(loading, Trouble(Cause.ROLLED_BACK, sentence))
        elif live and record is not None and self._is_news(record):
            self._load_later(loading)
        elif live and (lost := self._lost(loading.found)) is not None:
            self._load_failed(loading, lost)
        else:
            self._take(loading)

    def _take(self, loading: Loading) -> None:
        state, before = loading.found, self.known
        if state is None and before is not None and not before.exists:
            state = before  # keeps the uuid and location that its files were written for
        if state is None:
            loading.step = LoadStep.POSTPONED
            return
        self.loading, self.known, self.is_fresh = None, state, True
        self.columns.loaded(state)
        self._commands.append(BecameKnown(state))
        if self._parked is not None and self._parked.stage is State.OPENING:
            self._drain(self._parked, State.DRAINING)

    def _load_failed(self, loading: Loading, trouble: Trouble) -> None:
        self._load_later(loading)
        if self._parked is None:
            self._commands.append(LoadTrouble(trouble))
        else:
            self._failed(self._parked, trouble)

    def _load_later(self, loading: Loading) -> None:
        loading.step, loading.found = LoadStep.DUE, None
        loading.tries += 1
        loading.not_before_s = self._now_s + LOAD_RETRIES.delay_s(loading.tries)

    # ---- commits

    def _on_commit(self, event: Event) -> None:
        match event:
            case Submitted(flushed):
                if self._accepts(flushed.flush.drain):
                    self.waiting.append(flushed)
            case Gather():
                if self.job is None and self.waiting:
                    self.job, self.waiting = Job(self.waiting), []
            case _:
                # Without a job its records go another way; what is in the air may still land, and the marks
                # will tell.
                if self.job is not None:
                    self._on_job(self.job, event)

    def _on_job(self, job: Job, event: Event) -> None:
        match event:
            case Compare(marks):
                self._compare(job, marks)
            case Sent(prepared):
                if job.sent is not prepared:
                    job.sent, job.sent_on = prepared, self.known
                job.in_air = True
            case Answered() if job.in_air and job.sent is event.prepared:
                job.in_air = False
                self._answered_commit(job, event)

    def _accepts(self, drain: int) -> bool:
        """Whether a flush may be committed: one from the input (0) while the table is live, one of the drain
        that goes on, by its number, while it is parked."""
        if self._parked is None:
            return not drain
        return drain == self._parked.number and self._parked.stage in DRAINS

    def _compare(self, job: Job, marks: Marks) -> None:
        """What is committed or has to be written again leaves the job."""
        known = self.known
        assert known is not None
        if job.sent is not None:
            if job.sent.after.uuid == known.uuid and self._is_there(job, marks):
                self._done(job)
                return
            if job.sent_on is not None and (job.sent_on.head, job.sent_on.exists) == (
                known.head,
                known.exists,
            ):
                self._commands.append(Commit())  # the identical request again
                return
            job.sent = None
        for flushed in list(job.flushes):
            verdict = self._verdict(flushed.flush, known, marks)
            if isinstance(verdict, Trouble):
                self._commit_later(job)
                self._commit_failed(verdict)
                return
            if verdict is not None:
                self._settle(job, [flushed], verdict)
        if job.flushes:
            self._commands.append(Commit())

    def _verdict(self, flush: WrittenFlush, known: TableState, marks: Marks) -> Outcome | Trouble | None:
        """None: commit it as it is."""
        if flush.uuid != known.uuid:
            return Outcome.REDO  # dropped and created again meanwhile
        verdict = marks.compare(flush.ranges)
        if verdict is Verdict.COMMITTED:
            return Outcome.DONE
        if verdict is Verdict.BEHIND:
            lost = Marks({partition: start for partition, (start, _) in flush.ranges.items()})
            sentence = f"{moved_back(known).sentence}; this node had written up to {lost.to_property()}"
            return Trouble(Cause.ROLLED_BACK, sentence, lost)
        if verdict is Verdict.AHEAD:
            self._commands.append(NoteAhead(known))
            return Outcome.REDO
        return None if self.columns.stand(known, flush.new) else Outcome.REDO

    def _answered_commit(self, job: Job, answer: Answered) -> None:
        status = answer.status
        if status is CommitStatus.COMMITTED:
            assert job.sent is not None
            self.learn(job.sent.after)
            self._done(job, job.sent.after)
            return
        if answer.buries:
            self._settle(job, job.flushes, Outcome.DEAD_LETTER)
            return
        self.is_fresh = False
        if status is not CommitStatus.UNKNOWN:
            job.sent = None
        if status is not CommitStatus.CONFLICT:
            self._commit_later(job)
            if answer.trouble is not None and answer.parks:
                self._commit_failed(answer.trouble)
        elif job.sent_on is not None and not job.sent_on.exists:
            self._commit_later(job)
            if job.tries > 1:  # who was faster would have been found by now
                self._commit_failed(Trouble(Cause.REFUSED, answer.message))

    def learn(self, state: TableState) -> None:
        """The state after a commit of one's own that was acknowledged."""
        self.known, self.is_fresh = state, True
        self.columns.committed(state)

    def _done(self, job: Job, after: TableState | None = None) -> None:
        self._commands.append(Took(job.rows, after))
        self._settle(job, job.flushes, Outcome.DONE)

    def _settle(self, job: Job, flushes: list[Flushed], outcome: Outcome) -> None:
        self._commands.append(Settle(flushes, outcome))
        job.flushes = [flushed for flushed in job.flushes if flushed not in flushes]
        if not job.flushes:
            self.job = None

    def _commit_later(self, job: Job) -> None:
        job.tries += 1
        job.not_before_s = self._now_s + COMMIT_RETRIES.delay_s(job.tries)

    def _commit_failed(self, trouble: Trouble) -> None:
        if self._parked is None:
            self._commands.append(CommitTrouble(trouble))
        else:
            self._failed(self._parked, trouble)

    # ---- parking

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

    # ---- rules, each a method of its own: the protocol's model leaves them out in turn

    def _is_moved_back(self, state: TableState) -> bool:
        """Marks beyond those of the head mean that the table was moved back."""
        return state.moved_back

    def _has_vanished(self) -> bool:
        """A table that is gone without having been dropped went back, too."""
        return self.known is not None and self.known.exists

    def _is_news(self, record: ParkedRecord) -> bool:
        """Whether somebody has changed the parked record since the node read it: a person, perhaps, who has
        rows read again that others must not overtake.

        Where the node knows of none, one with an id is its own and on its way out, or was when the question
        was asked.
        """
        return not record.id if self.record is None else record.version != self.record.version

    def _lost(self, state: TableState | None) -> Trouble | None:
        """What is wrong where the marks are not as far any more as this node knows that they were."""
        before = self.known
        if (
            state is None
            or before is None
            or before.uuid != state.uuid
            or not before.marks.exceeds(state.marks)
        ):
            return None
        knew = before.marks.to_property()
        sentence = f"{moved_back(state).sentence}; this node knew of rows up to {knew}"
        return Trouble(Cause.ROLLED_BACK, sentence, before.marks)

    def _is_there(self, job: Job, marks: Marks) -> bool:
        """Whether a commit of unknown outcome has landed, as the marks say."""
        return marks.compare(job.ranges) is Verdict.COMMITTED

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

    def _awaits_person(self, record: ParkedRecord) -> bool:
        return record.awaits_person

    def _is_decided(self, found: ParkedRecord) -> bool:
        """Once a person has decided, what was known is no measure any more of what there should be."""
        return found.cause is Cause.RESOLVED


_LOADING_EVENTS = (
    Want,
    BeginLoad,
    Loaded,
    Gone,
    LoadFailed,
    BeginCheck,
    NotChecked,
    Checked,
    MayCreate,
    Outdated,
)
_COMMIT_EVENTS = (Submitted, Gather, Compare, Sent, Answered)


def moved_back(state: TableState) -> Trouble:
    """What is said of a table whose head is older than its marks."""
    head = state.head_marks.to_property() if state.head_marks is not None else "none"
    return Trouble(
        Cause.ROLLED_BACK,
        f"table {state.name} was moved back: its marks are {state.marks.to_property()}, those of its "
        f"snapshot {head}",
    )
