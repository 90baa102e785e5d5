"""Counts and bounds of columns as a manifest has them: decoded for who looks at them.

A manifest has five such maps for each of its files, a hundred numbers and forty bounds for a table of twenty
columns. Most readers of a manifest want to know which files there are, or list them once more as they are.
"""

import re
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping
from functools import lru_cache
from typing import Any, TypeVar

Value = TypeVar("Value")
Decode = Callable[[bytes, int, int], dict[int, Value]]
# What is longer, or ends with more than one bit in the tenth byte, is no number of 64 bits.
_NUMBER = rb"(?:[\x80-\xff]{0,8}+[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"


class ColumnMap(Mapping[int, Value]):
    """A map by field id that lies encoded in a record; it is decoded when it is first asked."""

    __slots__ = ("_at", "_count", "_decode", "_found", "_record")

    def __init__(self, record: bytes, at: int, count: int, decode: Decode[Value]) -> None:
        self._record, self._at, self._count, self._decode = record, at, count, decode
        self._found: dict[int, Value] | None = None

    def _decoded(self) -> dict[int, Value]:
        found = self._found
        if found is None:
            found = self._found = self._decode(self._record, self._at, self._count)
        return found

    def __getitem__(self, key: int) -> Value:
        return self._decoded()[key]

    def get(self, key: int, default: Any = None) -> Any:
        return self._decoded().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._decoded()

    # A dict's own views: those of a Mapping ask it for each key again.
    def keys(self) -> KeysView[int]:
        return self._decoded().keys()

    def items(self) -> ItemsView[int, Value]:
        return self._decoded().items()

    def __iter__(self) -> Iterator[int]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        return repr(self._decoded())


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """An int or a long, and where it ends. Raises IndexError, ValueError."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while shift <= 63:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 and not number >> 64:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError("a number of more than 64 bits")


def is_present(data: bytes, at: int) -> bool:
    """Whether a union with null has a value, by its first byte. Raises IndexError, ValueError."""
    branch = data[at]
    if branch not in (0, 2):
        raise ValueError("no such branch")
    return branch == 2


def optional_long_at(data: bytes, at: int) -> tuple[int | None, int]:
    """A union of null and a long, and where it ends. Raises IndexError, ValueError."""
    return long_at(data, at + 1) if is_present(data, at) else (None, at + 1)


@lru_cache(maxsize=2_048)
def _numbers(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:%b){%d}+" % (_NUMBER, count))


def numbers_end(data: bytes, at: int, count: int) -> int:
    """Where so many numbers end. Raises ValueError."""
    found = _numbers(count).match(data, at)
    if found is None:
        raise ValueError("no such numbers")
    return found.end()


def blobs_end(data: bytes, at: int, count: int) -> int:
    """Where so many pairs of a number and bytes end; beyond the data where those are cut off. Raises
    IndexError, ValueError."""
    for _ in range(count):
        at = at + 1 if data[at] < 0x80 else long_at(data, at)[1]
        length = data[at]
        if length < 0x80 and not length & 1:
            at += 1 + (length >> 1)
            continue
        length, at = long_at(data, at)
        if length < 0:
            raise ValueError("a negative length")
        at += length
    return at


def numbers_by_column(data: bytes, at: int, count: int) -> dict[int, int]:
    """Decodes so many pairs of numbers."""
    found = {}
    for _ in range(count):
        key, value = data[at], data[at + 1]
        if key < 0x80 and value < 0x80:
            found[(key >> 1) ^ -(key & 1)] = (value >> 1) ^ -(value & 1)
            at += 2
        else:
            key, at = long_at(data, at)
            found[key], at = long_at(data, at)
    return found


def blobs_by_column(data: bytes, at: int, count: int) -> dict[int, bytes]:
    """Decodes so many pairs of a number and bytes."""
    found = {}
    for _ in range(count):
        key, at = long_at(data, at)
        length, at = long_at(data, at)
        found[key] = data[at : at + length]
        at += length
    return found
