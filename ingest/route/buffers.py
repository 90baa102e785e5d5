"""The buffers of all tables of a worker under one budget, and which of them are to be flushed: by age, by
size, and for their bytes those of the tenants for which most waits."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from sys import maxsize

from confluent_kafka import Message

from ingest.model.raw_rows import Headers
from ingest.route.buffer import Buffer, TableBuffer, TenantBuffers
from lake.tenant import TableId, TenantId

LARGE_BYTES = 1024 * 1024
# Of the time that tables with little traffic may wait, the part within which they are flushed.
COLD_SPREAD = 0.25
_size_bytes = attrgetter("size_bytes")
# Why tables are flushed for their bytes alone: their tenant's limit, or the worker's budget.
LIMIT, FULL = "limit", "full"


@dataclass(frozen=True, slots=True)
class FlushRules:
    """When a buffer is due. `cold_bytes`: below it a table has little traffic, and may wait up to
    `cold_interval_s`."""

    interval_s: float
    cold_interval_s: float
    flush_bytes: int
    cold_bytes: int = 64 * 1024

    @property
    def spread_s(self) -> float:
        """The last part of their time, within which tables with little traffic come one after the other.

        After a restart or an outage all of them begin to wait at the same moment.
        """
        return max(0.0, min(COLD_SPREAD * self.cold_interval_s, self.cold_interval_s - self.interval_s))


class Buffers:
    """The buffers of all tables under one budget. Looking for the few that are old or large does not touch
    all the others.

    `large_bytes`: from which size on a buffer is one of the `large` ones. `share`: how many bytes may wait
    for the tables of one tenant.
    """

    def __init__(
        self, large_bytes: int = LARGE_BYTES, share: Callable[[TenantId], int] = lambda _: maxsize
    ) -> None:
        self._large_bytes = large_bytes
        self._share = share
        self._tables: dict[TableId, TableBuffer] = {}  # in the order of their ages
        self._large: dict[TableId, TableBuffer] = {}
        self._tenants: dict[TenantId, TenantBuffers] = {}
        self._unpacked: dict[TableId, None] = {}  # with closed parts, in the order of the first
        self._over: dict[TenantId, TenantBuffers] = {}  # those for which more waits than may
        self._started: list[TableId] = []
        self.size_bytes = 0

    def __contains__(self, table: TableId) -> bool:
        return table in self._tables

    def __len__(self) -> int:
        return len(self._tables)

    def has_since(self, table: TableId, moment_s: float) -> bool:
        """Whether something has waited for a table since a moment, or longer."""
        buffer = self._tables.get(table)
        return buffer is not None and buffer.since_s <= moment_s

    def __iter__(self) -> Iterator[TableBuffer]:
        return iter(self._tables.values())

    def add(
        self,
        table: TableId,
        now_s: float,
        source: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        headers: Headers,
        value: bytes | None,
    ) -> int:
        """Appends a message, given by the fields of a `RawRecord`; returns the bytes that wait for its
        table."""
        buffer = self._of(table, now_s)
        return self._grown(buffer, buffer.add(source, offset, timestamp_ms, key, headers, value))

    def extend(self, table: TableId, now_s: float, source: int, messages: Sequence[Message]) -> int:
        """Appends messages of one topic-partition, in order; returns the bytes that wait for their table."""
        buffer = self._of(table, now_s)
        return self._grown(buffer, buffer.extend(source, messages))

    def extend_values(
        self,
        table: TableId,
        now_s: float,
        source: int,
        first: int,
        timestamp_ms: int,
        values: Sequence[bytes],
    ) -> int:
        """Appends records without keys and headers, of consecutive offsets from `first` on; returns the bytes
        that wait for their table."""
        buffer = self._of(table, now_s)
        return self._grown(buffer, buffer.extend_values(source, first, timestamp_ms, values))

    def append(
        self,
        table: TableId,
        now_s: float,
        source: int,
        first_offset: int,
        rows: Buffer,
        values: Buffer,
        envelopes: Buffer,
    ) -> int:
        """The same of messages as `TableBuffer.append` takes them."""
        buffer = self._of(table, now_s)
        return self._grown(buffer, buffer.append(source, first_offset, rows, values, envelopes))

    def _of(self, table: TableId, now_s: float) -> TableBuffer:
        buffer = self._tables.get(table)
        if buffer is None:
            of_tenant = self._tenants.get(table.tenant)
            if of_tenant is None:
                of_tenant = self._tenants[table.tenant] = TenantBuffers(table.tenant)
            of_tenant.bytes_max = self._share(table.tenant)
            buffer = TableBuffer(table, now_s, turn=hash(table) % 256 / 256, of_tenant=of_tenant)
            self._tables[table] = of_tenant.tables[table] = buffer
            self._started.append(table)
        return buffer

    def _grown(self, buffer: TableBuffer, cost: int) -> int:
        """Takes note of bytes that a buffer has got; returns those that wait for its table."""
        of_tenant = buffer.of_tenant
        self.size_bytes += cost
        of_tenant.size_bytes += cost
        if of_tenant.size_bytes > of_tenant.bytes_max:
            self._over[buffer.table.tenant] = of_tenant
        if buffer.raw_bytes >= self._large_bytes:
            self._large[buffer.table] = buffer
        return buffer.raw_bytes

    @property
    def large(self) -> Sequence[TableBuffer]:
        """Those with at least `large_bytes`, packed ones at their unpacked size."""
        return list(self._large.values())

    def close_part(self, table: TableId) -> None:
        """Keeps what waits for a table apart from what comes."""
        self._tables[table].close_part()
        self._unpacked[table] = None

    def pack_beyond(self, size_bytes: int) -> None:
        """Packs closed parts: of tenants for which more waits than may, and where more than so many bytes
        wait for all, first of the table of which one was closed longest ago."""
        for table in list(self._unpacked):
            buffer = self._tables[table]
            of_tenant = buffer.of_tenant
            while self.size_bytes > size_bytes or of_tenant.size_bytes > of_tenant.bytes_max:
                if all(part.is_packed for part in buffer.closed):
                    del self._unpacked[table]
                    break
                freed = buffer.pack(1)
                self.size_bytes -= freed
                of_tenant.size_bytes -= freed

    def take_started(self) -> list[TableId]:
        """Tables that got a new buffer since the last call."""
        started, self._started = self._started, []
        return started

    def note_known(self, table: TableId, *, is_known: bool) -> None:
        """Whether it is known how to write for a table, if anything waits for it. Before that, of tens of
        thousands of new ones, it is not looked at again and again."""
        if (buffer := self._tables.get(table)) is not None:
            buffer.is_known = is_known

    def take(self, table: TableId) -> TableBuffer:
        """Removes a table's buffer: what comes next starts a new one."""
        buffer = self._tables.pop(table)
        self._large.pop(table, None)
        self._unpacked.pop(table, None)
        self.size_bytes -= buffer.size_bytes
        of_tenant = buffer.of_tenant
        of_tenant.size_bytes -= buffer.size_bytes
        del of_tenant.tables[table]
        if not of_tenant.tables:
            del self._tenants[table.tenant]
        return buffer

    def due(
        self, now_s: float, rules: FlushRules, *, excess_bytes: int, may_flush: Callable[[TableId], bool]
    ) -> dict[TableId, str]:
        """Tables to flush, with why: by age or size (empty), the largest of tenants for which more waits than
        may (`LIMIT`), and where `excess_bytes` have to go the largest of those for which most waits
        (`FULL`)."""
        due = {b.table: b.size_bytes for b in self._old_or_large(now_s, rules) if may_flush(b.table)}
        whys = dict.fromkeys(due, "")
        for why, early in (
            (LIMIT, self._over_share(due, may_flush)),
            (FULL, self._excess(due, excess_bytes, may_flush)),
        ):
            found = {buffer.table: buffer.size_bytes for buffer in early}
            due |= found
            whys |= dict.fromkeys(found, why)
        return whys

    def _over_share(
        self, due: dict[TableId, int], may_flush: Callable[[TableId], bool]
    ) -> Iterator[TableBuffer]:
        """The largest tables of tenants for which more waits than may."""
        self._over = {name: each for name, each in self._over.items() if each.size_bytes > each.bytes_max}
        for of_tenant in self._over.values():
            left = of_tenant.size_bytes - sum(due.get(table, 0) for table in of_tenant.tables)
            for buffer in _largest(of_tenant, due, may_flush):
                if left <= of_tenant.bytes_max:
                    break
                left -= buffer.size_bytes
                yield buffer

    def _excess(
        self, due: dict[TableId, int], excess_bytes: int, may_flush: Callable[[TableId], bool]
    ) -> Iterator[TableBuffer]:
        """Tables without which so many bytes less wait: the largest of the tenant for which most waits, as
        long as that is so. Where none of its tables can go now, no others go in their place."""
        excess_bytes -= sum(due.values())
        if excess_bytes <= 0:
            return
        gone = Counter[TenantId]()
        for table, size_bytes in due.items():
            gone[table.tenant] += size_bytes
        by_size = sorted(self._tenants.values(), key=_size_bytes)
        # Those that are looked at have their place in a heap, by what is left of them; most never are.
        heap = list[tuple[int, TenantId, Iterator[TableBuffer]]]()
        while excess_bytes > 0:
            while by_size and (not heap or by_size[-1].size_bytes >= -heap[0][0]):
                of_tenant = by_size.pop()
                left = of_tenant.size_bytes - gone[of_tenant.name]
                heappush(heap, (-left, of_tenant.name, _largest(of_tenant, due, may_flush)))
            if not heap:
                return
            size_bytes, name, tables = heap[0]
            if (buffer := next(tables, None)) is not None:
                excess_bytes -= buffer.size_bytes
                heapreplace(heap, (size_bytes + buffer.size_bytes, name, tables))
                yield buffer
                continue
            heappop(heap)
            of_next = max(-heap[0][0] if heap else 0, by_size[-1].size_bytes if by_size else 0)
            excess_bytes -= -size_bytes - of_next

    def _old_or_large(self, now_s: float, rules: FlushRules) -> Iterator[TableBuffer]:
        first_s, spread_s = min(rules.interval_s, rules.cold_interval_s), rules.spread_s
        for buffer in self._tables.values():
            if not buffer.is_known:
                continue
            age_s = now_s - buffer.since_s
            if age_s < first_s:
                break  # those behind it are younger
            if age_s >= (
                rules.interval_s
                if buffer.size_bytes >= rules.cold_bytes
                else rules.cold_interval_s - spread_s * buffer.turn
            ):
                yield buffer
        yield from (buffer for buffer in self._large.values() if buffer.raw_bytes >= rules.flush_bytes)

    def oldest(self, source: int) -> TableBuffer | None:
        """The buffer with the lowest offset of a source."""
        holding = [buffer for buffer in self._tables.values() if source in buffer.first_offsets]
        return min(holding, key=lambda buffer: buffer.first_offsets[source], default=None)


def _largest(
    of_tenant: TenantBuffers, due: Mapping[TableId, int], may_flush: Callable[[TableId], bool]
) -> Iterator[TableBuffer]:
    """Those of a tenant's tables that can be flushed and are not due yet, the largest first."""
    free = [each for each in of_tenant.tables.values() if each.table not in due and may_flush(each.table)]
    yield from sorted(free, key=lambda each: -each.size_bytes)
