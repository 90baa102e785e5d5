"""Raw messages waiting per table, accounted in bytes; parsing happens when the table is flushed.

All lies one behind the other as bytes (`ingest/model/raw_rows.py`), so that a waiting message costs these and
little more.
"""

from __future__ import annotations  # array has no subscripts at run time

from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat
from sys import maxsize
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from ingest.model.over_limit import OverLimit
from ingest.model.raw_rows import (
    NO_ENVELOPE,
    NO_VALUE,
    ROW,
    ByteValues,
    Envelope,
    Headers,
    PieceValues,
    RawRows,
    consecutive_rows,
    open_envelope,
    pack_envelope,
)
from lake.errors import Reason, Rejected
from lake.tenant import TableId, TenantId

# Of a message, beside its value and its envelope.
RECORD_OVERHEAD_BYTES = ROW.size
# A piece costs 57 bytes beside what it holds. So small ones are put together where they are many, and a part
# of what is together already: else that would be copied for each few of them.
PIECES_MAX, SMALL_PIECE_BYTES, TOGETHER_PER_PIECES = 64, 1_024, 8
Buffer = bytes | bytearray | memoryview
# Kafka's timestamps are of any size.
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


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


def records_in(rows: Buffer, values: Buffer, envelopes: Buffer) -> Iterator[RawRecord]:
    """Messages that lie together as bytes, as `raw_rows` spells them. Without `RawRows`, which costs more
    than a few messages do."""
    (key, headers), value_at, envelope_at = NO_ENVELOPE, 0, 0
    with memoryview(values) as all_values, memoryview(envelopes) as all_envelopes:
        for offset, timestamp_ms, size, envelope, source, _ in ROW.iter_unpack(rows):
            if envelope:
                key, headers = open_envelope(all_envelopes[envelope_at : envelope_at + envelope])
                envelope_at += envelope
            value = None
            if size != NO_VALUE:
                value = bytes(all_values[value_at : value_at + size])
                value_at += size
            yield RawRecord(source, offset, timestamp_ms, key, headers or (), value)


def no_date(timestamp_ms: int) -> Rejected:
    """Why a message cannot be stored whose Kafka timestamp no calendar has."""
    return Rejected(Reason.UNDECODABLE, f"its Kafka timestamp is {timestamp_ms} ms, a time in no calendar")


_CODEC = pa.Codec("zstd", compression_level=1)
BLOCK_BYTES = 1024 * 1024  # of smaller pieces so much is packed together


class Stretch(NamedTuple):
    """Bytes, compressed or as they are, and how many they are."""

    data: Buffer
    size: int
    is_packed: bool = False

    @classmethod
    def packed(cls, content: Buffer) -> Stretch:
        return cls(_CODEC.compress(content, asbytes=True), len(content), True)

    def open(self) -> Buffer:
        return bytes(_CODEC.decompress(self.data, self.size, asbytes=True)) if self.is_packed else self.data


class ClosedPart(NamedTuple):
    """Messages of a hot table, most of them in a file already, kept for the case that they have to be
    converted or parked once more."""

    rows: Stretch
    values: Sequence[Stretch]
    envelopes: Stretch
    dead_lettered: frozenset[int]
    looked_at: int

    @property
    def size_bytes(self) -> int:
        return sum(len(each.data) for each in (self.rows, *self.values, self.envelopes))

    @property
    def value_bytes(self) -> int:
        """Of the values, whether or not they are compressed."""
        return sum(each.size for each in self.values)

    @property
    def is_packed(self) -> bool:
        return self.rows.is_packed

    def packed(self) -> ClosedPart:
        """The same, compressed."""
        blocks = _blocks([bytes(each.data) for each in self.values])
        return self._replace(
            rows=Stretch.packed(self.rows.data),
            values=[Stretch.packed(b"".join(block)) for block in blocks],
            envelopes=Stretch.packed(self.envelopes.data),
        )


def _blocks(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    block, size = list[bytes](), 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


NOBODY = TenantId("")  # whose a buffer is that stands alone


@dataclass(slots=True, eq=False)
class TenantBuffers:
    """What waits for all tables of one tenant, and how many bytes of it may."""

    name: TenantId = NOBODY
    size_bytes: int = 0
    bytes_max: int = maxsize
    tables: dict[TableId, TableBuffer] = field(default_factory=dict)


@dataclass(slots=True)
class TableBuffer:
    """The waiting messages of one table, in the order in which they were routed.

    Those of a hot table that are in a file are in `closed` parts, packed where memory is wanted; lengths,
    places and `record` are of the others. `dead_lettered`: places of those that became dead letters, of the
    first `looked_at` ones. `raw_bytes`: what all of them would take unpacked.
    """

    table: TableId
    since_s: float  # monotonic time of the first message
    turn: float = (
        0.0  # of a table with little traffic, from 0 (waits as long as it may) to 1 (among the first)
    )
    is_known: bool = True  # how to write for its table; else nobody has to look whether it is due
    of_tenant: TenantBuffers = field(default_factory=TenantBuffers, repr=False, compare=False)
    _rows: bytearray = field(default_factory=bytearray)
    # In pieces as they came: one text that grows is copied time and again.
    _values: list[bytes] = field(default_factory=list)
    # Only changes, dead letters and parked messages need these, but nobody knows yet which become some.
    _envelopes: bytearray = field(default_factory=bytearray)
    _last: Envelope | None = NO_ENVELOPE  # of the newest message, where it is known
    _read: RawRows | None = None  # as long as nothing is added
    first_offsets: dict[int, int] = field(
        default_factory=dict
    )  # the lowest per source: offsets of one ascend
    size_bytes: int = 0
    raw_bytes: int = 0
    value_bytes: int = 0  # of those that are in no closed part
    closed: list[ClosedPart] = field(default_factory=list)
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
        return self._add(source, [offset], [timestamp_ms], [key], [headers], [value])

    def extend(self, source: int, messages: Sequence[Message]) -> int:
        """Appends messages of one topic-partition, in order; returns the bytes they cost."""
        return self._add(
            source,
            [message.offset() for message in messages],
            [message.timestamp()[1] for message in messages],
            [message.key() for message in messages],
            [message.headers() or () for message in messages],
            [message.value() for message in messages],
        )

    def _add(
        self,
        source: int,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[bytes | None],
        all_headers: Sequence[Headers],
        values: Sequence[bytes | None],
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
        lengths = [NO_VALUE if value is None else len(value) for value in values]
        rows = map(ROW.pack, offsets, timestamps_ms, lengths, sizes, repeat(source), repeat(0))
        together = b"".join([value or b"" for value in values])
        cost = self.append(source, offsets[0], b"".join(rows), together, b"".join(envelopes))
        self._last = Envelope(last_key, last_headers)
        return cost

    def append(self, source: int, first_offset: int, rows: Buffer, values: Buffer, envelopes: Buffer) -> int:
        """Appends messages of one topic-partition, in order, as `raw_rows` spells them, the first with its
        envelope; returns the bytes they cost."""
        self._read = self._last = None
        if source not in self.first_offsets:
            self.first_offsets[source] = first_offset
        self._rows += rows
        self._values.append(bytes(values))
        self._envelopes += envelopes
        self.value_bytes += len(values)
        if len(self._values) > PIECES_MAX and self._is_crumbled:
            self._all_values()
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
        """Appends what waits in another buffer and is in no closed part, without envelopes."""
        self._read = self._last = None
        self._rows += other._rows
        self._values += other._values
        self.value_bytes += other.value_bytes
        self.first_offsets = other.first_offsets | self.first_offsets

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    @property
    def read(self) -> RawRows:
        """The messages that are in no closed part."""
        if self._read is None:
            self._read = RawRows(self._rows, self._values, self._envelopes)
        return self._read

    @property
    def _is_crumbled(self) -> bool:
        """Whether the pieces behind the first are small and not few."""
        first = len(self._values[0])
        rest = self.value_bytes - first
        return rest < SMALL_PIECE_BYTES * len(self._values) and first <= TOGETHER_PER_PIECES * rest

    def _all_values(self) -> bytes:
        if len(self._values) != 1:
            self._values = [b"".join(self._values)]
        return self._values[0]

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
    def values(self) -> ByteValues | PieceValues:
        return self.read.values

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
        """What the messages take that are in no closed part."""
        return self.size_bytes - sum(part.size_bytes for part in self.closed)

    def close_part(self) -> None:
        """Makes a part of the messages that are in none."""
        rows, envelopes = Stretch(self._rows, len(self._rows)), Stretch(self._envelopes, len(self._envelopes))
        values = [Stretch(piece, len(piece)) for piece in self._values]
        self.closed.append(ClosedPart(rows, values, envelopes, self.dead_lettered, self.looked_at))
        self._rows, self._values, self._envelopes, self.value_bytes = bytearray(), [], bytearray(), 0
        self._read, self._last = None, NO_ENVELOPE
        self.dead_lettered, self.looked_at = frozenset(), 0

    def pack(self, parts: int = maxsize) -> int:
        """Packs so many closed parts, the first that are not; returns the bytes that this gives back."""
        freed = 0
        for at in [at for at, part in enumerate(self.closed) if not part.is_packed][:parts]:
            packed = self.closed[at].packed()
            freed += self.closed[at].size_bytes - packed.size_bytes
            self.closed[at] = packed
        self.size_bytes -= freed
        return freed

    def parts(self) -> Iterator[TableBuffer]:
        """All messages, in parts of which none is closed. What a part is told to have become of its messages
        is kept when the next is asked for."""
        for at, part in enumerate(self.closed):
            plain = TableBuffer(
                self.table,
                self.since_s,
                first_offsets=self.first_offsets,
                dead_lettered=part.dead_lettered,
                kept=self.kept,
                over=self.over,
            )
            plain._rows += part.rows.open()
            plain._values, plain.value_bytes = [bytes(each.open()) for each in part.values], part.value_bytes
            plain._envelopes += part.envelopes.open()
            plain.looked_at = part.looked_at
            try:
                yield plain
            finally:
                self.closed[at] = part._replace(dead_lettered=plain.dead_lettered, looked_at=plain.looked_at)
        if self._rows:
            yield self

    def alive(self) -> Iterator[RawRecord]:
        """All messages that are not dead letters, in the order in which they were routed."""
        for part in self.parts():
            records = records_in(part._rows, part._all_values(), part._envelopes)
            yield from (record for at, record in enumerate(records) if at not in part.dead_lettered)
