"""The bounds that a commit is about to say of a file, held against the rows of the file itself: by another
way than the one they were made by.

Engines skip files by their bounds, so a wrong one hides rows without a word. Here nothing of a footer is
believed: the smallest and largest value of every leaf column are found in the rows, compared as their type
orders them, and have to lie within the bounds.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.data_file import DataFile

_EXACT = Context(prec=80)


@dataclass(slots=True)
class SeenValues:
    """The smallest and largest value of each leaf of the rows shown so far. `leaves`: field ids of the leaves
    in Parquet's order, below 0 where one has none, and no bounds."""

    leaves: Sequence[int]
    _kinds: dict[int, pa.DataType] = field(default_factory=dict)
    _low: dict[int, Any] = field(default_factory=dict)
    _high: dict[int, Any] = field(default_factory=dict)

    def take(self, rows: pa.Table) -> None:
        """More rows of the same file."""
        for leaf, array in zip(
            self.leaves, (leaf for column in rows.columns for leaf in _leaf_arrays(column)), strict=True
        ):
            ends = _ends(array) if leaf >= 0 else None
            if ends is None:
                continue
            self._kinds[leaf] = array.type
            self._low[leaf] = ends[0] if leaf not in self._low else min(self._low[leaf], ends[0])
            self._high[leaf] = ends[1] if leaf not in self._high else max(self._high[leaf], ends[1])

    def hidden(self, file: DataFile) -> str:
        """A sentence where a value lies beyond a bound of the file; empty where none does."""
        for leaf, kind in self._kinds.items():
            low, high = (file.lower_bounds or {}).get(leaf), (file.upper_bounds or {}).get(leaf)
            decode = _decoder(kind)
            if decode is None:
                if low is not None or high is not None:
                    return f"field {leaf} of {file.uri} is a {kind} and has bounds, which nobody can check"
                continue
            # Not the other way round: a bound that is NaN bounds nothing.
            if low is not None and not decode(low) <= self._low[leaf]:
                return (
                    f"field {leaf} of {file.uri} holds {self._low[leaf]!r}, below its lower bound "
                    f"{decode(low)!r}"
                )
            if high is not None and not self._high[leaf] <= decode(high):
                return (
                    f"field {leaf} of {file.uri} holds {self._high[leaf]!r}, above its upper bound "
                    f"{decode(high)!r}"
                )
        return ""


def _leaf_arrays(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """The leaves below a column, in Parquet's order; those inside lists and maps with the values of all of
    them."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_arrays(
            pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        )
    elif pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _leaf_arrays(part)
    elif pa.types.is_map(kind):
        yield from _leaf_arrays(pa.chunked_array([chunk.keys for chunk in column.chunks], kind.key_type))
        yield from _leaf_arrays(pa.chunked_array([chunk.items for chunk in column.chunks], kind.item_type))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaf_arrays(pc.list_flatten(column))
    else:
        yield column


def _ends(array: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The smallest and largest value as Python orders them; None where there is none, or only NaN."""
    if pa.types.is_floating(array.type):
        array = pc.filter(array, pc.invert(pc.is_nan(array)))
    if array.null_count == len(array) or pa.types.is_null(array.type):
        return None
    ends = pc.min_max(_counted(array))
    return _plain(ends["min"]), _plain(ends["max"])


def _counted(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as days and times as µs (ns where the column has ns), in integers, as Iceberg counts them;
    anything else as it is."""
    kind = array.type
    if pa.types.is_time32(kind):
        return array.cast(pa.time64("us")).cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    return array.cast(pa.int64()) if pa.types.is_temporal(kind) else array


def _plain(scalar: pa.Scalar) -> Any:
    value = scalar.as_py()
    if isinstance(value, Decimal):
        return int(value.scaleb(scalar.type.scale, _EXACT))
    return value.encode() if isinstance(value, str) else value


def _decoder(kind: pa.DataType) -> Callable[[bytes], Any] | None:
    """Reads Iceberg's single-value encoding as what `_ends` gives for the type; None where Iceberg has no
    such type."""
    if pa.types.is_decimal(kind):
        return lambda raw: int.from_bytes(raw, "big", signed=True)
    if pa.types.is_boolean(kind):
        return lambda raw: raw != b"\x00"
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return lambda raw: struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind):
        return lambda raw: int.from_bytes(raw, "little", signed=True)
    text = (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
    return bytes if text or pa.types.is_fixed_size_binary(kind) else None
