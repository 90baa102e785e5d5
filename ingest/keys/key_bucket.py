"""The bucket of a row by the first column of its key (Iceberg spec, "Bucket Transform Details" and
Appendix B: 32-bit hash requirements)."""

import struct
from collections.abc import Callable
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LONG = struct.Struct("<q")
_POSITIVE = 0x7FFF_FFFF


def buckets_of(column: pa.Array | pa.ChunkedArray, buckets: int) -> NDArray[np.int32]:
    """The bucket of each value, none of which is NULL; 0 for all where there is one bucket."""
    if buckets == 1:
        return np.zeros(len(column), np.int32)
    encode = _encoder(column.type)
    hashes = [mmh3.hash(encode(value)) & _POSITIVE for value in _plain(column).to_pylist()]
    return (np.asarray(hashes, np.int64) % buckets).astype(np.int32)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Dates and times as the numbers that they are stored as."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.cast(pa.int64())
    return column


def _encoder(kind: pa.DataType) -> Callable[[Any], bytes]:
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(int(value.scaleb(kind.scale)))
    return _LONG.pack


def _text(value: str) -> bytes:
    return value.encode()


def _decimal(unscaled: int) -> bytes:
    """The fewest bytes of the two's complement, the most significant first."""
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
