"""Raw messages as bytes: a row of coordinates for each, all values and all envelopes one behind the other.

The native core writes the same (core/src/grouping.rs), so that a message goes from Kafka to its table's file
without an object of its own.
"""

from __future__ import annotations  # array has no subscripts at run time

import struct
from array import array
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
        if isinstance(values, cls):
            return values
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

    def __init__(self, rows: Any, values: Any, envelopes: Any) -> None:
        told = np.frombuffer(rows, _ROW_TYPE)
        self.offsets = array("q", told["offset"].tobytes())
        self.timestamps_ms = array("q", told["timestamp_ms"].tobytes())
        self.sources = array("i", told["source"].tobytes())
        self.errors = told["error"].tolist()
        self._no_value = told["size"] == NO_VALUE
        self.values = ByteValues(values, np.cumsum(np.where(self._no_value, 0, told["size"]), dtype=np.int64))
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
