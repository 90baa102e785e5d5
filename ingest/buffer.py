"""Raw messages waiting per table, accounted in bytes; parsing happens when the table is flushed.

Coordinates lie in arrays, so that a waiting message costs its bytes and little more.
"""

from __future__ import annotations  # array has no subscripts at run time

from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lake.tenant import TableId

# A `bytes` object, its place in the list, its coordinates.
RECORD_OVERHEAD_BYTES = 33 + 8 + 4 + 8 + 8


class RawRecord(NamedTuple):
    """One message: `source` numbers its topic-partition, times are ms since 1970."""

    source: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    value: bytes | None  # None is a tombstone, which is not an empty value; neither is ever buffered


@dataclass(slots=True)
class TableBuffer:
    """The waiting messages of one table, in the order in which they were routed."""

    table: TableId
    since_s: float  # monotonic time of the first message
    sources: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    timestamps_ms: array[int] = field(default_factory=lambda: array("q"))
    values: list[bytes] = field(default_factory=list)
    extras: dict[int, tuple[bytes | None, Sequence[tuple[str, bytes | None]]]] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, record: RawRecord) -> int:
        """Appends a message; returns the bytes it costs."""
        if record.key is not None or record.headers:
            # Only a dead letter needs them again, but nobody knows yet whether this becomes one.
            self.extras[len(self.values)] = (record.key, record.headers)
        self.sources.append(record.source)
        self.offsets.append(record.offset)
        self.timestamps_ms.append(record.timestamp_ms)
        value = record.value or b""
        self.values.append(value)
        cost = len(value) + RECORD_OVERHEAD_BYTES
        self.size_bytes += cost
        return cost

    def __len__(self) -> int:
        return len(self.values)

    def record(self, at: int) -> RawRecord:
        key, headers = self.extras.get(at, (None, ()))
        return RawRecord(self.sources[at], self.offsets[at], self.timestamps_ms[at], key, headers, self.values[at])

    def first_offsets(self) -> dict[int, int]:
        """The lowest waiting offset per source."""
        first: dict[int, int] = {}
        for source, offset in zip(self.sources, self.offsets, strict=True):
            if offset < first.get(source, offset + 1):
                first[source] = offset
        return first


class Buffers:
    """The buffers of all tables under one budget."""

    def __init__(self) -> None:
        self._tables: dict[TableId, TableBuffer] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[TableBuffer]:
        return iter(self._tables.values())

    def add(self, table: TableId, record: RawRecord, now_s: float) -> None:
        buffer = self._tables.get(table)
        if buffer is None:
            buffer = self._tables[table] = TableBuffer(table, now_s)
        self.size_bytes += buffer.add(record)

    def take(self, table: TableId) -> TableBuffer:
        """Removes a table's buffer: what comes next starts a new one."""
        buffer = self._tables.pop(table)
        self.size_bytes -= buffer.size_bytes
        return buffer

    def due(self, now_s: float, *, interval_s: float, flush_bytes: int, excess_bytes: int, busy: Container[TableId]) -> list[TableId]:
        """Tables to flush: by age, by size, and, where `excess_bytes` have to go, the largest first. A busy one waits for its flush in flight."""
        idle = [buffer for buffer in self._tables.values() if buffer.table not in busy]
        due = {b.table for b in idle if now_s - b.since_s >= interval_s or b.size_bytes >= flush_bytes}
        excess_bytes -= sum(self._tables[table].size_bytes for table in due)
        for buffer in sorted(idle, key=lambda b: -b.size_bytes) if excess_bytes > 0 else ():
            if excess_bytes <= 0:
                break
            if buffer.table not in due:
                due.add(buffer.table)
                excess_bytes -= buffer.size_bytes
        return list(due)
