"""The one committer of a node: flushes of many tables at once, compared with the marks before every attempt, outcomes never guessed.

For each table of a batch, until it is done:

    state known?       load the table (none: the commit creates it)
    marks vs ranges    absorbed: done - ahead: write its rows again without those below the marks - behind: the table was moved back - equal: go on
    prepare            manifest and manifest list, durable before the request
    send               one request for all tables
    committed          done
    conflict           somebody else changed the table: load, and compare again
    unknown            load; snapshot or marks found: done - head as asserted: send the identical request again - else: compare again
    failed, timeout    certainly not applied: try again
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import stamina
import structlog

from ingest.buffer import TableBuffer
from lake import metrics
from lake.catalog_client import CatalogClient, CommitResult, CommitStatus, TableName
from lake.clock import Clock, epoch_ms
from lake.commit import Prepared, TableState, creation_request, grown_schema, load_state, new_table_state, prepare_append
from lake.data_file import DataFile
from lake.errors import ConflictError, FatalError, RetryableError, UnavailableError
from lake.log_schema import LogSchema, new_log_schema
from lake.marks import Range, TopicPartition, Verdict
from lake.storage import AnyStorage
from lake.tenant import TableId

BATCH_TABLES = 500
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Written:
    """A flush's rows as files, valid for one uuid, one schema and one set of marks of the table."""

    files: Sequence[DataFile]
    schema: LogSchema
    based_on: TableState
    rows: int


@dataclass(slots=True)
class Flush:
    """Messages cut from one table's buffer. `ends`: per topic-partition the offset after the last message fully routed at the cut."""

    table: TableId
    buffer: TableBuffer
    ends: Mapping[TopicPartition, int]
    ranges: Mapping[TopicPartition, Range] | None = None
    written: Written | None = None
    sent: Prepared | None = None  # a request whose outcome is unknown
    dead_lettered: bool = False
    done: bool = False


# Converts and writes a flush for a state: names it does not have yet become columns of the schema that `Written` carries.
Write = Callable[[Flush, TableState], Written]


@dataclass
class Committer:
    """Commits flushes. `write` is called again whenever a table has changed so that files already written do not fit any more."""

    catalog: CatalogClient
    storage: AnyStorage
    warehouse: str
    clock: Clock
    write: Write
    make_durable: Callable[[], None]  # dead letters acknowledged, before any table commit
    timeout_s: float
    _states: dict[TableId, TableState] = field(default_factory=dict)
    # Where a table's next flush starts: bound to its uuid, because a table dropped and created again starts anew.
    _starts: dict[TableId, tuple[str, dict[TopicPartition, int]]] = field(default_factory=dict)

    def commit(self, flushes: Sequence[Flush]) -> None:
        """Returns when every flush is committed, or found to be committed already. Raises FatalError for what a person has to decide."""
        for attempt in stamina.retry_context(on=RetryableError, attempts=None, timeout=None, wait_initial=0.1, wait_max=5.0):
            with attempt:
                for batch in _batches(flushes):
                    self._finish(batch)

    def _finish(self, batch: Sequence[Flush]) -> None:
        while pending := [flush for flush in batch if not flush.done]:
            self._round(pending)
            left = sum(not flush.done for flush in pending)
            if left == len(pending):
                raise UnavailableError(f"{left} table commits have to wait; they are tried again")

    def _round(self, flushes: Sequence[Flush]) -> None:
        """One attempt for each flush. The order of durability: files, dead letters, tables."""
        ready = [flush for flush in flushes if self._is_ready(flush)]
        self.storage.sync([file.uri for flush in ready if flush.written for file in flush.written.files])
        self.make_durable()
        ready = [flush for flush in ready if not self._is_empty(flush)]
        prepared = [self._prepare(flush) for flush in ready]
        if prepared:
            self.storage.write_all([file for sent in prepared for file in sent.files])
            results = self.catalog.commit_all([sent.request for sent in prepared], timeout_s=self.timeout_s)
            for flush, sent, result in zip(ready, prepared, results, strict=True):
                self._settle(flush, sent, result)

    def _is_ready(self, flush: Flush) -> bool:
        """Loads, compares and writes; False where nothing is left to commit."""
        state = self._state(flush)
        if flush.sent is not None and (landed := self._landed(flush, state)) is not None:
            if landed:
                self._done(flush, state)
            return not landed  # the identical request again
        ranges = self._ranges(flush, state)
        verdict = state.marks.compare(ranges)
        if verdict is Verdict.ABSORBED:
            metrics.COMMITS.labels("absorbed").inc()
            self._done(flush, state)
            return False
        if verdict is Verdict.BEHIND:
            raise FatalError(
                f"table {flush.table} was moved back: its marks {state.marks.to_property()} are before the flush {dict(ranges)}. "
                "Roll it forward again, or drop it so that it is written anew from the group's offsets"
            )
        if flush.written is None or not _still_fits(flush.written, state):
            flush.written = self.write(flush, state)
        return True

    def _state(self, flush: Flush) -> TableState:
        state = self._states.get(flush.table)
        if state is None:
            table = flush.table
            name = TableName(table.tenant.namespace, table.table)
            state = load_state(self.catalog, self.storage, name)
            if state is None:
                state = self._new_state(name, table)
            self._states[table] = state
        return state

    def _new_state(self, name: TableName, table: TableId) -> TableState:
        new = new_table_state(name, table.tenant.name, table.stream, new_log_schema({}), self.warehouse)
        if self.catalog.has_extras:
            return new  # created together with its first rows
        self.catalog.create_namespace(name.namespace, {})
        with suppress(ConflictError):  # somebody else created it: the same
            self.catalog.create_table(name, creation_request(new, new.schema))
        state = load_state(self.catalog, self.storage, name)
        if state is None:
            raise UnavailableError(f"table {name} was created and is not there; it is tried again")
        return state

    def _landed(self, flush: Flush, state: TableState) -> bool | None:
        """For a request of unknown outcome: True where it is there, None where it has to be decided anew, False where it is sent again as it is."""
        assert flush.sent is not None
        assert flush.ranges is not None
        if flush.sent.after.uuid == state.uuid and state.marks.compare(flush.ranges) is Verdict.ABSORBED:
            return True
        based_on = flush.written.based_on if flush.written else None
        if based_on is not None and based_on.head == state.head and based_on.exists == state.exists:
            return False
        flush.sent = None
        return None

    def _ranges(self, flush: Flush, state: TableState) -> Mapping[TopicPartition, Range]:
        if flush.ranges is None:
            uuid, starts = self._starts.get(flush.table, ("", {}))
            known = starts if uuid == state.uuid else {}
            flush.ranges = {p: Range(known.get(p, state.marks.of(p)), end) for p, end in flush.ends.items()}
        return flush.ranges

    def _is_empty(self, flush: Flush) -> bool:
        """A flush whose messages all became dead letters needs no commit, least of all one that creates a table."""
        if flush.written is None or flush.written.files:
            return False
        flush.done = True
        return True

    def _prepare(self, flush: Flush) -> Prepared:
        if flush.sent is None:
            written, ranges, state = flush.written, flush.ranges, self._states[flush.table]
            assert written is not None
            assert ranges is not None
            flush.sent = prepare_append(state, written.files, written.schema, state.marks.advanced(ranges), epoch_ms(self.clock.now()))
        return flush.sent

    def _settle(self, flush: Flush, sent: Prepared, result: CommitResult) -> None:
        """Takes note of an answer."""
        metrics.COMMITS.labels(result.status.value).inc()
        if result.status is CommitStatus.COMMITTED:
            self._done(flush, sent.after)
            return
        log.warning("commit.not_applied", table=str(flush.table), status=result.status.value, message=result.message)
        self._states.pop(flush.table, None)
        if result.status in (CommitStatus.INVALID, CommitStatus.DELETED):
            raise FatalError(f"the catalog refuses the commit to {flush.table} ({result.status.value}): {result.message}")
        if result.status is not CommitStatus.UNKNOWN:
            flush.sent = None

    def _done(self, flush: Flush, state: TableState) -> None:
        flush.done = True
        metrics.RECORDS_WRITTEN.inc(flush.written.rows if flush.written else 0)
        self._states[flush.table] = state
        assert flush.ranges is not None
        _, starts = self._starts.get(flush.table, ("", {}))
        self._starts[flush.table] = (state.uuid, {**starts, **{p: state.marks.of(p) for p in flush.ranges}})


def schema_for(state: TableState, new: Mapping[str, str]) -> LogSchema:
    """The schema to write with: the table's, with columns for the new names (column name -> original path)."""
    if state.exists:
        return grown_schema(state, new)
    return new_log_schema(new)


def _still_fits(written: Written, state: TableState) -> bool:
    """Files fit as long as the table's identity, schema and marks are those they were written for."""
    base = written.based_on
    return base.uuid == state.uuid and base.exists == state.exists and base.schema.columns == state.schema.columns and base.marks == state.marks


def _batches(flushes: Sequence[Flush]) -> Iterable[Sequence[Flush]]:
    return (flushes[at : at + BATCH_TABLES] for at in range(0, len(flushes), BATCH_TABLES))
