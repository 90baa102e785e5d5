"""Raw messages waiting per table, accounted in bytes; parsing happens when the table is flushed.

All lies one behind the other as bytes (`ingest/model/raw_rows.py`), so that a waiting message costs these and
little more.
"""

from __future__ import annotations  # array has no subscripts at run time

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from ingest.model.over_limit import OverLimit
from ingest.model.raw_rows import (
    NO_ENVELOPE,
    ROW,
    ByteValues,
    Envelope,
    Headers,
    RawRows,
    consecutive_rows,
    pack_envelope,
)
from lake.errors import Reason, Rejected
from lake.tenant import TableId

# Of a message, beside its value and its envelope.
RECORD_OVERHEAD_BYTES = ROW.size
LARGE_BYTES = 1024 * 1024
Buffer = bytes | memoryview
# Kafka's timestamps are of any size.
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
# Of the time that tables with little traffic may wait, the part within which they are flushed.
COLD_SPREAD = 0.25


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


def records_in(read: RawRows) -> Iterator[RawRecord]:
    """Messages that lie together as bytes."""
    for at in range(len(read)):
        key, headers = read.opened[at]
        yield RawRecord(
            read.sources[at], read.offsets[at], read.timestamps_ms[at], key, headers or (), read.value(at)
        )


def no_date(timestamp_ms: int) -> Rejected:
    """Why a message cannot be stored whose Kafka timestamp no calendar has."""
    return Rejected(Reason.UNDECODABLE, f"its Kafka timestamp is {timestamp_ms} ms, a time in no calendar")


_CODEC = pa.Codec("zstd", compression_level=1)


class PackedPart(NamedTuple):
    """Messages that are in a file already, compressed, for the case that they have to be converted or parked
    once more."""

    data: bytes
    sizes: tuple[int, int, int]  # of rows, values and envelopes before they were compressed
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
    _rows: bytearray = field(default_factory=bytearray)
    _values: bytearray = field(default_factory=bytearray)
    # Only changes, dead letters and parked messages need these, but nobody knows yet which become some.
    _envelopes: bytearray = field(default_factory=bytearray)
    _last: Envelope | None = NO_ENVELOPE  # of the newest message, where it is known
    _read: RawRows | None = None  # as long as nothing is added
    first_offsets: dict[int, int] = field(
        default_factory=dict
    )  # the lowest per source: offsets of one ascend
    size_bytes: int = 0
    raw_bytes: int = 0
    packed: list[PackedPart] = field(default_factory=list)
    dead_lettered: frozenset[int] = frozenset()
    looked_at: int = 0
    over: OverLimit | None = None  # what of it its tenant's limit leaves no room for
    kept: object = None  # which times its table keeps (a `KeptTimes`), from its first conversion on

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
        return self._add(source, [offset], [timestamp_ms], [key], [headers], [value or b""])

    def extend(self, source: int, messages: Sequence[Message]) -> int:
        """Appends messages of one topic-partition, in order; returns the bytes they cost."""
        return self._add(
            source,
            [message.offset() for message in messages],
            [message.timestamp()[1] for message in messages],
            [message.key() for message in messages],
            [message.headers() or () for message in messages],
            [message.value() or b"" for message in messages],
        )

    def _add(
        self,
        source: int,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        all_headers: Sequence[Headers],
        values: Sequence[bytes],
    ) -> int:
        envelopes, sizes, is_known = list[bytes](), list[int](), self._last is not None
        last_key, last_headers = self._last or NO_ENVELOPE
        for key, headers in zip(keys, all_headers, strict=True):
            if is_known and key == last_key and headers == last_headers:
                sizes.append(0)
            else:
                is_known, last_key, last_headers = True, key, headers
                envelopes.append(pack_envelope(key, headers))
                sizes.append(len(envelopes[-1]))
        rows = map(ROW.pack, offsets, timestamps_ms, map(len, values), sizes, repeat(source), repeat(0))
        cost = self.append(source, offsets[0], b"".join(rows), b"".join(values), b"".join(envelopes))
        self._last = Envelope(last_key, last_headers)
        return cost

    def append(self, source: int, first_offset: int, rows: Buffer, values: Buffer, envelopes: Buffer) -> int:
        """Appends messages of one topic-partition, in order, as `raw_rows` spells them, the first with its
        envelope; returns the bytes they cost."""
        self._read = self._last = None
        if source not in self.first_offsets:
            self.first_offsets[source] = first_offset
        self._rows += rows
        self._values += values
        self._envelopes += envelopes
        cost = len(rows) + len(values) + len(envelopes)
        self.size_bytes += cost
        self.raw_bytes += cost
        return cost

    def extend_values(self, source: int, first: int, timestamp_ms: int, values: Sequence[bytes]) -> int:
        """Appends records without keys and headers, of consecutive offsets; returns the bytes they cost."""
        together = ByteValues.of(values)
        envelope = b"" if self._last == NO_ENVELOPE else pack_envelope(None, ())
        rows = consecutive_rows(source, first, timestamp_ms, together.sizes, len(envelope))
        cost = self.append(source, first, rows, together.text, envelope)
        self._last = NO_ENVELOPE
        return cost

    def join(self, other: TableBuffer) -> None:
        """Appends what waits in another buffer and is not packed, without envelopes."""
        self._read = self._last = None
        self._rows += other._rows
        self._values += other._values
        self.first_offsets = other.first_offsets | self.first_offsets

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    @property
    def read(self) -> RawRows:
        """The messages that are not packed; nothing may be added while somebody has a part of these."""
        if self._read is None:
            self._read = RawRows(self._rows, self._values, self._envelopes)
        return self._read

    @property
    def sources(self) -> array[int]:
        return self.read.sources

    @property
    def offsets(self) -> array[int]:
        return self.read.offsets

    @property
    def timestamps_ms(self) -> array[int]:
        return self.read.timestamps_ms

    @property
    def values(self) -> ByteValues:
        return self.read.values

    @property
    def value_bytes(self) -> int:
        """Of all values that are not packed."""
        return len(self._values)

    @property
    def envelopes(self) -> Sequence[Envelope]:
        return self.read.opened

    def record(self, at: int) -> RawRecord:
        read = self.read
        key, headers = read.opened[at]
        return RawRecord(
            read.sources[at], read.offsets[at], read.timestamps_ms[at], key, headers or (), read.values[at]
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
        content = b"".join((self._rows, self._values, self._envelopes))
        sizes = len(self._rows), len(self._values), len(self._envelopes)
        freed = self.open_bytes
        self.packed.append(
            PackedPart(_CODEC.compress(content, asbytes=True), sizes, self.dead_lettered, self.looked_at)
        )
        self._rows, self._values, self._envelopes = bytearray(), bytearray(), bytearray()
        self._read, self._last = None, NO_ENVELOPE
        self.dead_lettered, self.looked_at = frozenset(), 0
        freed -= len(self.packed[-1].data)
        self.size_bytes -= freed
        return freed

    def parts(self) -> Iterator[TableBuffer]:
        """All messages, in parts of which none is packed. What a part is told to have become of its messages
        is kept when the next is asked for."""
        for at, part in enumerate(self.packed):
            content = memoryview(_CODEC.decompress(part.data, sum(part.sizes), asbytes=True))
            plain = TableBuffer(
                self.table,
                self.since_s,
                first_offsets=self.first_offsets,
                dead_lettered=part.dead_lettered,
                kept=self.kept,
                over=self.over,
            )
            rows, values, _ = part.sizes
            plain._rows += content[:rows]
            plain._values += content[rows : rows + values]
            plain._envelopes += content[rows + values :]
            plain.looked_at = part.looked_at
            try:
                yield plain
            finally:
                self.packed[at] = part._replace(dead_lettered=plain.dead_lettered, looked_at=plain.looked_at)
        if self._rows:
            yield self

    def alive(self) -> Iterator[RawRecord]:
        """All messages that are not dead letters, in the order in which they were routed."""
        for part in self.parts():
            yield from (
                record for at, record in enumerate(records_in(part.read)) if at not in part.dead_lettered
            )


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
        self.size_bytes += buffer.append(source, first_offset, rows, values, envelopes)
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
