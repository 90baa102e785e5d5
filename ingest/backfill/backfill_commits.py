"""The half of a backfill that is the same whatever it reads: what waits for tables is written and committed,
and waited for.

The order of durability is that of live ingestion: 1 data files synced - 2 dead letters acknowledged - 3
tables committed, each with its marks. There is no 4: the marks of the backfill say where it goes on, so a run
that was killed is simply run again.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from ingest.backfill.backfill_report import BackfillReport
from ingest.commit.committer import Committer
from ingest.commit.flush_lifecycle import Flushes
from ingest.commit.table_states import TableStates
from ingest.model.fault_point import reach
from ingest.model.link import Outcome
from ingest.model.source import Source
from ingest.model.trouble import VERDICTS, Trouble
from ingest.route.buffer import RawRecord
from ingest.route.buffers import Buffers
from ingest.write.flush_writer import TABLE_DELETED, Flush, FlushWriter, cut_flush, grouped
from lake.clock import Clock
from lake.commit import TableState
from lake.errors import FatalError, UnavailableError
from lake.log_schema import WantedColumn
from lake.tenant import TableId

# One table is converted as a whole; all together wait as raw bytes, of which half the budget is theirs and
# half is for the conversion.
TABLE_BYTES = 64 * 1024 * 1024
STEP_S = 0.005
# What may pass by itself is waited for so long, per commit.
DEADLINE_S = 120.0
log = structlog.get_logger()


class ChangedMeanwhileError(FatalError):
    """What is read is not what it was a moment ago: nothing of it that is not committed may be."""


@dataclass
class Columns:
    """Hands out columns straight from what the committer knows."""

    states: TableStates

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        return {table: self.states.grow(table, new) for table, new in names.items()}


class Origin(Protocol):
    """Where the records come from."""

    def check(self) -> None:
        """Before anything is committed: raises ChangedMeanwhileError where what was read may not be what was
        meant, UnavailableError."""

    def check_state(self, state: TableState, flush: Flush) -> None:
        """Before a flush is written: raises ChangedMeanwhileError where the table has committed something
        else of the same source."""

    def end(self, table: TableId, source: int) -> int:
        """The offset after the last one of a source that was routed, as far as it is this backfill's to bring
        into a table."""


@dataclass
class BackfillCommits:
    """What waits, by table, and its way into the tables. `keep_alive` is called again and again, and raises
    where the run has to end."""

    states: TableStates
    committer: Committer
    writer: FlushWriter
    report: BackfillReport
    keep_alive: Callable[[], None]
    bytes_max: int
    sources: list[Source] = field(default_factory=list)
    _buffers: Buffers = field(default_factory=Buffers)
    _flushes: Flushes[Flush] = field(default_factory=Flushes)

    @property
    def is_empty(self) -> bool:
        return not len(self._buffers)

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may."""
        return self._buffers.size_bytes >= self.bytes_max // 2

    def add(self, table: TableId, record: RawRecord) -> bool:
        """Takes a record; whether so much waits for its table that it is to be flushed now."""
        return self._buffers.add(table, self.states.clock.monotonic_s(), *record) >= TABLE_BYTES

    def extend(
        self, table: TableId, source: int, first: int, timestamp_ms: int, values: Sequence[bytes]
    ) -> bool:
        """The same of records that follow each other, from the number `first` on."""
        now_s = self.states.clock.monotonic_s()
        return self._buffers.extend_values(table, now_s, source, first, timestamp_ms, values) >= TABLE_BYTES

    def open(self, tables: Iterable[TableId]) -> None:
        """Returns when all these tables are known."""
        missing = {table for table in tables if self.states.last_known(table) is None}
        deadline = _Deadline(self.states.clock)
        self.states.want(missing)
        while missing:
            arrivals = self.states.poll()
            missing.difference_update(arrivals.known)
            for table, trouble in arrivals.failed:
                deadline.failed(table, trouble)
            if missing:
                self._wait()

    def flush(self, origin: Origin, tables: Sequence[TableId] | None = None) -> None:
        """Writes and commits what waits for these tables, or for all; returns when it is durable."""
        origin.check()
        if tables is None:
            tables = [buffer.table for buffer in self._buffers]
        # A group is converted as a whole.
        for group in grouped((self._cut(origin, table) for table in tables), TABLE_BYTES):
            self._commit(origin, group)

    def _cut(self, origin: Origin, table: TableId) -> Flush:
        flush = cut_flush(self._buffers.take(table), self.sources, partial(origin.end, table))
        self._flushes.begin(flush)
        return flush

    def _commit(self, origin: Origin, to_write: Sequence[Flush]) -> None:
        deadline = _Deadline(self.states.clock)
        while len(self._flushes):
            if to_write:
                self._hand_over(origin, to_write, deadline)
            to_write = [*self._settled(deadline), *self._flushes.due(self.states.clock.monotonic_s())]
            if len(self._flushes) and not to_write:
                self._wait()

    def _hand_over(self, origin: Origin, flushes: Sequence[Flush], deadline: "_Deadline") -> None:
        for flush in flushes:
            origin.check_state(self._state(flush.table), flush)
        views = {flush.table: self.states.view(flush.table) for flush in flushes}
        written = self.writer.write(flushes, self.sources, views)  # 1, 2
        reach("dead_letters_acknowledged")
        self._flushes.written(written, self.states.clock.monotonic_s())
        for flush, trouble in written.stuck:
            deadline.failed(flush.table, trouble)
        self.committer.submit(0, written.flushes)  # 3
        reach("handed_over")

    def _state(self, table: TableId) -> TableState:
        state = self.states.last_known(table)
        assert state is not None
        return state

    def _settled(self, deadline: "_Deadline") -> list[Flush]:
        """Takes note of what became of flushes; returns those to be written again."""
        self.keep_alive()
        arrivals, step = self.states.poll(), self.committer.step()
        for table, trouble in [*arrivals.failed, *step.failed]:
            deadline.failed(table, trouble)
        again = []
        for _, table, outcome, _ in step.settled:
            flush = self._flushes.settled(table, outcome)
            if outcome is Outcome.REDO:
                again.append(flush.cut)
            elif outcome is Outcome.DEAD_LETTER:
                self.writer.dead_letter_all(flush.cut.buffer, self.sources, TABLE_DELETED)
                self.writer.acknowledged()
            else:
                self.report.rows += flush.rows
                self.report.commits += 1
        if step.settled:
            reach("settled")
        return again

    def _wait(self) -> None:
        self.keep_alive()
        time.sleep(STEP_S)


@dataclass
class _Deadline:
    """How long a commit may take."""

    clock: Clock
    until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.until_s = self.clock.monotonic_s() + DEADLINE_S

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """Raises FatalError for what does not pass by itself, UnavailableError when it has lasted too
        long."""
        log.warning(
            "backfill.table_fails", table=str(table), cause=trouble.cause.value, reason=trouble.sentence
        )
        if trouble.cause in VERDICTS:
            raise FatalError(
                f"table {table} takes no rows ({trouble.cause.value}): {trouble.sentence}. Mend that, then "
                "run it again"
            )
        if self.clock.monotonic_s() > self.until_s:
            raise UnavailableError(
                f"table {table} takes no rows for now: {trouble.sentence}. Run it again: it goes on where it "
                "stands"
            )
