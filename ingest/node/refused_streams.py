"""New streams of tenants that have as many as they may: what comes for them becomes dead letters."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import structlog

from ingest.route.buffer import TableBuffer
from ingest.route.buffers import Buffers
from lake.clock import Clock
from lake.errors import Rejected
from lake.retention_policies import BELIEVED_S
from lake.tenant import TableId

# Names are made up by whoever sends; so many are remembered.
REFUSED_MAX = 10_000
log = structlog.get_logger()


class RefusedTables(dict[TableId, tuple[float, Rejected]]):
    """New tables of tenants with as many streams as they may: until when that is believed, and why. Not the
    tenants: some of their tables may be there, and not have been met here yet."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def note(self, refused: Mapping[TableId, Rejected]) -> None:
        """They were refused now."""
        until_s = self._clock.monotonic_s() + BELIEVED_S
        for table, why in refused.items():
            self.pop(table, None)
            self[table] = until_s, why
        for oldest in list(islice(self, max(0, len(self) - REFUSED_MAX))):
            del self[oldest]  # asked for again, should more come

    def why(self, table: TableId) -> Rejected | None:
        """Why it is not to be; None where that is not known any more."""
        until_s, why = self.get(table, (0.0, None))
        if why is not None and self._clock.monotonic_s() >= until_s:
            del self[table]
            return None
        return why


class RefusedStreams:
    """Refused tables, and those of them for which records still wait in a worker's buffers."""

    def __init__(
        self, buffers: Buffers, clock: Clock, dead_letter: Callable[[TableBuffer, Rejected], None]
    ) -> None:
        """`dead_letter`: makes dead letters of all that waits in a buffer."""
        self._buffers = buffers
        self._clock = clock
        self._dead_letter = dead_letter
        self._refused = RefusedTables(clock)
        self._waiting: OrderedDict[TableId, Rejected] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether any table is refused."""
        return bool(self._refused)

    def note(self, refused: Mapping[TableId, Rejected]) -> None:
        """They were refused now; so is what comes for them within the next minute."""
        self._refused.note(refused)
        self._waiting.update((table, why) for table, why in refused.items() if table in self._buffers)
        for tenant, streams in Counter(table.tenant for table in refused).items():
            log.warning("records.over_limit", tenant=tenant.name, streams=streams)

    def spare(self, tables: Iterable[TableId]) -> None:
        """They are there after all, or what waits for them goes another way."""
        for table in tables:
            self._waiting.pop(table, None)

    def why(self, table: TableId) -> Rejected | None:
        """Why nothing of a table is taken; None where it is."""
        return None if table in self._buffers else self._refused.why(table)

    def dead_letter_waiting(self, for_s: float) -> list[TableId]:
        """Makes dead letters of what waits, for so many seconds; returns the tables. Of tens of thousands at
        once the others' records would wait for the last one."""
        until_s, done = self._clock.monotonic_s() + for_s, list[TableId]()
        while self._waiting and self._clock.monotonic_s() <= until_s:
            table, why = self._waiting.popitem(last=False)
            if table in self._buffers:
                self._dead_letter(self._buffers.take(table), why)
                done.append(table)
        return done
