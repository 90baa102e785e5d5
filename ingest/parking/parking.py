"""The parked tables of a node, from the first trouble to the last drained record. Runs in the main process;
nothing here blocks.

What becomes of a table its `TableLifecycle` decides. Here is what that takes: requests to the catalog in
threads, messages to the workers, and which table is tried next.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4
from zlib import crc32

import structlog

from ingest.commit.table_events import (
    AT_WORK,
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
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_states import TableStates
from ingest.commit.tables import Tables
from ingest.model.fault_point import reach
from ingest.model.link import Drain, Drained, Held, Hold, Park, Release, StopDraining, ToWorker
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
    begins: Callable[[TableId], tuple[str, int, int]]
    _answers: dict[Future[Any], tuple[TableLifecycle, Ask]] = field(default_factory=dict)
    _listing: tuple[float, Future[dict[TableId, ParkedRecord]]] | None = None
    _listed_s: float = 0.0

    def __post_init__(self) -> None:
        self._lives.run |= {
            Entered: self._entered,
            Ask: self._ask,
            TellParked: self._tell_parked,
            TellHold: self._tell_hold,
            StartDrain: self._start_drain,
            StopDrain: self._stop_drain,
            GiveUp: self._give_up,
            TellReleased: self._tell_released,
        }

    @property
    def _lives(self) -> Tables:
        return self.states.lives

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
            self._lives.resume(record, self.clock.monotonic_s())
        self._measure()
        return {life.table: life.parked.record.id for life in self._lives.parked}

    # ---- what others ask and tell

    def __contains__(self, table: TableId) -> bool:
        life = self._lives.get(table)
        return life is not None and life.is_parked

    def park(self, table: TableId, trouble: Trouble) -> None:
        """Begins to park a table that is live."""
        if table not in self:
            log.error("table.parks", table=str(table), reason=trouble.cause.value, sentence=trouble.sentence)
            self._on(self._lives[table], ParkTable(trouble))

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """What is drained of a parked table could not be written."""
        self._on(self._lives[table], Failed(trouble))

    def drained(self, message: Drained) -> None:
        """A worker has come to the end of what was parked, or could not go on."""
        self._on(self._lives[message.table], DrainEnded(message.number, message.reached, message.trouble))

    def held(self, worker: int, message: Held) -> None:
        """A worker lets the table's messages wait, and all it has parked of them is acknowledged."""
        self._on(self._lives[message.table], HeldBy(worker, self.workers, message.number))

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
            for life in list(self._lives.parked)  # asked for by another thread
            if (record := life.record) is not None
        ]

    # ---- as time goes on

    def step(self, *, stopping: bool = False) -> None:
        """Takes in answers of the catalog, tries again what is due. Raises RefusedError where the node's
        lease is lost."""
        for future in [future for future in self._answers if future.done()]:
            self._take_answer(*self._answers.pop(future), future)
        now_s = self.clock.monotonic_s()
        parked = list(self._lives.parked)
        free = 0 if stopping else DRAINS_AT_ONCE - sum(life.state in AT_WORK for life in parked)
        # The one that has waited longest is tried first, or some would never be.
        for life in sorted(parked, key=lambda life: life.parked.not_before_s):
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
            was_live = table not in self
            self._on(self._lives[table], RecordRead(record, began_s))
            if was_live and table in self:
                log.error(
                    "table.parked_by_others",
                    table=str(table),
                    reason=record.cause.value,
                    sentence=record.sentence,
                )
        for life in [life for life in self._lives.parked if life.table not in found]:
            if self._on(life, RecordRead(None, began_s)):
                log.warning(
                    "parked.record_missing",
                    table=str(life.table),
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

    # ---- what lives ask for

    def _on(self, life: TableLifecycle, event: Event) -> bool:
        return self._lives.on(life, event, self.clock.monotonic_s())

    def _entered(self, life: TableLifecycle, command: Entered) -> None:
        reason = life.parked.record.cause.value
        log.info("table.parking", table=str(life.table), stage=command.stage.value, reason=reason)
        if command.stage is State.PARKED:
            self._measure()

    def _ask(self, life: TableLifecycle, command: Ask) -> None:
        self._answers[self.pool.submit(self._run, command)] = life, command

    def _tell_parked(self, life: TableLifecycle, command: TellParked) -> None:
        self.tell(None, Park({life.table: command.id}))
        reach("parking_told")

    def _tell_hold(self, life: TableLifecycle, command: TellHold) -> None:
        self.tell(None, Hold(life.table, command.number))

    def _start_drain(self, life: TableLifecycle, command: StartDrain) -> None:
        number, record, start, reread = command
        view = self.states.view(life.table)
        order = Drain(life.table, number, view, record.id, record.topic_id, start, reread)
        self.tell(self._drainer(life.table), order)

    def _stop_drain(self, life: TableLifecycle, _: StopDrain) -> None:
        self.tell(self._drainer(life.table), StopDraining(life.table))

    def _give_up(self, life: TableLifecycle, command: GiveUp) -> None:
        log.warning(
            "table.not_drained",
            table=str(life.table),
            reason=command.trouble.cause.value,
            sentence=command.trouble.sentence,
            stage=command.state.value,
        )

    def _tell_released(self, life: TableLifecycle, command: TellReleased) -> None:
        log.info("table.released", table=str(life.table), parked_since=command.record.since)
        self.tell(None, Release({life.table: self.states.view(life.table)}))
        reach("released")
        self._measure()

    def _drainer(self, table: TableId) -> int:
        return crc32(str(table).encode()) % self.workers

    def _measure(self) -> None:
        counted: dict[str, int] = {cause.value: 0 for cause in Cause}
        for life in self._lives.parked:
            counted[life.parked.record.cause.value] += 1
        for reason, number in counted.items():
            metrics.TABLES_PARKED.labels(reason).set(number)


class NotWrittenError(RetryableError):
    """Nobody knows whether a record was written; `record` is what was sent."""

    def __init__(self, record: ParkedRecord, sentence: str) -> None:
        super().__init__(sentence)
        self.record = record
