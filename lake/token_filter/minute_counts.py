"""Rows of a data file by minute and level, as they stand in its block.

Sorted, the numbers of what is counted (minute since 1970 x levels + level) grow by little, and most counts
are small. So both are kept as 32-bit numbers, the first as differences, byte by byte: all first bytes, then
all second ones. Deflate leaves next to nothing of the upper ones.
"""

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.severity import LEVELS, Level, level_of

MINUTE_US = 60_000_000
# More are not counted: a file of a year has half a million minutes.
COUNTS_MAX = 2_000_000
_LARGEST = 2**32 - 1
# Minute since 1970, number of the level, rows: shape (counts, 3), ordered, each minute and level once.
MinuteCounts = NDArray[np.int64]


def count(times: pa.ChunkedArray, severities: pa.ChunkedArray | None) -> MinuteCounts:
    """Counts rows. `times`: timestamps in µs, none of them NULL; `severities`: text, None where the file has
    none."""
    minutes = np.floor_divide(times.cast(pa.int64()).to_numpy(), MINUTE_US)
    numbers = np.sort(minutes * len(LEVELS) + _levels(severities))
    first = _first_of_each(numbers)
    return _counts(numbers[first], np.diff(first, append=len(numbers)))


def added(counts: list[MinuteCounts]) -> MinuteCounts:
    """Counts of several stretches of a file as one."""
    together = np.concatenate([np.zeros((0, 3), np.int64), *counts])
    numbers = together[:, 0] * len(LEVELS) + together[:, 1]
    order = np.argsort(numbers)
    first = _first_of_each(numbers[order])
    return _counts(numbers[order][first], np.add.reduceat(together[order, 2], first) if len(first) else first)


def _first_of_each(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each number of an ordered row occurs first."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(numbers)), bool), numbers[1:] != numbers[:-1]]))


def _counts(numbers: NDArray[np.int64], rows: NDArray[np.int64]) -> MinuteCounts:
    return np.stack([*np.divmod(numbers, len(LEVELS)), rows], axis=1)


def pack(counts: MinuteCounts) -> bytes:
    """Counts as bytes; none where they are too many or do not fit."""
    if not len(counts) or len(counts) > COUNTS_MAX:
        return b""
    numbers = counts[:, 0] * len(LEVELS) + counts[:, 1]
    kept = np.stack([np.diff(numbers, prepend=numbers[0]), counts[:, 2]])
    if kept.max() > _LARGEST:
        return b""
    planes = kept.astype("<u4").view(np.uint8).reshape(2, len(counts), 4).transpose(0, 2, 1)
    return int(numbers[0]).to_bytes(8, "little", signed=True) + zlib.compress(planes.tobytes())


def unpack(packed: bytes) -> MinuteCounts | None:
    """The counts of `pack`; None where there are none. Raises ValueError for what `pack` never made."""
    if not packed:
        return None
    unpacker = zlib.decompressobj()
    try:
        planes = unpacker.decompress(packed[8:], 8 * COUNTS_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacker.eof or not planes or len(planes) % 8:
        raise ValueError(f"{len(planes)} bytes of counts")
    kept = np.frombuffer(planes, np.uint8).reshape(2, 4, -1).transpose(0, 2, 1)
    growth, rows = np.ascontiguousarray(kept).view("<u4")[..., 0].astype(np.int64)
    if not rows.all():  # so counts are no more than rows
        raise ValueError("a count of no row")
    numbers = int.from_bytes(packed[:8], "little", signed=True) + np.cumsum(growth)
    minutes, levels = np.divmod(numbers, len(LEVELS))
    return np.stack([minutes, levels, rows], axis=1)


def _levels(severities: pa.ChunkedArray | None) -> NDArray[np.int64]:
    """The number of the level of each row; one for all where they have none."""
    other = LEVELS.index(Level.OTHER)
    if severities is None or severities.null_count == len(severities):
        return np.array([other])
    if not pa.types.is_dictionary(severities.type):
        severities = severities.dictionary_encode()
    severities = severities.combine_chunks()
    numbers = [LEVELS.index(level_of(spelled)) for spelled in severities.dictionary.to_pylist()]
    levels = pa.array([*numbers, other], pa.int64())
    found: NDArray[np.int64] = levels.take(pc.fill_null(severities.indices, len(numbers))).to_numpy()
    return found
