"""Raw messages waiting per table, accounted in bytes; parsing happens when the table is flushed.

Coordinates lie in arrays, so that a waiting message costs its bytes and little more.
"""

from __future__ import annotations  # array has no subscripts at run time

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from lake.errors import Reason, Rejected
from lake.tenant import TableId

# A `bytes` object, its place in the list, those of key and headers, its coordinates.
RECORD_OVERHEAD_BYTES = 33 + 8 + 8 + 8 + 4 + 8 + 8
# What a key and headers take beside their bytes: a `bytes` object; a list, and per header a pair, a name and
# a value.
KEY_OVERHEAD_BYTES, HEADERS_OVERHEAD_BYTES, HEADER_OVERHEAD_BYTES = 33, 60, 150
LARGE_BYTES = 1024 * 1024
# Kafka's timestamps are of any size.
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
# Of the time that tables with little traffic may wait, the part within which they are flushed.
COLD_SPREAD = 0.25
Headers = Sequence[tuple[str, bytes | None]]


class RawRecord(NamedTuple):
    """One message: `source` numbers its topic-partition, times are ms since 1970."""

    source: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: Headers
    value: bytes | None  # None is a tombstone, which is not an empty value; neither is ever buffered


def records_of(source: int, messages: Iterable[Message]) -> Iterator[RawRecord]:
    """Messages of one topic-partition."""
    for message in messages:
        yield RawRecord(
            source,
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.headers() or (),
            message.value(),
        )


def no_date(timestamp_ms: int) -> Rejected:
    """Why a message cannot be stored whose Kafka timestamp no calendar has."""
    return Rejected(Reason.UNDECODABLE, f"its Kafka timestamp is {timestamp_ms} ms, a time in no calendar")


def _cost_of(headers: Headers) -> int:
    return (
        HEADERS_OVERHEAD_BYTES + sum([HEADER_OVERHEAD_BYTES + len(text or b"") for _, text in headers])
        if headers
        else 0
    )


_CODEC = pa.Codec("zstd", compression_level=1)


class PackedPart(NamedTuple):
    """Messages that are in a file already, compressed, for the case that they have to be converted or parked
    once more."""

    data: bytes
    length: int  # of the data before it was compressed
    dead_lettered: frozenset[int]
    looked_at: int


@dataclass(slots=True)
class TableBuffer:
    """The waiting messages of one table, in the order in which they were routed.

    Those of a hot table are `packed` from time to time, all but the last ones; lengths, places and `record`
    are of these. `dead_lettered`: places of those that became dead letters, of the first `looked_at` ones.
    `raw_bytes`: what all of them would take unpacked.
    """

    table: TableId
    since_s: float  # monotonic time of the first message
    turn: float = (
        0.0  # of a table with little traffic, from 0 (waits as long as it may) to 1 (among the first)
    )
    sources: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    timestamps_ms: array[int] = field(default_factory=lambda: array("q"))
    values: list[bytes] = field(default_factory=list)
    # Only a dead letter or a parked message needs these again, but nobody knows yet whether this becomes one.
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    first_offsets: dict[int, int] = field(
        default_factory=dict
    )  # the lowest per source: offsets of one ascend
    size_bytes: int = 0
    raw_bytes: int = 0
    packed: list[PackedPart] = field(default_factory=list)
    dead_lettered: frozenset[int] = frozenset()
    looked_at: int = 0

    def add(
        self,
        source: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        headers: Headers,
        value: bytes | None,
    ) -> int:
        """Appends a message, given by the fields of a `RawRecord`; returns the bytes it costs."""
        value = value or b""
        cost = len(value) + RECORD_OVERHEAD_BYTES
        if key is not None:
            cost += KEY_OVERHEAD_BYTES + len(key)
        if headers:
            if self.headers and headers == self.headers[-1]:
                headers = self.headers[-1]  # as good as always: the tenant's name
            else:
                cost += _cost_of(headers)
        if source not in self.first_offsets:
            self.first_offsets[source] = offset
        self.sources.append(source)
        self.offsets.append(offset)
        self.timestamps_ms.append(timestamp_ms)
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.size_bytes += cost
        self.raw_bytes += cost
        return cost

    def extend(self, source: int, messages: Sequence[Message]) -> int:
        """Appends messages of one topic-partition that have values, in order; returns the bytes they cost."""
        values, keys = (
            [message.value() or b"" for message in messages],
            [message.key() for message in messages],
        )
        cost = sum(map(len, values)) + len(values) * RECORD_OVERHEAD_BYTES
        cost += sum(KEY_OVERHEAD_BYTES + len(key) for key in keys if key is not None)
        last: Headers = self.headers[-1] if self.headers else ()
        for message in messages:
            if (headers := message.headers() or ()) != last:
                last = headers
                cost += _cost_of(headers)
            self.headers.append(last)
        self.first_offsets.setdefault(source, messages[0].offset())
        self.sources.extend([source] * len(values))
        self.offsets.extend([message.offset() for message in messages])
        self.timestamps_ms.extend([message.timestamp()[1] for message in messages])
        self.values += values
        self.keys += keys
        self.size_bytes += cost
        self.raw_bytes += cost
        return cost

    def extend_values(self, source: int, first: int, timestamp_ms: int, values: Sequence[bytes]) -> int:
        """Appends records without keys and headers, of consecutive offsets; returns the bytes they cost."""
        count = len(values)
        cost = sum(map(len, values)) + count * RECORD_OVERHEAD_BYTES
        self.first_offsets.setdefault(source, first)
        self.sources.extend([source] * count)
        self.offsets.extend(range(first, first + count))
        self.timestamps_ms.extend([timestamp_ms] * count)
        self.values += values
        self.keys += [None] * count
        self.headers += [()] * count
        self.size_bytes += cost
        self.raw_bytes += cost
        return cost

    def __len__(self) -> int:
        return len(self.values)

    def record(self, at: int) -> RawRecord:
        return RawRecord(
            self.sources[at],
            self.offsets[at],
            self.timestamps_ms[at],
            self.keys[at],
            self.headers[at],
            self.values[at],
        )

    @property
    def undated(self) -> Set[int]:
        """Places of messages whose Kafka timestamps no calendar has: of a producer that sends micro- or
        nanoseconds, say."""
        times = np.frombuffer(self.timestamps_ms, np.int64)
        if not len(times) or (times.min() >= YEAR_1_MS and times.max() < YEAR_10000_MS):
            return frozenset()
        return set(np.flatnonzero((times < YEAR_1_MS) | (times >= YEAR_10000_MS)).tolist())

    @property
    def open_bytes(self) -> int:
        """What the messages take that are not packed."""
        return self.size_bytes - sum(len(part.data) for part in self.packed)

    def pack(self) -> int:
        """Packs the messages that are not packed yet; returns the bytes that this gives back."""
        content = pickle.dumps(
            (self.sources, self.offsets, self.timestamps_ms, self.values, self.keys, self.headers),
            pickle.HIGHEST_PROTOCOL,
        )
        freed = self.open_bytes
        self.packed.append(
            PackedPart(
                _CODEC.compress(content, asbytes=True), len(content), self.dead_lettered, self.looked_at
            )
        )
        self.sources, self.offsets, self.timestamps_ms = array("i"), array("q"), array("q")
        self.values, self.keys, self.headers, self.dead_lettered, self.looked_at = [], [], [], frozenset(), 0
        freed -= len(self.packed[-1].data)
        self.size_bytes -= freed
        return freed

    def parts(self) -> Iterator[TableBuffer]:
        """All messages, in parts of which none is packed. What a part is told to have become of its messages
        is kept when the next is asked for."""
        for at, part in enumerate(self.packed):
            content = _CODEC.decompress(part.data, part.length, asbytes=True)
            plain = TableBuffer(
                self.table, self.since_s, first_offsets=self.first_offsets, dead_lettered=part.dead_lettered
            )
            plain.sources, plain.offsets, plain.timestamps_ms, plain.values, plain.keys, plain.headers = (
                pickle.loads(content)  # noqa: S301
            )
            plain.looked_at = part.looked_at
            try:
                yield plain
            finally:
                self.packed[at] = part._replace(dead_lettered=plain.dead_lettered, looked_at=plain.looked_at)
        if self.values:
            yield self

    def alive(self) -> Iterator[RawRecord]:
        """All messages that are not dead letters, in the order in which they were routed."""
        for part in self.parts():
            yield from (part.record(at) for at in range(len(part)) if at not in part.dead_lettered)


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

    `large_bytes`: from which size on a buffer is one of the `large` ones.
    """

    def __init__(self, large_bytes: int = LARGE_BYTES) -> None:
        self._large_bytes = large_bytes
        self._tables: dict[TableId, TableBuffer] = {}  # in the order of their ages
        self._large: dict[TableId, TableBuffer] = {}
        self._started: list[TableId] = []
        self.size_bytes = 0

    def __contains__(self, table: TableId) -> bool:
        return table in self._tables

    def __len__(self) -> int:
        return len(self._tables)

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
        self.size_bytes += buffer.add(source, offset, timestamp_ms, key, headers, value)
        return self._sized(buffer)

    def extend(self, table: TableId, now_s: float, source: int, messages: Sequence[Message]) -> int:
        """Appends messages of one topic-partition, in order; returns the bytes that wait for their table."""
        if len(messages) == 1:
            return self.add(table, now_s, *next(records_of(source, messages)))
        buffer = self._of(table, now_s)
        self.size_bytes += buffer.extend(source, messages)
        return self._sized(buffer)

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
        self.size_bytes += buffer.extend_values(source, first, timestamp_ms, values)
        return self._sized(buffer)

    def _of(self, table: TableId, now_s: float) -> TableBuffer:
        buffer = self._tables.get(table)
        if buffer is None:
            buffer = self._tables[table] = TableBuffer(table, now_s, turn=hash(table) % 256 / 256)
            self._started.append(table)
        return buffer

    def _sized(self, buffer: TableBuffer) -> int:
        if buffer.raw_bytes >= self._large_bytes:
            self._large[buffer.table] = buffer
        return buffer.raw_bytes

    @property
    def large(self) -> Sequence[TableBuffer]:
        """Those with at least `large_bytes`, packed ones at their unpacked size."""
        return list(self._large.values())

    def bytes_of(self, table: TableId) -> int:
        """What waits for a table."""
        return self._tables[table].size_bytes

    def pack(self, table: TableId) -> None:
        """Packs what waits for a table."""
        self.size_bytes -= self._tables[table].pack()

    def take_started(self) -> list[TableId]:
        """Tables that got a new buffer since the last call."""
        started, self._started = self._started, []
        return started

    def take(self, table: TableId) -> TableBuffer:
        """Removes a table's buffer: what comes next starts a new one."""
        buffer = self._tables.pop(table)
        self._large.pop(table, None)
        self.size_bytes -= buffer.size_bytes
        return buffer

    def due(
        self, now_s: float, rules: FlushRules, *, excess_bytes: int, may_flush: Callable[[TableId], bool]
    ) -> list[TableId]:
        """Tables to flush: by age, by size, and, where `excess_bytes` have to go, the largest first."""
        due = {b.table: b.size_bytes for b in self._old_or_large(now_s, rules) if may_flush(b.table)}
        excess_bytes -= sum(due.values())
        for buffer in sorted(self._tables.values(), key=lambda b: -b.size_bytes) if excess_bytes > 0 else ():
            if excess_bytes <= 0:
                break
            if buffer.table not in due and may_flush(buffer.table):
                due[buffer.table] = buffer.size_bytes
                excess_bytes -= buffer.size_bytes
        return list(due)

    def _old_or_large(self, now_s: float, rules: FlushRules) -> Iterator[TableBuffer]:
        first_s, spread_s = min(rules.interval_s, rules.cold_interval_s), rules.spread_s
        for buffer in self._tables.values():
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
