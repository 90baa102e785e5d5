"""How large rows are, so that what is built in memory has a bound in bytes as well as in rows."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import NoneType
from typing import Any

Row = tuple[Any, ...]
# Rows are taken from an engine so many at a time: what a bound may be exceeded by is one such handful.
ROWS_AT_ONCE = 64
BATCH_BYTES_MAX = 16 * 1024 * 1024
_FLAT_BYTES = 8
_FLAT = frozenset({int, float, bool, NoneType, datetime})


def row_bytes(row: Sequence[Any]) -> int:
    """The bytes of a row's values, about: of text its characters, of everything else its width."""
    total = _FLAT_BYTES * len(row)
    for value in row:
        kind = value.__class__
        if kind is str:
            total += len(value)
        elif kind not in _FLAT:
            total += _large_bytes(value)
    return total


def _large_bytes(value: Any) -> int:
    if isinstance(value, dict):
        return row_bytes(tuple(value.keys())) + row_bytes(tuple(value.values()))
    if isinstance(value, list | tuple):  # also the named tuples that Trino's client makes of structures
        return row_bytes(value)
    return len(value) if isinstance(value, bytes | bytearray | str) else _FLAT_BYTES


def rows_within(bytes_max: int, batches: Iterator[list[Row]]) -> tuple[list[Row], bool]:
    """Rows up to a number of bytes, and whether some were left out. The first row is given however large it
    is."""
    rows: list[Row] = []
    total = 0
    for batch in batches:
        for row in batch:
            total += row_bytes(row)
            if rows and total > bytes_max:
                return rows, True
            rows.append(row)
    return rows, False


def batches_of(handfuls: Iterator[list[Row]], rows_at_once: int) -> Iterator[list[Row]]:
    """Handfuls of rows as batches of at least `rows_at_once` rows, smaller ones where the rows are large."""
    batch: list[Row] = []
    total = 0
    for rows in handfuls:
        batch += rows
        total += sum(map(row_bytes, rows))
        if len(batch) >= rows_at_once or total >= BATCH_BYTES_MAX:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
