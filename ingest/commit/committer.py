"""The one committer of a node: flushes of many tables at once, compared with the marks before every attempt,
outcomes never guessed.

For each table, until its flushes are settled:

    state known?       else it is loaded, in a thread (none: the commit creates it)
    marks vs ranges    absorbed: done - ahead: back to the worker, to be written without the rows below the
                       marks - behind: the table was moved back, and is parked - equal: go on
    new columns        their ids were handed out by this committer and still stand; else back to the worker
    prepare            manifest and manifest list, durable before the request
    send               one request for all tables that are due, in a thread; a table whose last attempt failed
                       goes alone
    committed          done; a table with too many snapshots gets relief, which holds up its next commit
    conflict           somebody else changed the table: load, and compare again
    unknown            load; snapshot or marks found: done - head as asserted: send the identical request
                       again - else: compare again
    refused, deleted   a fault of this table, told to whoever decides about parking
    failed, timeout    certainly not applied: the same, and try again

Nothing here blocks, so a table that fails or is slow holds up its own commits and no others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import structlog

from ingest.commit.commit_sending import BATCH_TABLES, AdaptiveTimeout, Answer, Isolation, Sending, send
from ingest.commit.dropped_table import DEAD_LETTER, PARK, RECREATE, on_deleted
from ingest.commit.relief import Reliefs
from ingest.commit.second_writer import SecondWriters
from ingest.commit.table_states import TableStates, moved_back, table_name
from ingest.model.link import Outcome, TableView, WrittenFlush
from ingest.model.trouble import Cause, Trouble
from lake import metrics
from lake.backoff import Backoff
from lake.catalog_client import CommitStatus
from lake.clock import Clock, epoch_ms
from lake.commit import Prepared, TableState, prepare_append
from lake.errors import FirnError
from lake.marks import Marks, Range, TopicPartition, Verdict
from lake.relief import Bounds
from lake.tenant import TableId

ISOLATED_AT_ONCE = 8
RETRIES = Backoff(0.2, 5.0)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's written flush."""

    worker: int
    flush: WrittenFlush


@dataclass(slots=True)
class Job:
    """What the committer does for one table: the flushes of its workers, merged into one commit; `sent` is
    out or of unknown outcome."""

    table: TableId
    flushes: list[Flushed]
    sent: Prepared | None = None
    sent_on: TableState | None = None
    in_air: bool = False
    not_before_s: float = 0.0
    tries: int = 0

    @property
    def ranges(self) -> Mapping[TopicPartition, Range]:
        return {p: r for flushed in self.flushes for p, r in flushed.flush.ranges.items()}


Settlement = tuple[int, TableId, Outcome, TableView]  # worker, table, outcome, view


@dataclass(frozen=True, slots=True)
class InAir:
    """Jobs whose commits were sent together. `batch`: as one of all tables that are due, not because they
    gave trouble."""

    jobs: Sequence[Job]
    batch: bool
    since_s: float


@dataclass(slots=True)
class Step:
    """What one step has brought."""

    settled: list[Settlement] = field(default_factory=list)
    committed: list[TableId] = field(default_factory=list)
    failed: list[tuple[TableId, Trouble]] = field(default_factory=list)


@dataclass
class Committer:
    """Owns the flushes between a worker's `submit` and their settlement. One thread; only `send` runs in
    others."""

    states: TableStates
    pool: Executor
    clock: Clock
    timeout_s: float
    on_deleted: str
    writer: str
    bounds: Bounds = field(default_factory=Bounds)
    reliefs: Reliefs = field(init=False)
    _waiting: dict[TableId, list[Flushed]] = field(default_factory=lambda: defaultdict(list))
    _jobs: dict[TableId, Job] = field(default_factory=dict)
    _air: dict[Future[Sending], InAir] = field(default_factory=dict)
    _timeout: AdaptiveTimeout = field(default_factory=AdaptiveTimeout)
    _isolation: Isolation = field(default_factory=Isolation)
    _dropped: dict[TableId, Future[str]] = field(
        default_factory=dict
    )  # what becomes of records for tables that were dropped
    second_writers: SecondWriters = field(default_factory=SecondWriters)

    def __post_init__(self) -> None:
        self.reliefs = Reliefs(self.states.catalog, self.states.storage, self.pool, self.clock, self.bounds)

    def submit(self, worker: int, flushes: Iterable[WrittenFlush]) -> None:
        """Takes written flushes over; `step` commits them."""
        for flush in flushes:
            self._waiting[flush.table].append(Flushed(worker, flush))

    def drop(self, table: TableId) -> None:
        """Forgets the table's flushes: their records go another way. What is in the air may still land; the
        marks will tell."""
        self._waiting.pop(table, None)
        self._jobs.pop(table, None)

    @property
    def is_idle(self) -> bool:
        return not self._jobs and not self._waiting

    def step(self) -> Step:
        """Takes in answers and sends what is due. Never blocks."""
        step = Step()
        for future in [future for future in self._air if future.done()]:
            self._take_answers(self._air.pop(future), future.result(), step)
        for table in self.reliefs.finished():
            self.states.outdate(table)
        for table in [table for table in self._waiting if table not in self._jobs]:
            self._jobs[table] = Job(table, self._waiting.pop(table))
        self._send([job for job in self._due() if self._is_ready(job, step)])
        return step

    # ---- before an attempt

    def _due(self) -> list[Job]:
        """Jobs that could be sent now: not those that wait for the batch in the air to come back."""
        now_s = self.clock.monotonic_s()
        due = [
            job
            for job in self._jobs.values()
            if not job.in_air and job.not_before_s <= now_s and not self.reliefs.holds(job.table)
        ]
        self.states.want(job.table for job in due if self.states.get(job.table) is None)
        if self._batch_in_air:
            due = [job for job in due if self._isolation.size(job.table, now_s) < BATCH_TABLES]
        return [job for job in due if self.states.get(job.table) is not None]

    @property
    def _batch_in_air(self) -> bool:
        return any(sent.batch for sent in self._air.values())

    def _is_ready(self, job: Job, step: Step) -> bool:
        """Compares; what is absorbed or has to be written again leaves the job. True where something is left
        to commit."""
        state = self.states.get(job.table)
        assert state is not None
        if job.sent is not None:
            if (
                job.sent.after.uuid == state.uuid
                and self.states.ledger.marks(state).compare(job.ranges) is Verdict.ABSORBED
            ):
                self._done(job, step)
                return False
            if job.sent_on is not None and (job.sent_on.head, job.sent_on.exists) == (
                state.head,
                state.exists,
            ):
                return True  # the identical request again
            job.sent = None
        for flushed in list(job.flushes):
            verdict = self._verdict(flushed.flush, state)
            if isinstance(verdict, Trouble):
                step.failed.append((job.table, verdict))
                self._later(job)
                return False
            if verdict is not None:
                self._settle(job, [flushed], verdict, step)
        return bool(job.flushes)

    def _verdict(self, flush: WrittenFlush, state: TableState) -> Outcome | Trouble | None:
        """None: commit it as it is."""
        if flush.uuid != state.uuid:
            return Outcome.REDO  # dropped and created again meanwhile
        verdict = self.states.ledger.marks(state).compare(flush.ranges)
        if verdict is Verdict.ABSORBED:
            return Outcome.DONE
        if verdict is Verdict.BEHIND:
            lost = Marks({partition: start for partition, (start, _) in flush.ranges.items()})
            return Trouble(
                Cause.ROLLED_BACK,
                f"{moved_back(state).sentence}; this node had written up to {lost.to_property()}",
                lost,
            )
        if verdict is Verdict.AHEAD:
            self.second_writers.note(
                flush.table, self.states.ledger.moved_by(state), self.writer, self.clock.monotonic_s()
            )
            return Outcome.REDO
        return None if self.states.ids_stand(flush.table, flush.new) else Outcome.REDO

    # ---- an attempt

    def _send(self, ready: Sequence[Job]) -> None:
        """One batch is in the air at a time; what comes up meanwhile makes up the next one. Tables that gave
        trouble go apart, beside it."""
        now_s = self.clock.monotonic_s()
        by_size: dict[int, list[Job]] = defaultdict(list)
        for job in ready:
            by_size[self._isolation.size(job.table, now_s)].append(job)
        batch = by_size.pop(BATCH_TABLES, [])
        apart = [
            jobs[at : at + size] for size, jobs in sorted(by_size.items()) for at in range(0, len(jobs), size)
        ]
        if batch and not self._batch_in_air:
            self._send_out(InAir(batch[:BATCH_TABLES], batch=True, since_s=now_s), self._timeout.s)
        for jobs in apart[: ISOLATED_AT_ONCE - sum(not sent.batch for sent in self._air.values())]:
            self._send_out(
                InAir(jobs, batch=False, since_s=now_s),
                self._timeout.s * 2 ** min(10, max(job.tries for job in jobs)),
            )

    def _send_out(self, sent: InAir, deadline_s: float) -> None:
        prepared = [self._prepare(job) for job in sent.jobs]
        for job in sent.jobs:
            job.in_air = True
        self._air[
            self.pool.submit(
                send, self.states.catalog, self.states.storage, prepared, min(deadline_s, self.timeout_s)
            )
        ] = sent

    def _prepare(self, job: Job) -> Prepared:
        if job.sent is None:
            state = self.states.get(job.table)
            assert state is not None
            files = [file for flushed in job.flushes for file in flushed.flush.files]
            new = {
                name
                for flushed in job.flushes
                for name in flushed.flush.new
                if name not in state.schema.by_name
            }
            schema = self.states.promised_schema(job.table) if new else state.schema
            advance, now_ms = (
                self.states.ledger.advance(state, job.ranges, self.writer),
                epoch_ms(self.clock.now()),
            )
            recreate = job.table in self._dropped and self._policy(job.table) == RECREATE
            job.sent = prepare_append(
                state,
                files,
                schema,
                advance.marks,
                now_ms,
                writer=advance.writer,
                recreate=recreate,
                properties=advance.properties,
            )
            job.sent_on = state
        return job.sent

    # ---- after an attempt

    def _take_answers(self, sent: InAir, sending: Sending, step: Step) -> None:
        now_s = self.clock.monotonic_s()
        metrics.ROUND_SECONDS.observe(now_s - sent.since_s)
        self._isolation.note([job.table for job in sent.jobs], sending, now_s)
        if sent.batch:
            self._timeout.note(sending)
        for job, answer in zip(sent.jobs, sending.answers, strict=True):
            job.in_air = False
            metrics.COMMITS.labels(answer.result.status.value).inc()
            if self._jobs.get(job.table) is job:  # else it was dropped meanwhile
                self._note(job, answer, step)

    def _note(self, job: Job, answer: Answer, step: Step) -> None:
        status = answer.result.status
        if status is CommitStatus.COMMITTED:
            self._note_committed(job, step)
            return
        log.warning(
            "commit.not_applied",
            table=str(job.table),
            status=status.value,
            message=answer.result.message,
            tries=job.tries,
        )
        policy = self._policy(job.table) if status is CommitStatus.DELETED else PARK
        if policy == DEAD_LETTER:
            self._settle(job, job.flushes, Outcome.DEAD_LETTER, step)
            return
        self.states.outdate(job.table)
        if status is not CommitStatus.UNKNOWN:
            job.sent = None
        if status is not CommitStatus.CONFLICT:
            self._later(job)
            if answer.trouble is not None and policy == PARK:
                step.failed.append((job.table, answer.trouble))
        elif job.sent_on is not None and not job.sent_on.exists:
            self._later(job)
            if job.tries > 1:  # who was faster would have been found by now
                step.failed.append((job.table, Trouble(Cause.REFUSED, answer.result.message)))

    def _note_committed(self, job: Job, step: Step) -> None:
        assert job.sent is not None
        self.states.put(job.table, job.sent.after)
        self.reliefs.note(job.table, job.sent.after)
        self._dropped.pop(job.table, None)
        self._done(job, step)

    def _done(self, job: Job, step: Step) -> None:
        metrics.RECORDS_WRITTEN.inc(sum(flushed.flush.rows for flushed in job.flushes))
        step.committed.append(job.table)
        self._settle(job, job.flushes, Outcome.DONE, step)

    def _policy(self, table: TableId) -> str | None:
        """Where records go whose table was dropped; None while that is being looked up."""
        if table not in self._dropped:
            self._dropped[table] = self.pool.submit(
                on_deleted, self.states.catalog, self.states.storage, table_name(table), self.on_deleted
            )
        found = self._dropped[table]
        if not found.done():
            return None
        try:
            return found.result()
        except FirnError as error:
            log.warning("table.policy_unknown", table=str(table), reason=str(error))
            del self._dropped[table]
            return None

    def _settle(self, job: Job, flushes: Sequence[Flushed], outcome: Outcome, step: Step) -> None:
        view = self.states.view(job.table)
        step.settled += [(flushed.worker, job.table, outcome, view) for flushed in flushes]
        job.flushes = [flushed for flushed in job.flushes if flushed not in flushes]
        if not job.flushes:
            self._jobs.pop(job.table, None)

    def _later(self, job: Job) -> None:
        job.tries += 1
        job.not_before_s = self.clock.monotonic_s() + RETRIES.delay_s(job.tries)
