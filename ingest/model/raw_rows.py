"""Raw messages as bytes: a row of coordinates for each, all values and all envelopes one behind the other.

The native core writes the same (core/src/grouping.rs), so that a message goes from Kafka to its table's file
without an object of its own.
"""

from __future__ import annotations  # array has no subscripts at run time

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, overload

import numpy as np

# Offset, Kafka timestamp in ms, bytes of the value (NO_VALUE: there is none), bytes of the envelope (0: it is
# that of the message before, of a first one NO_ENVELOPE), number of the source, the client's error.
ROW = struct.Struct("<qqIIii")
_ROW_TYPE = np.dtype(
    [
        ("offset", "i8"),
        ("timestamp_ms", "i8"),
        ("size", "u4"),
        ("envelope", "u4"),
        ("source", "i4"),
        ("error", "i4"),
    ]
)
NO_VALUE = 2**32 - 1
SLICE_ROWS = 4_096  # of pieces so many values are put together to be read one by one
_LENGTHS = struct.Struct("<i")
_LENGTH, _NONE = _LENGTHS.pack, _LENGTHS.pack(-1)
Headers = Sequence[tuple[str, bytes | None]]
Ends = np.ndarray[Any, np.dtype[np.int64]]


class Envelope(NamedTuple):
    """What stands beside a message's value. `headers`: None where one has a name that is no UTF-8."""

    key: bytes | None
    headers: Headers | None


NO_ENVELOPE = Envelope(None, ())


def pack_envelope(key: bytes | None, headers: Headers) -> bytes:
    """Each text with its length before it, -1 for none; the number of headers before them."""
    packed = (_NONE if key is None else _LENGTH(len(key)) + key) + _LENGTH(len(headers))
    for name, value in headers:
        text = name.encode()
        packed += _LENGTH(len(text)) + text + (_NONE if value is None else _LENGTH(len(value)) + value)
    return packed


def open_envelope(data: Any) -> Envelope:
    """The same as it was before it was packed."""
    key, at = _text(data, 0)
    return Envelope(key, _open_headers(data[at:]))


def _open_headers(data: Any) -> Headers | None:
    (count,) = _LENGTHS.unpack_from(data, 0)
    if count <= 0:
        return None if count else ()
    at, headers = 4, []
    for _ in range(count):
        name, at = _text(data, at)
        value, at = _text(data, at)
        headers.append(((name or b"").decode(), value))
    return tuple(headers)


def _text(data: Any, at: int) -> tuple[bytes | None, int]:
    (size,) = _LENGTHS.unpack_from(data, at)
    at += 4
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


class ByteValues(Sequence[bytes]):
    """Values that lie one behind the other in `data` (bytes or a memoryview), the first from `begin` on, each
    up to its place of `ends`. Slices share `data`."""

    def __init__(self, data: Any, ends: Ends, begin: int = 0) -> None:
        self.data, self.ends, self.begin = data, ends, begin

    @classmethod
    def of(cls, values: Sequence[bytes]) -> ByteValues:
        """Values that are apart, put together."""
        if isinstance(values, cls | PieceValues):
            return values[:]
        return cls(b"".join(values), np.fromiter(accumulate(map(len, values)), np.int64, len(values)))

    @property
    def sizes(self) -> Ends:
        """The bytes of each."""
        return np.diff(self.ends, prepend=self.begin)

    @property
    def text(self) -> memoryview:
        """All of them, one behind the other."""
        return memoryview(self.data)[self.begin : self.ends[-1] if len(self.ends) else self.begin]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        data, begin = self.data, self.begin
        for end in self.ends.tolist():
            yield bytes(data[begin:end])
            begin = end

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> ByteValues: ...
    def __getitem__(self, at: int | slice) -> bytes | ByteValues:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return ByteValues(self.data, self.ends[first:end], self._begin_of(first))
        at = range(len(self))[at]
        return bytes(self.data[self._begin_of(at) : self.ends[at]])

    def only(self, kept: Any) -> ByteValues:
        """The values of some places, put together. `kept`: a numpy array of bool, one for each value."""
        begins = np.concatenate(([self.begin], self.ends))
        bounds = begins[np.flatnonzero(np.diff(kept, prepend=False, append=False))].reshape(-1, 2)
        with memoryview(self.data) as view:
            together = b"".join([view[begin:end] for begin, end in bounds.tolist()])
        return ByteValues(together, np.cumsum(self.sizes[kept]))

    def _begin_of(self, at: int) -> int:
        return int(self.ends[at - 1]) if at else self.begin

    @property
    def begins(self) -> set[int]:
        """With which bytes values begin; -1 where one is empty."""
        if not len(self):
            return set()
        begins = np.concatenate(([self.begin], self.ends[:-1]))
        if (begins == self.ends).any():
            return {-1}
        return set(np.frombuffer(self.data, np.uint8)[begins].tobytes())


class PieceValues(Sequence[bytes]):
    """Values that lie one behind the other in several pieces, each up to its place of `ends`, counted from
    the first piece's begin on.

    A slice has what it needs of them put together. That is done of some thousand values at a time: all of a
    large buffer in one text would be memory that the system has to clear first.
    """

    def __init__(self, pieces: Sequence[bytes], ends: Ends) -> None:
        self._pieces, self._ends = pieces, ends
        self._piece_ends = list(accumulate(map(len, pieces)))

    @property
    def sizes(self) -> Ends:
        """The bytes of each."""
        return np.diff(self._ends, prepend=0)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, len(self), SLICE_ROWS):
            yield from self[first : first + SLICE_ROWS]

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> ByteValues: ...
    def __getitem__(self, at: int | slice) -> bytes | ByteValues:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return self._together(first, max(first, end))
        at = range(len(self))[at]
        begin, end = self._begin_of(at), int(self._ends[at])
        if begin == end:
            return b""
        piece = bisect_right(self._piece_ends, begin)
        before = self._piece_ends[piece] - len(self._pieces[piece])
        return self._pieces[piece][begin - before : end - before]

    def _begin_of(self, at: int) -> int:
        return int(self._ends[at - 1]) if at else 0

    def _together(self, first: int, end: int) -> ByteValues:
        begin, stop = self._begin_of(first), self._begin_of(end)
        ends = self._ends[first:end]
        if begin >= stop:
            return ByteValues(b"", np.zeros_like(ends))
        piece, last = bisect_right(self._piece_ends, begin), bisect_left(self._piece_ends, stop)
        before = self._piece_ends[piece] - len(self._pieces[piece])
        if piece == last:
            return ByteValues(self._pieces[piece], ends - before, begin - before)
        some = [memoryview(each) for each in self._pieces[piece : last + 1]]
        some[-1] = some[-1][: len(some[-1]) - (self._piece_ends[last] - stop)]
        some[0] = some[0][begin - before :]
        return ByteValues(b"".join(some), ends - begin)


def consecutive_rows(source: int, first: int, timestamp_ms: int, sizes: Ends, envelope_bytes: int) -> bytes:
    """Rows of values of these sizes, of consecutive offsets from `first` on, the first with an envelope of so
    many bytes."""
    rows = np.zeros(len(sizes), _ROW_TYPE)
    rows["offset"] = np.arange(first, first + len(sizes))
    rows["timestamp_ms"], rows["source"], rows["size"] = timestamp_ms, source, sizes
    rows["envelope"][:1] = envelope_bytes
    return rows.tobytes()


class RawRows:
    """Rows as they are read: arrays of their coordinates, values, and envelopes, opened when asked for."""

    values: ByteValues | PieceValues

    def __init__(self, rows: Any, values: Sequence[Any], envelopes: Any) -> None:
        """`values`: the pieces in which they lie."""
        told = np.frombuffer(rows, _ROW_TYPE)
        self.offsets = array("q", told["offset"].tobytes())
        self.timestamps_ms = array("q", told["timestamp_ms"].tobytes())
        self.sources = array("i", told["source"].tobytes())
        self.errors = told["error"].tolist()
        self._no_value = told["size"] == NO_VALUE
        ends = np.cumsum(np.where(self._no_value, 0, told["size"]), dtype=np.int64)
        self.values = ByteValues(values[0], ends) if len(values) == 1 else PieceValues(values, ends)
        self._envelopes, self._sizes = envelopes, told["envelope"].copy()
        self._opened: list[Envelope] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, at: int) -> bytes | None:
        """A value, of which there may be none."""
        return None if self._no_value[at] else self.values[at]

    @property
    def opened(self) -> list[Envelope]:
        """All envelopes."""
        if self._opened is None:
            self._opened, at = [], 0
            last, headers, spelled = NO_ENVELOPE, NO_ENVELOPE.headers, b""
            data = bytes(self._envelopes)  # of which a part is made faster than of what may change
            for size in self._sizes.tolist():
                if size:
                    key, begin = _text(data, at)
                    at += size
                    # Changes have a key each, and the headers of the one before.
                    if spelled != (spelling := data[begin:at]):
                        spelled, headers = spelling, _open_headers(spelling)
                    last = Envelope(key, headers)
                self._opened.append(last)
        return self._opened
