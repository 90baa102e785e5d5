"""Keyed tables whose flushes are to be committed: which rows go is found out in threads, while others
commit."""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from ingest.commit.key_resolution import Resolution, resolve
from ingest.commit.keyed_table import KeyedTable
from ingest.commit.live_rows import LiveRowsReader
from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_index_store import KeyIndexStore
from ingest.model.link import WrittenFlush
from ingest.model.trouble import Cause, Trouble, trouble_of
from lake.clock import Clock
from lake.commit import TableState
from lake.errors import FirnError
from lake.isolation import isolate
from lake.log_schema import LogSchema
from lake.storage import Storage
from lake.tenant import TableId

PAUSE_S = 1.0


@dataclass(slots=True)
class Running:
    """A resolution under way: on which head, for which flushes."""

    head: int | None
    flushes: tuple[WrittenFlush, ...]
    future: Future[Resolution]


def _is(one: object, other: object) -> bool:
    return one is other


@dataclass
class Resolutions:
    """One thread calls it; only `_resolve` runs in others."""

    storage: Storage
    store: KeyIndexStore
    pool: Executor
    clock: Clock
    _live_rows: LiveRowsReader = field(init=False)
    _reader: ColumnReader = field(init=False)
    _running: dict[TableId, Running] = field(default_factory=dict)
    _not_before_s: dict[TableId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._live_rows = LiveRowsReader(self.storage)
        self._reader = ColumnReader(self.storage)

    def take(
        self, table: TableId, state: TableState, schema: LogSchema, flushes: Sequence[WrittenFlush]
    ) -> Resolution | Trouble | None:
        """What the flushes do to the table as it is, once that is known; None until then. Kept until another
        state or other flushes are asked for. `schema`: the one after the commit."""
        if self.clock.monotonic_s() < self._not_before_s.get(table, 0.0):
            return None
        running = self._running.get(table)
        if running is None or not self._answers(running, state, flushes):
            future = self.pool.submit(self._resolve, state, schema, tuple(flushes))
            self._running[table] = Running(state.head, tuple(flushes), future)
            return None
        return self._outcome(table, running.future) if running.future.done() else None

    def _answers(self, running: Running, state: TableState, flushes: Sequence[WrittenFlush]) -> bool:
        """Whether it is what is asked for now: positions are right on the head they were found on alone."""
        return self._is_of(running, flushes) and running.head == state.head

    def _is_of(self, running: Running, flushes: Sequence[WrittenFlush]) -> bool:
        return len(flushes) == len(running.flushes) and all(map(_is, flushes, running.flushes))

    def _outcome(self, table: TableId, future: Future[Resolution]) -> Resolution | Trouble:
        try:
            # Whatever somebody has written into the files of a table, it must not stop the others.
            with isolate("table.not_resolved", foreseen=(FirnError,), table=str(table)) as outcome:
                return future.result()
        except FirnError as error:
            trouble = trouble_of(error, Cause.STORAGE)
        else:
            sentence = f"table {table}: the rows of its keys cannot be found ({outcome.error!r})"
            trouble = Trouble(Cause.FAILING, sentence)
        self.forget(table)
        self._not_before_s[table] = self.clock.monotonic_s() + PAUSE_S
        return trouble

    def forget(self, table: TableId) -> None:
        """The flushes of a table are committed, or given up."""
        self._running.pop(table, None)
        self._not_before_s.pop(table, None)

    def _resolve(self, state: TableState, schema: LogSchema, flushes: Sequence[WrittenFlush]) -> Resolution:
        live = self._live_rows.read(state)
        table = KeyedTable(state, schema, live, self.store, self.storage, self._reader)
        found = resolve(table, flushes)
        self._live_rows.keep(found.positions)
        return found
