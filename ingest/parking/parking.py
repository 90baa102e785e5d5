"""The parked tables of a node, from the first trouble to the last drained record. Runs in the main process;
nothing here blocks.

What becomes of a table its `TableLifecycle` decides. Here is what that takes: requests to the catalog in
threads, messages to the workers, and which table is tried next.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4
from zlib import crc32

import structlog

from ingest.commit.table_lifecycle import (
    AT_WORK,
    Ask,
    Command,
    DrainEnded,
    Event,
    Failed,
    GiveUp,
    HeldBy,
    Load,
    NotAnswered,
    ParkTable,
    Probe,
    RecordFound,
    RecordRead,
    RecordWritten,
    RequestKind,
    StartDrain,
    State,
    StateKnown,
    StopDrain,
    StopWork,
    TableLifecycle,
    TellHold,
    TellParked,
    TellReleased,
    Tick,
)
from ingest.commit.table_states import TableStates
from ingest.model.fault_point import reach
from ingest.model.link import Drain, Drained, Held, Hold, Park, Release, StopDraining, ToWorker, WrittenFlush
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause, Trouble
from lake import metrics
from lake.clock import Clock
from lake.errors import RetryableError, UnavailableError
from lake.tenant import TableId

DRAINS_AT_ONCE = 4
LIST_EVERY_S = 2.0
log = structlog.get_logger()


@dataclass
class Parking:
    """`tell(worker, message)`: worker None means all. `begins(table)`: the topic's id, partition and offset
    where a table would be parked now; it blocks, so it is called in a thread."""

    records: ParkedRecords
    states: TableStates
    pool: Executor
    clock: Clock
    workers: int
    lease: str
    tell: Callable[[int | None, ToWorker], None]
    forget_flushes: Callable[[TableId], None]
    begins: Callable[[TableId], tuple[str, int, int]]
    _lives: dict[TableId, TableLifecycle] = field(default_factory=dict)
    _parked: dict[TableId, TableLifecycle] = field(default_factory=dict)  # those of them that are parked
    _answers: dict[Future[Any], tuple[TableLifecycle, Ask]] = field(default_factory=dict)
    _listing: tuple[float, Future[dict[TableId, ParkedRecord]]] | None = None
    _listed_s: float = 0.0

    def load(self) -> Mapping[TableId, str]:
        """Reads what is parked, before anything is routed; table -> id of its parking. Blocks. Raises
        UnavailableError."""
        for record in self.records.all().values():
            if not record.id:  # the catalog parked it, and no node has taken that up
                record = self._begun(record)
                version = self.records.write(record, lease=self.lease, key=str(uuid4()))
                if version is None:
                    raise UnavailableError(
                        f"the parked record of {record.table} was changed at the same time; the node starts "
                        "again"
                    )
                record = replace(record, version=version)
            life = self._parked[record.table] = self._life(record.table)
            life.resume(record, self.clock.monotonic_s())
        self._measure()
        return {table: life.parked.record.id for table, life in self._parked.items()}

    # ---- what others ask and tell

    def __contains__(self, table: TableId) -> bool:
        return table in self._parked

    def version(self, table: TableId) -> int | None:
        """The version of a parked table's record, as it was read or written last."""
        life = self._parked.get(table)
        return None if life is None or life.record is None else life.record.version

    def accepts(self, flush: WrittenFlush) -> bool:
        """Whether a flush may be committed: one from the input while the table is live, one of the drain that
        goes on while it is parked."""
        return self._life(flush.table).accepts(flush.drain)

    def park(self, table: TableId, trouble: Trouble) -> None:
        """Begins to park a table that is live."""
        life = self._life(table)
        if not life.is_parked:
            log.error("table.parks", table=str(table), reason=trouble.cause.value, sentence=trouble.sentence)
            self._on(life, ParkTable(trouble))

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """A parked table could not be loaded, or what was drained of it not committed."""
        self._on(self._life(table), Failed(trouble))

    def known(self, tables: Iterable[TableId]) -> None:
        """States that have been loaded: what waited for them is drained."""
        for table in tables:
            if (life := self._parked.get(table)) is not None:
                self._on(life, StateKnown())

    def drained(self, message: Drained) -> None:
        """A worker has come to the end of what was parked, or could not go on."""
        self._on(self._life(message.table), DrainEnded(message.number, message.reached, message.trouble))

    def held(self, worker: int, message: Held) -> None:
        """A worker lets the table's messages wait, and all it has parked of them is acknowledged."""
        self._on(self._life(message.table), HeldBy(worker, self.workers, message.number))

    def status(self) -> list[dict[str, Any]]:
        """What is parked, for people."""
        return [
            {
                "table": str(record.table),
                "reason": record.cause.value,
                "since": record.since,
                "stage": life.state.value,
                "sentence": record.sentence,
            }
            for life in list(self._parked.values())  # asked for by another thread
            if (record := life.record) is not None
        ]

    # ---- as time goes on

    def step(self, *, stopping: bool = False) -> None:
        """Takes in answers of the catalog, tries again what is due. Raises RefusedError where the node's
        lease is lost."""
        for future in [future for future in self._answers if future.done()]:
            self._take_answer(*self._answers.pop(future), future)
        now_s = self.clock.monotonic_s()
        free = (
            0 if stopping else DRAINS_AT_ONCE - sum(life.state in AT_WORK for life in self._parked.values())
        )
        # The one that has waited longest is tried first, or some would never be.
        for life in sorted(self._parked.values(), key=lambda life: life.parked.not_before_s):
            if free > 0 and life.may_probe(now_s):
                free -= 1
                self._on(life, Probe())
            else:
                self._on(life, Tick())
        self._list(now_s)

    def _list(self, now_s: float) -> None:
        """Reads all records now and then: the catalog parks what moves back, a person decides about it."""
        if self._listing is not None and self._listing[1].done():
            (began_s, future), self._listing = self._listing, None
            try:
                self._reconcile(future.result(), began_s)
            except RetryableError as error:
                log.warning("parked.not_read", reason=str(error))
        if self._listing is None and now_s - self._listed_s >= LIST_EVERY_S:
            self._listed_s = now_s
            self._listing = now_s, self.pool.submit(self._all)

    def _all(self) -> dict[TableId, ParkedRecord]:
        """In a thread. The lease has to be in force after reading: what a successor parks, under its id, is
        not this node's to park."""
        found = self.records.all()
        self.records.confirm(self.lease)
        return found

    def _reconcile(self, found: Mapping[TableId, ParkedRecord], began_s: float) -> None:
        for table, record in found.items():
            was_live = table not in self._parked
            self._on(self._life(table), RecordRead(record, began_s))
            if was_live and table in self._parked:
                log.error(
                    "table.parked_by_others",
                    table=str(table),
                    reason=record.cause.value,
                    sentence=record.sentence,
                )
        for table, life in list(self._parked.items()):
            if table not in found and self._on(life, RecordRead(None, began_s)):
                log.warning(
                    "parked.record_missing",
                    table=str(table),
                    advice="somebody removed it by hand; it is put back, for records wait",
                )

    # ---- the record in the catalog

    def _begun(self, record: ParkedRecord) -> ParkedRecord:
        """Blocks."""
        return record.begun(*self.begins(record.table), self.clock.now().isoformat(timespec="seconds"))

    def _run(self, ask: Ask) -> tuple[ParkedRecord, int | None] | ParkedRecord | None:
        """In a thread: asks the catalog. PUT and REMOVE give the record as written and its version, None
        where somebody else has changed it."""
        record = ask.record
        if ask.kind is RequestKind.FIND:
            found = self.records.find(record.table)
            self.records.confirm(self.lease)
            return found
        remove = ask.kind is RequestKind.REMOVE
        try:
            if not remove and not record.id:
                record = self._begun(record)
            return record, self.records.write(record, lease=self.lease, key=ask.key, remove=remove)
        except RetryableError as error:
            raise NotWrittenError(record, str(error)) from error

    def _take_answer(self, life: TableLifecycle, ask: Ask, answer: Future[Any]) -> None:
        try:
            result = answer.result()
        except RetryableError as error:
            log.warning("parked.not_written", table=str(life.table), reason=str(error))
            record = error.record if isinstance(error, NotWrittenError) else ask.record
            self._on(life, NotAnswered(ask.key, record))
            return
        if ask.kind is RequestKind.FIND:
            self._on(life, RecordFound(ask.key, result))
            return
        record, version = result
        if version is not None:
            reach("parked_record_removed" if ask.kind is RequestKind.REMOVE else "parked_record_written")
        self._on(life, RecordWritten(ask.key, record, version))

    # ---- the life of each table

    def _life(self, table: TableId) -> TableLifecycle:
        life = self._lives.get(table)
        if life is None:
            life = self._lives[table] = TableLifecycle(table)
        return life

    def _on(self, life: TableLifecycle, event: Event) -> bool:
        """Tells a table's life of an event and carries out what follows; whether anything did."""
        before = life.state
        state, commands = life.on(event, self.clock.monotonic_s())
        if life.is_parked:
            self._parked[life.table] = life
        else:
            self._parked.pop(life.table, None)
        for command in commands:
            self._carry_out(life, command)
        if state is not before and life.is_parked:
            reason = life.parked.record.cause.value
            log.info("table.parking", table=str(life.table), stage=state.value, reason=reason)
        if state is not before and state in (State.PARKED, State.LIVE):
            self._measure()
        return bool(commands)

    def _carry_out(self, life: TableLifecycle, command: Command) -> None:
        table = life.table
        match command:
            case StopWork(forget):
                self.forget_flushes(table)
                (self.states.forget if forget else self.states.drop)(table)
            case Load():
                self.states.outdate(table)
                self.states.want([table])
            case Ask():
                self._answers[self.pool.submit(self._run, command)] = life, command
            case TellParked(id):
                self.tell(None, Park({table: id}))
                reach("parking_told")
            case TellHold(number):
                self.tell(None, Hold(table, number))
            case StartDrain(number, record, start, reread):
                view = self.states.view(table)
                order = Drain(table, number, view, record.id, record.topic_id, start, reread)
                self.tell(self._drainer(table), order)
            case StopDrain():
                self.tell(self._drainer(table), StopDraining(table))
            case GiveUp(state, trouble):
                log.warning(
                    "table.not_drained",
                    table=str(table),
                    reason=trouble.cause.value,
                    sentence=trouble.sentence,
                    stage=state.value,
                )
            case TellReleased(record):
                log.info("table.released", table=str(table), parked_since=record.since)
                self.tell(None, Release({table: self.states.view(table)}))
                reach("released")

    def _drainer(self, table: TableId) -> int:
        return crc32(str(table).encode()) % self.workers

    def _measure(self) -> None:
        counted: dict[str, int] = {cause.value: 0 for cause in Cause}
        for life in self._parked.values():
            counted[life.parked.record.cause.value] += 1
        for reason, number in counted.items():
            metrics.TABLES_PARKED.labels(reason).set(number)


class NotWrittenError(RetryableError):
    """Nobody knows whether a record was written; `record` is what was sent."""

    def __init__(self, record: ParkedRecord, sentence: str) -> None:
        super().__init__(sentence)
        self.record = record
