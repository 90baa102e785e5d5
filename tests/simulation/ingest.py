"""The node's part of the simulation: records are buffered, converted, written and committed by the real
classes, for many tables at once. What is not there are processes and Kafka: the node's loop turns here,
and dead letters are counted."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from ingest.commit.committer import Committer
from ingest.commit.purged_lives import PurgedLives
from ingest.commit.table_states import NewTables, TableStates
from ingest.model.link import Outcome
from ingest.model.source import Source
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.write.catalog_retentions import CatalogRetentions
from ingest.write.flush_writer import Flush, FlushWriter, cut_flush
from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient
from lake.clock import Clock, epoch_ms
from lake.errors import FatalError, Rejected, UnavailableError
from lake.log_schema import WantedColumn
from lake.relief import Bounds
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId
from tests.simulation.counted import Costs

SOURCES = (Source("simulated", "simulated-topic", 0, "json"),)
TABLES_PER_MINUTE = 1_000_000
STUCK_S = 120.0  # of the machine: then something is wrong
ATTEMPTS = 10
_TURN_S = 0.001


@dataclass
class CountedLetters:
    """Where dead letters go: they are counted by their reasons."""

    reasons: Counter[str] = field(default_factory=Counter)

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        self.reasons[rejected.reason.value] += 1

    def flush(self, _: Collection[str] | None = None, /) -> None:
        """All are counted."""

    def mark(self) -> int:
        """A mark, of which there is no need."""
        return 0

    def reached(self, _: int, __: float, /) -> bool:
        """All are counted."""
        return True


class Node:
    """Writes and commits what comes. `rows`: how many were committed."""

    def __init__(self, catalog: CatalogClient, storage: AnyStorage, clock: Clock, pool: Executor) -> None:
        settings, warehouse = IngestSettings(), catalog.warehouse
        if warehouse is None:
            raise UnavailableError("the catalog does not say where tables go")
        self.letters, self.rows = CountedLetters(), 0
        self._clock, self._next_offset = clock, 0
        new = NewTables(TABLES_PER_MINUTE, clock)
        self.states = TableStates(catalog, storage, warehouse, None, pool, clock, 30.0, new, lease="")
        bounds = Bounds(settings.commit.snapshots_max, settings.commit.manifests_max)
        self.committer = Committer(self.states, pool, clock, 30.0, "park", "simulation", bounds)
        retentions = CatalogRetentions(lambda: catalog, clock)
        self.purged = PurgedLives(self.states.lives, catalog, pool, clock)
        self._writer = FlushWriter(
            settings, self, self.letters, storage, write_files, retentions=retentions, clock=clock
        )

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        """Hands out columns, as the main process does."""
        return {table: self.states.grow(table, wanted) for table, wanted in names.items()}

    def take(self, bodies: Mapping[TableId, Sequence[bytes]], costs: Costs) -> int:
        """Writes and commits records of many tables, one flush of each; returns how many rows they are by
        now."""
        before = self.rows
        for table in self.purged.take():
            self.committer.reliefs.forget(table)
        with costs.of("flush") as done:
            self._know(bodies)
            todo = [self._buffered(table, records) for table, records in bodies.items()]
            done.append(len(todo))
            flushes = [self._cut(buffer) for buffer in todo]
            written = self._write(flushes)
        for _ in range(ATTEMPTS):
            with costs.of("commit") as done:
                outcomes = self._committed(written)
                done.append(len(written))
            again = [table for table, outcome in outcomes.items() if outcome is Outcome.REDO]
            if not again:
                return self.rows - before
            written = self._write([flush for flush in flushes if flush.table in again])
        raise FatalError(f"{len(again)} tables changed all the time, {again[0]} for one")

    def _know(self, tables: Iterable[TableId]) -> None:
        """Has tables loaded of which nothing is known, as they are asked for by workers."""
        unknown = {table for table in tables if self.states.last_known(table) is None}
        self.states.want(unknown)
        until_s = time.monotonic() + STUCK_S
        while unknown:
            arrivals = self.states.poll()
            if arrivals.failed or arrivals.refused:
                raise FatalError(f"tables could not be loaded: {arrivals}")
            unknown.difference_update(arrivals.known)
            self._turn(until_s, "tables to be known")

    def _buffered(self, table: TableId, records: Sequence[bytes]) -> TableBuffer:
        buffer = TableBuffer(table, self._clock.monotonic_s())
        buffer.extend_values(0, self._next_offset, epoch_ms(self._clock.now()), list(records))
        self._next_offset += len(records)
        return buffer

    def _cut(self, buffer: TableBuffer) -> Flush:
        end = buffer.offsets[-1] + 1
        return cut_flush(buffer, SOURCES, lambda _: end)

    def _write(self, flushes: Sequence[Flush]) -> list[Any]:
        views = {flush.table: self.states.view(flush.table) for flush in flushes}
        written = self._writer.write(flushes, SOURCES, views)
        if written.stuck:
            raise FatalError(
                f"{len(written.stuck)} flushes could not be written, {written.stuck[0][1]} for one"
            )
        return written.flushes

    def _committed(self, written: Sequence[Any]) -> dict[TableId, Outcome]:
        self.committer.submit(0, written)
        outcomes, rows = dict[TableId, Outcome](), {flush.table: flush.rows for flush in written}
        until_s = time.monotonic() + STUCK_S
        while len(outcomes) < len(written):
            arrivals, step = self.states.poll(), self.committer.step()
            if arrivals.failed or step.failed:
                raise FatalError(f"tables could not be committed: {[*arrivals.failed, *step.failed]}")
            outcomes |= {table: outcome for _, table, outcome, _ in step.settled}
            self._turn(until_s, "flushes to be settled")
        self.rows += sum(rows[table] for table, outcome in outcomes.items() if outcome is Outcome.DONE)
        return outcomes

    def _turn(self, until_s: float, what: str) -> None:
        if time.monotonic() > until_s:
            raise FatalError(f"waited {STUCK_S:.0f} s for {what}")
        time.sleep(_TURN_S)
