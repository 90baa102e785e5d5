"""The one committer of a node: flushes of many tables at once, compared with the marks before every attempt,
outcomes never guessed.

For each table, until its flushes are settled:

    state known?       else it is loaded, in a thread (none: the commit creates it)
    marks vs ranges    committed: done - ahead: back to the worker, to be written without the rows below the
                       marks - behind: the table was moved back, and is parked - equal: go on
    new columns        their ids were handed out by this committer and still stand; else back to the worker
    prepare            manifest and manifest list, durable before the request
    send               one request for all tables that are due, in a thread; a table whose last attempt failed
                       goes alone
    committed          done; a table with too many snapshots gets relief, which holds up its next commit
    conflict           somebody else changed the table: load, and compare again; the files of the attempt go
    unknown            load; snapshot or marks found: done - head as asserted: send the identical request
                       again - else: compare again
    refused, deleted   a fault of this table, told to whoever decides about parking
    failed, timeout    certainly not applied: the same, and try again

Nothing here blocks, so a table that fails or is slow holds up its own commits and no others.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any

import structlog

from ingest.commit.commit_sending import BATCH_TABLES, AdaptiveTimeout, Answer, Isolation, Sending, send
from ingest.commit.contested_tables import ContestedTables
from ingest.commit.dropped_table import DEAD_LETTER, PARK, RECREATE, on_deleted
from ingest.commit.key_resolution import Resolution
from ingest.commit.relief import Reliefs
from ingest.commit.resolutions import Resolutions
from ingest.commit.second_writer import SecondWriters
from ingest.commit.table_events import (
    Answered,
    Commit,
    CommitTrouble,
    Compare,
    Discard,
    Event,
    Flushed,
    Gather,
    NoteAhead,
    Sent,
    Settle,
    Submitted,
    Took,
)
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_states import TableStates, table_name
from ingest.keys.key_index_store import KeyIndexStore
from ingest.model.link import Outcome, TableView, WrittenFlush
from ingest.model.over_limit import PROPERTY as OVER_LIMIT
from ingest.model.over_limit import spell_stretches
from ingest.model.trouble import Trouble
from ingest.model.turns import in_turns
from lake import metrics
from lake.catalog_client import CommitStatus
from lake.change_counts import counted_changes
from lake.clock import Clock, epoch_ms
from lake.commit import Prepared, TableState, keyed_table_state, prepare_append, prepare_row_delta
from lake.day_counts import DayCount, counted_day
from lake.errors import FatalError, FirnError
from lake.log_schema import LogSchema
from lake.relief import Bounds
from lake.storage import AnyStorage
from lake.table_layout import HISTORY, MODE_PROPERTY
from lake.tenant import TableId

ISOLATED_AT_ONCE = 8
log = structlog.get_logger()


Settlement = tuple[int, TableId, Outcome, TableView]  # worker, table, outcome, view


@dataclass(frozen=True, slots=True)
class InAir:
    """Tables whose commits were sent together. `batch`: as one of all tables that are due, not because they
    gave trouble."""

    lives: Sequence[TableLifecycle]
    prepared: Sequence[Prepared]
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
    """Gives the commits of tables their turns, and sends them. One thread; only `send` runs in others."""

    states: TableStates
    pool: Executor
    clock: Clock
    timeout_s: float
    on_deleted: str
    writer: str
    bounds: Bounds = field(default_factory=Bounds)
    keys: KeyIndexStore | None = None
    reliefs: Reliefs = field(init=False)
    _resolutions: Resolutions | None = field(init=False)
    _resolved: dict[TableId, Resolution] = field(default_factory=dict)
    _changes: dict[TableId, Resolution] = field(default_factory=dict)  # of commits that are sent
    _step: Step = field(default_factory=Step)
    _ready: list[TableLifecycle] = field(default_factory=list)
    _air: dict[Future[Sending], InAir] = field(default_factory=dict)
    _timeout: AdaptiveTimeout = field(default_factory=AdaptiveTimeout)
    _isolation: Isolation = field(default_factory=Isolation)
    _leftovers: list[str] = field(default_factory=list)  # files of refused attempts
    _dropped: dict[TableId, Future[str]] = field(
        default_factory=dict
    )  # what becomes of records for tables that were dropped
    second_writers: SecondWriters = field(default_factory=SecondWriters)
    contested: ContestedTables = field(default_factory=ContestedTables)

    def __post_init__(self) -> None:
        self.reliefs = Reliefs(self.states.catalog, self.states.storage, self.pool, self.clock, self.bounds)
        self._resolutions = (
            None if self.keys is None else Resolutions(self.states.storage, self.keys, self.pool, self.clock)
        )
        self.states.lives.run |= {
            Commit: self._is_ready,
            Settle: self._settle,
            Took: self._took,
            NoteAhead: self._note_ahead,
            Discard: self._discard,
            CommitTrouble: self._commit_trouble,
        }

    def submit(self, worker: int, flushes: Iterable[WrittenFlush]) -> None:
        """Takes written flushes over; `step` commits them."""
        for flush in flushes:
            self._on(self.states.lives[flush.table], Submitted(Flushed(worker, flush)))

    @property
    def is_idle(self) -> bool:
        return not self.states.lives.committing

    def step(self) -> Step:
        """Takes in answers and sends what is due. Never blocks."""
        for future in [future for future in self._air if future.done()]:
            self._take_answers(self._air.pop(future), future.result())
        for table in self.reliefs.finished():
            self.states.outdate(table)
        for life in list(self.states.lives.gathering):
            self._on(life, Gather())
        self._send(self._take_due())
        if self._leftovers:
            self.pool.submit(_delete, self.states.storage, self._leftovers)
            self._leftovers = []
        step, self._step = self._step, Step()
        return step

    def _on(self, life: TableLifecycle, event: Event) -> None:
        self.states.lives.on(life, event, self.clock.monotonic_s())

    # ---- before an attempt

    def _take_due(self) -> list[TableLifecycle]:
        """Tables to be sent now, something being left to commit after their flushes were compared: as many as
        make up a batch, unless one is in the air, and those that go apart."""
        now_s = self.clock.monotonic_s()
        lives, ready = self.states.lives, list[TableLifecycle]()
        due = lives.to_commit.due(now_s)
        apart = [lives[table] for table in self._isolation.tables(now_s) if lives.get(table) in due]
        batch: Iterable[TableLifecycle] = () if self._batch_in_air else list(due)
        if len(due) > BATCH_TABLES:
            batch = in_turns(batch, lambda life: life.table.tenant)
        for life in dict.fromkeys([*apart, *batch]):
            if len(ready) >= BATCH_TABLES + len(apart):
                break
            if self._may_go(life) and self._is_left(life) and self._is_resolved(life):
                ready.append(life)
        return ready

    def _may_go(self, life: TableLifecycle) -> bool:
        """Whether the table can be committed to; one that has to be loaded first is."""
        if self.reliefs.holds(life.table):
            return False
        if life.current is None:
            self.states.want([life.table])
        return life.current is not None

    def _is_left(self, life: TableLifecycle) -> bool:
        """Whether anything is left to commit after a comparison."""
        assert life.known is not None
        self._ready.clear()
        self._on(life, Compare(self.states.ledger.marks(life.known)))
        return bool(self._ready)

    @property
    def _batch_in_air(self) -> bool:
        return any(sent.batch for sent in self._air.values())

    def _is_ready(self, life: TableLifecycle, _: Commit) -> None:
        self._ready.append(life)

    def _is_resolved(self, life: TableLifecycle) -> bool:
        """Whether it is known which rows of the table go, of a keyed one."""
        job, state = life.job, life.current
        assert job is not None
        assert state is not None
        flushes = [flushed.flush for flushed in job.flushes]
        self._resolved.pop(life.table, None)  # found before, for what may have been given up since
        if job.sent is not None or all(flush.keyed is None for flush in flushes):
            return True
        if self._resolutions is None:
            raise FatalError("changes of rows are committed by a node alone; set no `changes` for this topic")
        found = self._resolutions.take(life.table, state, life.columns.schema(state), flushes)
        if isinstance(found, Trouble):
            self.states.outdate(life.table)  # files of a state that is not the newest may be gone
            self._step.failed.append((life.table, found))
        elif found is not None:
            self._resolved[life.table] = found
        return isinstance(found, Resolution)

    # ---- an attempt

    def _send(self, ready: Sequence[TableLifecycle]) -> None:
        """One batch is in the air at a time; what comes up meanwhile makes up the next one. Tables that gave
        trouble go apart, beside it."""
        now_s = self.clock.monotonic_s()
        by_size: dict[int, list[TableLifecycle]] = defaultdict(list)
        for life in ready:
            by_size[self._isolation.size(life.table, now_s)].append(life)
        batch = by_size.pop(BATCH_TABLES, [])
        apart = [
            lives[at : at + size]
            for size, lives in sorted(by_size.items())
            for at in range(0, len(lives), size)
        ]
        if batch and not self._batch_in_air:
            self._send_out(batch[:BATCH_TABLES], now_s, self._timeout.s, batch=True)
        for lives in apart[: ISOLATED_AT_ONCE - sum(not sent.batch for sent in self._air.values())]:
            tries = max(life.job.tries for life in lives if life.job is not None)
            self._send_out(lives, now_s, self._timeout.s * 2 ** min(10, tries), batch=False)

    def _send_out(
        self, lives: Sequence[TableLifecycle], now_s: float, deadline_s: float, *, batch: bool
    ) -> None:
        prepared = [self._prepare(life) for life in lives]
        for life, each in zip(lives, prepared, strict=True):
            self._on(life, Sent(each))
        catalog, storage = self.states.catalog, self.states.storage
        future = self.pool.submit(
            send, catalog, storage, prepared, min(deadline_s, self.timeout_s), self.clock
        )
        self._air[future] = InAir(lives, prepared, batch, now_s)

    def _prepare(self, life: TableLifecycle) -> Prepared:
        job, state = life.job, life.current
        assert job is not None
        assert state is not None
        if job.sent is not None:
            return job.sent
        flushes = [flushed.flush for flushed in job.flushes]
        advance = self.states.ledger.advance(state, job.ranges, self.writer)
        schema = life.columns.schema(state) if _needs_columns(state, flushes) else state.schema
        more: dict[str, Any] = {
            "writer": advance.writer,
            "recreate": life.table in self._dropped and self._policy(life.table) == RECREATE,
            "properties": dict(advance.properties),
        }
        over = spell_stretches(state.properties.get(OVER_LIMIT, ""), (flush.over for flush in flushes))
        if over is not None:
            more["properties"][OVER_LIMIT] = over
        now = self.clock.now()
        now_ms, came = epoch_ms(now), DayCount(job.rows, sum(flush.value_bytes for flush in flushes))
        more["properties"] |= counted_day(state.properties, now.astimezone(UTC).date(), came)
        resolution = self._resolved.pop(life.table, None)
        if resolution is not None:
            self._changes[life.table] = resolution
            more["properties"] = {
                **more["properties"],
                **counted_changes(state.properties, resolution.counts),
            }
            if not state.exists:
                state, schema = self._created(state, schema, flushes)
            prepared = prepare_row_delta(state, resolution.delta, schema, advance.marks, now_ms, **more)
            return replace(prepared, files=[*resolution.written, *prepared.files])
        if state.properties.get(MODE_PROPERTY) != HISTORY and any(flush.is_history for flush in flushes):
            more["properties"][MODE_PROPERTY] = HISTORY
        files = [file for flush in flushes for file in flush.files]
        return prepare_append(state, files, schema, advance.marks, now_ms, **more)

    def _created(
        self, state: TableState, schema: LogSchema, flushes: Sequence[WrittenFlush]
    ) -> tuple[TableState, LogSchema]:
        """A table as its first flush makes it: with all columns that are promised, the key among them."""
        keyed = next(flush.keyed for flush in flushes if flush.keyed is not None)
        created = keyed_table_state(
            state, schema, keyed.key.columns[0], keyed.key.to_properties(), keyed.buckets
        )
        return created, created.schema

    # ---- after an attempt

    def _take_answers(self, sent: InAir, sending: Sending) -> None:
        now_s = self.clock.monotonic_s()
        metrics.ROUND_SECONDS.observe(now_s - sent.since_s)
        self._isolation.note([life.table for life in sent.lives], sending, now_s)
        if sent.batch:
            self._timeout.note(sending)
        for life, prepared, answer in zip(sent.lives, sent.prepared, sending.answers, strict=True):
            metrics.COMMITS.labels(answer.result.status.value).inc()
            if life.job is not None and life.job.sent is prepared:  # else it was given up meanwhile
                self._on(life, self._answered(life, prepared, answer))

    def _answered(self, life: TableLifecycle, prepared: Prepared, answer: Answer) -> Answered:
        status, message = answer.result.status, answer.result.message
        if status is CommitStatus.CONFLICT:
            self.contested.lost(life.table)
        if status is not CommitStatus.COMMITTED and life.job is not None:
            is_usual = status is CommitStatus.CONFLICT and self.contested.is_shared
            (log.info if is_usual else log.warning)(
                "commit.not_applied",
                table=str(life.table),
                status=status.value,
                message=message,
                tries=life.job.tries,
            )
        policy = self._policy(life.table) if status is CommitStatus.DELETED else PARK
        return Answered(prepared, status, message, answer.trouble, policy == PARK, policy == DEAD_LETTER)

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

    # ---- what lives ask for

    def _took(self, life: TableLifecycle, command: Took) -> None:
        self._count_changes(life.table)
        if command.after is not None:
            self.states.newest.made(command.after, epoch_ms(self.clock.now()))
            self.reliefs.note(life.table, command.after)
            self._dropped.pop(life.table, None)
            if self.contested.is_to_be_loaded(life.table):
                self.states.outdate(life.table)
        metrics.RECORDS_WRITTEN.inc(command.rows)
        self._step.committed.append(life.table)

    def _count_changes(self, table: TableId) -> None:
        """Counts what a commit has done to the rows of a keyed table."""
        if self._resolutions is not None:
            self._resolutions.forget(table)
        resolution = self._changes.pop(table, None)
        if resolution is None:
            return
        for result, count in resolution.counts.items():
            metrics.CHANGES.labels(result).inc(count)
        if keys := resolution.counts.get("in_several_partitions"):
            log.warning(
                "keys.in_several_partitions",
                table=str(table),
                keys=keys,
                some=list(resolution.in_several),
                help="which of their changes is the last is chance; let the producer choose partitions by "
                "the key, or set changes.order_by",
            )

    def _settle(self, life: TableLifecycle, command: Settle) -> None:
        view = self.states.view(life.table)
        self._step.settled += [
            (flushed.worker, life.table, command.outcome, view) for flushed in command.flushes
        ]

    def _note_ahead(self, life: TableLifecycle, command: NoteAhead) -> None:
        moved_by = self.states.ledger.moved_by(command.state)
        self.second_writers.note(life.table, moved_by, self.writer, self.clock.monotonic_s())

    def _discard(self, life: TableLifecycle, command: Discard) -> None:
        """Delete files stay: the next attempt may have found the same rows to go, and name them as well."""
        resolution = self._changes.get(life.table)
        kept = set() if resolution is None else {uri for uri, _ in resolution.written}
        self._leftovers += [uri for uri, _ in command.prepared.files if uri not in kept]

    def _commit_trouble(self, life: TableLifecycle, command: CommitTrouble) -> None:
        self._step.failed.append((life.table, command.trouble))


def _delete(storage: AnyStorage, uris: Sequence[str]) -> None:
    """Deletes what no commit refers to. Where the storage is away the weekly search for orphans finds it."""
    try:
        storage.delete(uris)
    except FirnError as error:
        log.info("commit.leftovers", files=len(uris), reason=str(error))


def _needs_columns(state: TableState, flushes: Sequence[WrittenFlush]) -> bool:
    """Whether files of the flushes have columns that the table lacks, or has with a narrower type."""
    known = state.schema.by_name
    for flush in flushes:
        kinds = {name: column.kind for name, column in flush.new.items()} | dict(flush.widened)
        if any(name not in known or known[name].kind != kind for name, kind in kinds.items()):
            return True
    return False
