"""The one committer of a node: flushes of many tables at once, compared with the marks before every attempt, outcomes never guessed.

For each table of a round, until its flushes are settled:

    state known?       load the table (none: the commit creates it)
    marks vs ranges    absorbed: done - ahead: back to the worker, to be written without the rows below the marks -
                       behind: the table was moved back - equal: go on
    new columns        their ids were handed out by this committer and still stand; else back to the worker
    prepare            manifest and manifest list, durable before the request
    send               one request for all tables
    committed          done
    conflict           somebody else changed the table: load, and compare again
    unknown            load; snapshot or marks found: done - head as asserted: send the identical request again - else: compare again
    failed, timeout    certainly not applied: try again
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import structlog

from ingest.link import Outcome, TableView, WrittenFlush
from lake import metrics
from lake.catalog_client import CatalogClient, CommitResult, CommitStatus, TableName
from lake.clock import Clock, epoch_ms
from lake.commit import Prepared, TableState, creation_request, load_state, new_table_state, prepare_append
from lake.errors import ConflictError, FatalError, RetryableError, UnavailableError
from lake.log_schema import LogSchema
from lake.marks import Range, TopicPartition, Verdict
from lake.storage import AnyStorage
from lake.tenant import TableId

BATCH_TABLES = 500
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's written flush."""

    worker: int
    flush: WrittenFlush


@dataclass(slots=True)
class Job:
    """What the committer does for one table: the flushes of its workers, merged into one commit; `sent` is out or of unknown outcome."""

    table: TableId
    flushes: list[Flushed]
    sent: Prepared | None = None
    sent_on: TableState | None = None
    not_before_s: float = 0.0
    tries: int = 0

    @property
    def ranges(self) -> Mapping[TopicPartition, Range]:
        return {p: r for flushed in self.flushes for p, r in flushed.flush.ranges.items()}


Settlement = tuple[int, TableId, Outcome, TableView]  # worker, table, outcome, view


@dataclass
class Committer:
    """Owns the states of all tables and the ids of their new columns. One thread."""

    catalog: CatalogClient
    storage: AnyStorage
    warehouse: str
    clock: Clock
    timeout_s: float
    _states: dict[TableId, TableState] = field(default_factory=dict)
    # Columns handed out and not yet committed: name -> (id, original path). Void as soon as somebody else takes an id.
    _promised: dict[TableId, dict[str, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))
    _waiting: dict[TableId, list[Flushed]] = field(default_factory=lambda: defaultdict(list))
    _jobs: dict[TableId, Job] = field(default_factory=dict)

    # ---- what workers ask

    def view(self, table: TableId) -> TableView:
        """What a worker has to know of a table; one that does not exist gets its uuid and location here."""
        state = self._state(table)
        return TableView(state.uuid, state.location, orjson.dumps(state.schema.json), state.marks)

    def grow(self, table: TableId, names: Mapping[str, str]) -> bytes:
        """The table's schema (JSON) with columns for these names (name -> original path); ids are promised until somebody else takes them."""
        state, promised = self._state(table), self._promised[table]
        last = max([state.last_column_id, *(column_id for column_id, _ in promised.values())])
        for name in names:
            if name not in state.schema.by_name and name not in promised:
                last += 1
                promised[name] = (last, names[name])
        return orjson.dumps(self._promised_schema(state, promised).json)

    def submit(self, worker: int, flushes: Iterable[WrittenFlush]) -> None:
        """Takes written flushes over; `round` commits them."""
        for flush in flushes:
            self._waiting[flush.table].append(Flushed(worker, flush))

    @property
    def is_idle(self) -> bool:
        return not self._jobs and not self._waiting

    # ---- rounds

    def round(self) -> list[Settlement]:
        """One attempt for every table that is due; returns what is settled. Raises FatalError for what a person has to decide."""
        for table in [table for table in self._waiting if table not in self._jobs]:
            self._jobs[table] = Job(table, self._waiting.pop(table))
        now_s = self.clock.monotonic_s()
        due = [job for job in self._jobs.values() if job.not_before_s <= now_s][:BATCH_TABLES]
        settled: list[Settlement] = []
        try:
            self._attempt([job for job in due if self._is_ready(job, settled)], settled)
        except RetryableError as error:
            log.warning("commit.waits", tables=len(due), reason=str(error))
            for job in due:
                self._later(job)
        return settled

    def _attempt(self, jobs: Sequence[Job], settled: list[Settlement]) -> None:
        prepared = [self._prepare(job) for job in jobs]
        if prepared:
            self.storage.write_all([file for sent in prepared for file in sent.files])
            results = self.catalog.commit_all([sent.request for sent in prepared], timeout_s=self.timeout_s)
            for job, sent, result in zip(jobs, prepared, results, strict=True):
                self._note(job, sent, result, settled)

    def _is_ready(self, job: Job, settled: list[Settlement]) -> bool:
        """Loads and compares; what is absorbed or has to be written again leaves the job. True where something is left to commit."""
        try:
            state = self._state(job.table)
        except RetryableError as error:
            log.warning("table.not_loaded", table=str(job.table), reason=str(error))
            self._later(job)
            return False
        if job.sent is not None:
            if job.sent.after.uuid == state.uuid and state.marks.compare(job.ranges) is Verdict.ABSORBED:
                self._settle(job, job.flushes, Outcome.DONE, settled)
                return False
            if job.sent_on is not None and (job.sent_on.head, job.sent_on.exists) == (state.head, state.exists):
                return True  # the identical request again
            job.sent = None
        for flushed in list(job.flushes):
            if (outcome := self._verdict(flushed.flush, state)) is not None:
                self._settle(job, [flushed], outcome, settled)
        return bool(job.flushes)

    def _verdict(self, flush: WrittenFlush, state: TableState) -> Outcome | None:
        """None: commit it as it is."""
        if flush.uuid != state.uuid:
            return Outcome.REDO  # dropped and created again meanwhile
        verdict = state.marks.compare(flush.ranges)
        if verdict is Verdict.ABSORBED:
            return Outcome.DONE
        if verdict is Verdict.BEHIND:
            raise FatalError(
                f"table {flush.table} was moved back: its marks {state.marks.to_property()} are before the flush {dict(flush.ranges)}. "
                "Roll it forward again, or drop it so that it is written anew from the group's offsets"
            )
        if verdict is Verdict.AHEAD or not self._ids_stand(flush, state):
            return Outcome.REDO
        return None

    def _ids_stand(self, flush: WrittenFlush, state: TableState) -> bool:
        promised = self._promised.get(flush.table, {})
        for name, column_id in flush.new.items():
            column = state.schema.by_name.get(name)
            if (column.id if column is not None else promised.get(name, (None, ""))[0]) != column_id:
                return False
        return True

    def _prepare(self, job: Job) -> Prepared:
        if job.sent is None:
            state = self._states[job.table]
            files = [file for flushed in job.flushes for file in flushed.flush.files]
            new = {name for flushed in job.flushes for name in flushed.flush.new if name not in state.schema.by_name}
            schema = self._promised_schema(state, self._promised[job.table]) if new else state.schema
            job.sent = prepare_append(state, files, schema, state.marks.advanced(job.ranges), epoch_ms(self.clock.now()))
            job.sent_on = state
        return job.sent

    def _note(self, job: Job, sent: Prepared, result: CommitResult, settled: list[Settlement]) -> None:
        metrics.COMMITS.labels(result.status.value).inc()
        if result.status is CommitStatus.COMMITTED:
            self._states[job.table] = sent.after
            self._promised[job.table] = {n: p for n, p in self._promised[job.table].items() if n not in sent.after.schema.by_name}
            metrics.RECORDS_WRITTEN.inc(sum(flushed.flush.rows for flushed in job.flushes))
            self._settle(job, job.flushes, Outcome.DONE, settled)
            return
        log.warning("commit.not_applied", table=str(job.table), status=result.status.value, message=result.message, tries=job.tries)
        if result.status in (CommitStatus.INVALID, CommitStatus.DELETED):
            raise FatalError(f"the catalog refuses the commit to {job.table} ({result.status.value}): {result.message}")
        self._forget(job.table)
        if result.status is not CommitStatus.UNKNOWN:
            job.sent = None
        if result.status is not CommitStatus.CONFLICT:
            self._later(job)

    def _settle(self, job: Job, flushes: Sequence[Flushed], outcome: Outcome, settled: list[Settlement]) -> None:
        view = self.view(job.table)
        settled += [(flushed.worker, job.table, outcome, view) for flushed in flushes]
        job.flushes = [flushed for flushed in job.flushes if flushed not in flushes]
        if not job.flushes:
            self._jobs.pop(job.table, None)

    def _later(self, job: Job) -> None:
        job.tries += 1
        job.not_before_s = self.clock.monotonic_s() + min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(job.tries, 10))

    # ---- states

    def _state(self, table: TableId) -> TableState:
        state = self._states.get(table)
        if state is None:
            name = TableName(table.tenant.namespace, table.table)
            state = load_state(self.catalog, self.storage, name) or self._new_state(name, table)
            self._states[table] = state
            promised = self._promised.get(table, {})
            if any(column_id <= state.last_column_id and name not in state.schema.by_name for name, (column_id, _) in promised.items()):
                promised.clear()  # somebody else took an id that was handed out
        return state

    def _forget(self, table: TableId) -> None:
        """Load it anew next time; a table that no commit has created yet keeps the uuid and location its files were written for."""
        state = self._states.get(table)
        if state is None or state.exists:
            self._states.pop(table, None)
            return
        name = TableName(table.tenant.namespace, table.table)
        with suppress(RetryableError):
            self._states[table] = load_state(self.catalog, self.storage, name) or state

    def _new_state(self, name: TableName, table: TableId) -> TableState:
        new = new_table_state(name, table.tenant.name, table.stream, self.warehouse)
        if self.catalog.has_extras:
            return new  # created together with its first rows
        self.catalog.create_namespace(name.namespace, {})
        with suppress(ConflictError):  # somebody else created it: the same
            self.catalog.create_table(name, creation_request(new))
        state = load_state(self.catalog, self.storage, name)
        if state is None:
            raise UnavailableError(f"table {name} was created and is not there; it is tried again")
        return state

    def _promised_schema(self, state: TableState, promised: Mapping[str, tuple[int, str]]) -> LogSchema:
        new = {name: promise for name, promise in promised.items() if name not in state.schema.by_name}
        return state.schema.with_strings(new, state.schema_id_max + 1) if new else state.schema
