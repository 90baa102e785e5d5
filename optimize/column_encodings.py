"""How the columns of a merged file are encoded: by what their values are like, tried on some of them.

Parquet's encodings: https://parquet.apache.org/docs/file-format/data-pages/encodings/. What they save and
cost, and what else was tried: `python -m tests.benchmarks.storage`.

| values | encoding | zstd level |
|---|---|---|
| whole numbers, times | DELTA_BINARY_PACKED | the layout's |
| text that repeats | dictionary | the layout's where the dictionary is the larger part, else quick |
| other text | PLAIN or one of two deltas: what makes a part of it smallest | the layout's where that saves |

Ids are noise to any level, so they are compressed quickly.
"""

from dataclasses import dataclass
from math import log2
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DELTA, PLAIN = "DELTA_BINARY_PACKED", "PLAIN"
DELTA_TEXT = ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
_DELTA_TYPES = ("timestamp", "timestamptz", "long", "int")
# Beyond this share of distinct values a dictionary takes more than the text itself: both are compressed.
DISTINCT_SHARE_MAX = 0.4
QUICK_LEVEL = 3
# What a level has to save beside the quick one, of the part that is tried.
LEVEL_GAIN_MIN = 0.02
# With less text there is nothing to win by trying; of more a part tells enough.
TRIED_BYTES_MIN, TRIED_BYTES_MAX = 16 * 1024, 128 * 1024
TRIED_SHARE = 1 / 4


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """That of one column. `encoding`: as Parquet calls it; None for a dictionary."""

    encoding: str | None
    zstd_level: int


def encoding_of(
    kind: Any, values: pa.ChunkedArray, level: int, *, dictionary: bool = True, delta_text: bool = False
) -> ColumnEncoding:
    """Chooses that of a column.

    Args:
        kind: its Iceberg type.
        values: those of one row group.
        level: the highest zstd level.
        dictionary: whether it may have a dictionary.
        delta_text: whether text may have one of Parquet's delta encodings.
    """
    if kind in _DELTA_TYPES:
        return ColumnEncoding(DELTA, level)
    if kind != "string":
        return ColumnEncoding(None if dictionary else PLAIN, level)
    text_bytes = pc.sum(pc.binary_length(values)).as_py() or 0
    repeated = _repeated(values, text_bytes, level) if dictionary else None
    candidates = (PLAIN, *DELTA_TEXT) if delta_text else (PLAIN,)
    return repeated or _tried(values, text_bytes, level, candidates)


def _repeated(values: pa.ChunkedArray, text_bytes: int, level: int) -> ColumnEncoding | None:
    """A dictionary, where values repeat enough."""
    count, distinct = len(values) - values.null_count, pc.count_distinct(values).as_py()
    if distinct > DISTINCT_SHARE_MAX * count:
        return None
    # Bytes of the dictionary, beside those of the places in it.
    is_text = count > 0 and text_bytes / count * distinct > count * log2(max(distinct, 1)) / 8
    return ColumnEncoding(None, level if is_text else min(level, QUICK_LEVEL))


def _tried(
    values: pa.ChunkedArray, text_bytes: int, level: int, candidates: tuple[str, ...]
) -> ColumnEncoding:
    """The candidate that makes the least of some values."""
    if text_bytes < TRIED_BYTES_MIN:
        return ColumnEncoding(PLAIN, level)
    part, quick = _part(values, text_bytes), min(level, QUICK_LEVEL)
    sizes = {encoding: _written_bytes(part, encoding, quick) for encoding in candidates}
    best = min(candidates, key=sizes.__getitem__)
    saves = level > quick and _written_bytes(part, best, level) <= sizes[best] * (1 - LEVEL_GAIN_MIN)
    return ColumnEncoding(best, level if saves else quick)


def _part(values: pa.ChunkedArray, text_bytes: int) -> pa.ChunkedArray:
    """Values one after the other, from the middle."""
    wanted_bytes = max(TRIED_BYTES_MIN, min(TRIED_BYTES_MAX, text_bytes * TRIED_SHARE))
    count = max(1, int(len(values) * wanted_bytes / text_bytes))
    return values.slice((len(values) - count) // 2, count)


def _written_bytes(values: pa.ChunkedArray, encoding: str, level: int) -> int:
    footers: list[pq.FileMetaData] = []
    pq.write_table(
        pa.table({"tried": values}),
        pa.BufferOutputStream(),
        compression="zstd",
        compression_level=level,
        use_dictionary=False,
        column_encoding={"tried": encoding},
        write_statistics=False,
        store_schema=False,
        metadata_collector=footers,
    )
    chunk = footers[0].row_group(0).column(0)
    return int(chunk.total_compressed_size)
