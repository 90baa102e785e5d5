"""The parked tables of a node, from the first trouble to the last drained record. Runs in the main process;
nothing here blocks.

    writing     the parked record is being put into the catalog; before the answer is known nothing happens to
                the table
    parked      every worker sends the table's messages to the parking topic; the table is tried again from
                time to time, or a person decides
    opening     its state is being loaded
    draining    a worker writes what is parked, up to what the topic holds
    holding     every worker has what it parked acknowledged, and lets the table's messages wait
    finishing   the rest is drained
    releasing   the parked record is being taken away; when that is known the table is live again, and what
                waited is its next flush

From opening on, anything that goes wrong leads back to parked.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from uuid import uuid4
from zlib import crc32

import structlog

from ingest.commit.table_states import TableStates
from ingest.model.fault_point import reach
from ingest.model.link import Drain, Drained, Held, Hold, Park, Release, StopDraining, ToWorker, WrittenFlush
from ingest.model.parked_record import REREAD, ParkedRecord, ParkedRecords
from ingest.model.trouble import FOR_A_PERSON, VERDICTS, Cause, Trouble
from lake import metrics
from lake.backoff import Backoff
from lake.clock import Clock
from lake.errors import RetryableError, UnavailableError
from lake.tenant import TableId

PROBES = Backoff(2.0, 60.0)
# A table that fails again so soon after its release is tried again ever more seldom.
RELAPSE_S = 120.0
DRAINS_AT_ONCE = 4
HOLD_MAX_S = 30.0
LIST_EVERY_S = 2.0
TRIES_MAX = 3
AGAIN_AFTER_S = 1.0
log = structlog.get_logger()


class Stage(Enum):
    """How far a parked table is."""

    WRITING = "writing"
    PARKED = "parked"
    OPENING = "opening"
    DRAINING = "draining"
    HOLDING = "holding"
    FINISHING = "finishing"
    RELEASING = "releasing"


AT_WORK = frozenset({Stage.OPENING, Stage.DRAINING, Stage.HOLDING, Stage.FINISHING})


class PendingRequest(Enum):
    """What is to be asked of the catalog about a table's record, until an answer is known."""

    PUT = "put"
    REMOVE = "remove"
    FIND = "find"


@dataclass(slots=True)
class ParkedTable:
    """One table. `told`: the id of the parking under which workers send its messages to the topic; empty
    where they do not.

    `pending_request` is on its way as `answer`; `key` stays the same while an identical change is repeated.
    `changed_s`: when the version of the record became known, so that older listings are told apart.
    `reached`: offset of the parking topic below which all is drained, once it is held.
    """

    record: ParkedRecord
    stage: Stage = Stage.WRITING
    told: str = ""
    pending_request: PendingRequest | None = None
    answer: Future[Any] | None = None
    key: str = ""
    not_before_s: float = 0.0
    held: set[int] = field(default_factory=set)
    probes: int = 1  # in a row, counted with the one that comes next
    number: int = 0  # of the hold or drain that goes on
    stage_since_s: float = 0.0
    changed_s: float = 0.0
    tries: int = 0
    reached: int = 0


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
    _tables: dict[TableId, ParkedTable] = field(default_factory=dict)
    _released: dict[TableId, tuple[float, int]] = field(
        default_factory=dict
    )  # when, and after how long it was to be tried again
    _listing: tuple[float, Future[dict[TableId, ParkedRecord]]] | None = None
    _listed_s: float = 0.0
    _orders: int = 0

    def load(self) -> Mapping[TableId, str]:
        """Reads what is parked, before anything is routed; table -> id of its parking. Blocks. Raises
        UnavailableError."""
        for record in self.records.all().values():
            if not record.id:  # the catalog parked it, and no node has taken that up
                record = record.begun(
                    *self.begins(record.table), self.clock.now().isoformat(timespec="seconds")
                )
                version = self.records.write(record, lease=self.lease, key=str(uuid4()))
                if version is None:
                    raise UnavailableError(
                        f"the parked record of {record.table} was changed at the same time; the node starts "
                        "again"
                    )
                record = replace(record, version=version)
            entry = self._tables[record.table] = ParkedTable(record, told=record.id)
            self._rest(entry, now=True)
        self._measure()
        return {table: entry.record.id for table, entry in self._tables.items()}

    # ---- what others ask and tell

    def __contains__(self, table: TableId) -> bool:
        return table in self._tables

    def version(self, table: TableId) -> int | None:
        """The version of a parked table's record, as it was read or written last."""
        entry = self._tables.get(table)
        return None if entry is None else entry.record.version

    def accepts(self, flush: WrittenFlush) -> bool:
        """Whether a flush may be committed: one from the input while the table is live, one of the drain that
        goes on while it is parked."""
        entry = self._tables.get(flush.table)
        if entry is None:
            return not flush.drain
        return flush.drain == entry.number and entry.stage in (Stage.DRAINING, Stage.FINISHING)

    def park(self, table: TableId, trouble: Trouble) -> None:
        """Begins to park a table that is live."""
        if table in self._tables:
            return
        log.error("table.parks", table=str(table), reason=trouble.cause.value, sentence=trouble.sentence)
        self._write(
            ParkedTable(
                ParkedRecord(table, trouble.cause, trouble.sentence, expected=trouble.expected),
                probes=self._after_relapse(table),
            )
        )

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """A parked table could not be loaded, or what was drained of it not committed."""
        entry = self._tables.get(table)
        if entry is None or entry.stage not in AT_WORK:
            return
        entry.tries += 1
        if trouble.cause in VERDICTS or entry.stage is Stage.OPENING or entry.tries >= TRIES_MAX:
            self._back(entry, trouble)

    def known(self, tables: Iterable[TableId]) -> None:
        """States that have been loaded: what waited for them is drained."""
        for table in tables:
            entry = self._tables.get(table)
            if entry is not None and entry.stage is Stage.OPENING:
                self._drain(entry, Stage.DRAINING)

    def drained(self, message: Drained) -> None:
        """A worker has come to the end of what was parked, or could not go on."""
        entry = self._tables.get(message.table)
        if (
            entry is None
            or entry.stage not in (Stage.DRAINING, Stage.FINISHING)
            or message.number != entry.number
        ):
            return
        if message.trouble is not None:
            self._back(entry, message.trouble)
        elif entry.stage is Stage.DRAINING:
            entry.reached = message.reached
            self._hold(entry)
        else:
            self._enter(entry, Stage.RELEASING)
            self._begin(entry, PendingRequest.REMOVE)

    def held(self, worker: int, message: Held) -> None:
        """A worker lets the table's messages wait, and all it has parked of them is acknowledged."""
        entry = self._tables.get(message.table)
        if entry is not None and entry.stage is Stage.HOLDING and message.number == entry.number:
            entry.held.add(worker)
            if len(entry.held) == self.workers:
                self._drain(entry, Stage.FINISHING)

    def status(self) -> list[dict[str, Any]]:
        """What is parked, for people."""
        return [
            {
                "table": str(table),
                "reason": e.record.cause.value,
                "since": e.record.since,
                "stage": e.stage.value,
                "sentence": e.record.sentence,
            }
            for table, e in list(self._tables.items())  # asked for by another thread
        ]

    # ---- as time goes on

    def step(self, *, stopping: bool = False) -> None:
        """Takes in answers of the catalog, tries again what is due. Raises RefusedError where the node's
        lease is lost."""
        now_s = self.clock.monotonic_s()
        # The one that has waited longest is tried first, or some would never be.
        for entry in sorted(self._tables.values(), key=lambda entry: entry.not_before_s):
            if entry.answer is not None and entry.answer.done():
                self._take_answer(entry, entry.answer)
            elif entry.pending_request is not None and entry.answer is None and entry.not_before_s <= now_s:
                entry.answer = self.pool.submit(self._run, entry.pending_request, entry.record, entry.key)
            elif entry.stage in (Stage.HOLDING, Stage.FINISHING) and now_s - entry.stage_since_s > HOLD_MAX_S:
                self._back(entry, Trouble(Cause.FAILING, "what is left could not be drained in time"))
            elif (
                entry.stage is Stage.PARKED
                and entry.not_before_s <= now_s
                and not stopping
                and self._may_probe(entry)
            ):
                self._enter(entry, Stage.OPENING)
                entry.tries = 0
                self.states.outdate(entry.record.table)
                self.states.want([entry.record.table])
        self._list(now_s)

    def _may_probe(self, entry: ParkedTable) -> bool:
        return (
            not entry.record.awaits_person
            and sum(each.stage in AT_WORK for each in self._tables.values()) < DRAINS_AT_ONCE
        )

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
            entry = self._tables.get(table)
            if entry is None and self._released.get(table, (0.0, 0.0))[0] < began_s:
                log.error(
                    "table.parked_by_others",
                    table=str(table),
                    reason=record.cause.value,
                    sentence=record.sentence,
                )
                self._tables[table] = ParkedTable(record)
                self._adopt(self._tables[table], record)
            elif (
                entry is not None
                and entry.pending_request is None
                and entry.changed_s < began_s
                and entry.record.version != record.version
            ):
                self._adopt(entry, record)
        for table, entry in list(self._tables.items()):
            if table not in found and entry.pending_request is None and entry.changed_s < began_s:
                log.warning(
                    "parked.record_missing",
                    table=str(table),
                    advice="somebody removed it by hand; it is put back, for records wait",
                )
                self._write(entry, version=0)

    # ---- the record in the catalog

    def _write(self, entry: ParkedTable, **changes: Any) -> None:
        """Puts the record of the table; nothing is committed to the table any more."""
        entry.record = replace(entry.record, **changes)
        self._tables[entry.record.table] = entry
        self._stop_work(entry)
        self._enter(entry, Stage.WRITING)
        self._begin(entry, PendingRequest.PUT)

    def _begin(self, entry: ParkedTable, pending_request: PendingRequest) -> None:
        entry.pending_request, entry.key, entry.not_before_s = pending_request, str(uuid4()), 0.0

    def _run(
        self, pending_request: PendingRequest, record: ParkedRecord, key: str
    ) -> tuple[ParkedRecord, int | None] | ParkedRecord | None:
        """In a thread: asks the catalog. PUT and REMOVE give the record as written and its version, None
        where somebody else has changed it."""
        if pending_request is PendingRequest.FIND:
            found = self.records.find(record.table)
            self.records.confirm(self.lease)
            return found
        try:
            if pending_request is PendingRequest.PUT and not record.id:
                record = record.begun(
                    *self.begins(record.table), self.clock.now().isoformat(timespec="seconds")
                )
            return record, self.records.write(
                record, lease=self.lease, key=key, remove=pending_request is PendingRequest.REMOVE
            )
        except RetryableError as error:
            raise NotWrittenError(record, str(error)) from error

    def _take_answer(self, entry: ParkedTable, answer: Future[Any]) -> None:
        entry.answer = None
        try:
            result = answer.result()
        except RetryableError as error:  # the identical request again, until its fate is known
            log.warning("parked.not_written", table=str(entry.record.table), reason=str(error))
            entry.record = error.record if isinstance(error, NotWrittenError) else entry.record
            entry.not_before_s = self.clock.monotonic_s() + AGAIN_AFTER_S
            return
        pending_request, entry.pending_request = entry.pending_request, None
        entry.changed_s = self.clock.monotonic_s()
        if isinstance(result, tuple):
            record, version = result
            entry.record = record if version is None else replace(record, version=version)
            if version is None:
                self._begin(entry, PendingRequest.FIND)
            elif pending_request is PendingRequest.REMOVE:
                reach("parked_record_removed")
                self._release(entry)
            else:
                reach("parked_record_written")
                self._rest(entry)
        elif result is not None:
            self._adopt(entry, result)
        elif entry.stage is Stage.RELEASING:
            self._release(entry)
        else:
            self._write(entry, version=0)

    def _adopt(self, entry: ParkedTable, found: ParkedRecord) -> None:
        """Takes over what somebody else has written: the catalog, a person, a node before this one."""
        self._stop_work(entry)
        if found.cause is Cause.RESOLVED:
            self.states.forget(found.table)
        entry.record, entry.changed_s = found, self.clock.monotonic_s()
        if found.id:
            entry.probes = 1
            self._rest(entry, now=True)
        else:
            self._write(entry)

    # ---- from stage to stage

    def _enter(self, entry: ParkedTable, stage: Stage) -> None:
        entry.stage, entry.stage_since_s = stage, self.clock.monotonic_s()
        log.info(
            "table.parking", table=str(entry.record.table), stage=stage.value, reason=entry.record.cause.value
        )

    def _rest(self, entry: ParkedTable, *, now: bool = False) -> None:
        """Parked from here on, until it is tried again."""
        record = entry.record
        if entry.told != record.id:
            self.tell(None, Park({record.table: record.id}))
            reach("parking_told")
        entry.told = record.id
        entry.not_before_s = self.clock.monotonic_s() + (0.0 if now else PROBES.delay_s(entry.probes))
        self._enter(entry, Stage.PARKED)
        self._measure()

    def _back(self, entry: ParkedTable, trouble: Trouble) -> None:
        """The table does not take its records yet."""
        log.warning(
            "table.not_drained",
            table=str(entry.record.table),
            reason=trouble.cause.value,
            sentence=trouble.sentence,
            stage=entry.stage.value,
        )
        self._stop_work(entry)
        entry.probes += 1
        if trouble.cause in FOR_A_PERSON:
            expected = entry.record.expected.joined(trouble.expected)
            self._write(entry, cause=trouble.cause, sentence=trouble.sentence, expected=expected)
        else:
            self._rest(entry)

    def _stop_work(self, entry: ParkedTable) -> None:
        table = entry.record.table
        self.forget_flushes(table)
        self.states.drop(table)
        if entry.stage in (Stage.DRAINING, Stage.FINISHING):
            self.tell(self._drainer(table), StopDraining(table))

    def _hold(self, entry: ParkedTable) -> None:
        self._enter(entry, Stage.HOLDING)
        entry.held.clear()
        entry.told = ""
        self.tell(None, Hold(entry.record.table, self._next_number(entry)))

    def _next_number(self, entry: ParkedTable) -> int:
        """Answers to an order that was given up are told by its number."""
        self._orders += 1
        entry.number = self._orders
        return entry.number

    def _drain(self, entry: ParkedTable, stage: Stage) -> None:
        record = entry.record
        self._enter(entry, stage)
        entry.tries = 0
        # Live records wait while the drain is finished: it goes on where the one before has ended.
        start, reread = (
            (record.start, record.resolution == REREAD) if stage is Stage.DRAINING else (entry.reached, False)
        )
        order = Drain(
            record.table,
            self._next_number(entry),
            self.states.view(record.table),
            record.id,
            record.topic_id,
            start,
            reread,
        )
        self.tell(self._drainer(record.table), order)

    def _drainer(self, table: TableId) -> int:
        return crc32(str(table).encode()) % self.workers

    def _release(self, entry: ParkedTable) -> None:
        table = entry.record.table
        log.info("table.released", table=str(table), parked_since=entry.record.since)
        del self._tables[table]
        self._released[table] = self.clock.monotonic_s(), entry.probes
        self.tell(None, Release({table: self.states.view(table)}))
        reach("released")
        self._measure()

    def _after_relapse(self, table: TableId) -> int:
        """How often it was tried, and is now: from the start again, if it was well for long enough."""
        released_s, probes = self._released.pop(table, (0.0, 0))
        is_relapse = released_s and self.clock.monotonic_s() - released_s < RELAPSE_S
        return probes + 1 if is_relapse else 1

    def _measure(self) -> None:
        counted: dict[str, int] = {cause.value: 0 for cause in Cause}
        for entry in self._tables.values():
            counted[entry.record.cause.value] += 1
        for reason, number in counted.items():
            metrics.TABLES_PARKED.labels(reason).set(number)


class NotWrittenError(RetryableError):
    """Nobody knows whether a record was written; `record` is what was sent."""

    def __init__(self, record: ParkedRecord, sentence: str) -> None:
        super().__init__(sentence)
        self.record = record
