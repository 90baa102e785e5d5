"""The proof before a merge may be committed: the new file holds exactly the rows of the old ones.

the order is a permutation        no row of the inputs is left out or taken twice
rows, null counts and bounds      of the old files (footers and manifests) agree with those of the new one
the file, read back, is equal     to the ordered rows in memory, and its footer says what will be committed
the file is whole                 asked again by the driver, just before the commit
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lake.data_file import DataFile, describe_parquet
from lake.storage import Storage

_TAIL_BYTES = 8
_MAGIC = b"PAR1"


class ProofFailed(Exception):
    """A merge did not keep what it merged; nothing of it may be committed."""


def check_order(order: pa.Array, rows: int) -> None:
    """The order names every row once. Raises ProofFailed."""
    taken = np.zeros(rows, dtype=bool)
    taken[order.to_numpy(zero_copy_only=False)] = True
    if len(order) != rows or not taken.all():
        raise ProofFailed(f"the order of {rows} rows names {len(order)}, {int(taken.sum())} of them distinct")


def check_inputs(inputs: Sequence[tuple[DataFile, DataFile]], output: DataFile, kinds: Mapping[int, str]) -> None:
    """Rows, null counts and bounds agree.

    `inputs`: each old file as its manifest has it, and as its own footer says. `kinds`: Iceberg's primitive type of every leaf field.
    Raises ProofFailed.
    """
    for listed, footer in inputs:
        _check_listed(listed, footer)
    footers = [footer for _, footer in inputs]
    rows = sum(footer.rows for footer in footers)
    if rows != output.rows:
        raise ProofFailed(f"{len(inputs)} files hold {rows} rows, the merged one {output.rows}")
    for column, nulls in (output.null_counts or {}).items():
        if kinds.get(column) is not None and all(_tells_nulls(footer, column) for footer in footers):
            before = sum(_nulls(footer, column) for footer in footers)
            if before != nulls:
                raise ProofFailed(f"field {column} had {before} NULLs in {rows} rows and now has {nulls}")
    for column, kind in kinds.items():
        before_bounds, after = _bounds(footers, column, kind), _bounds([output], column, kind)
        if before_bounds is not None and after is not None and before_bounds != after:
            raise ProofFailed(f"field {column} was between {before_bounds[0]!r} and {before_bounds[1]!r} and now is between {after[0]!r} and {after[1]!r}")


def _check_listed(listed: DataFile, footer: DataFile) -> None:
    if listed.rows != footer.rows:
        raise ProofFailed(f"{listed.uri} holds {footer.rows} rows, its manifest says {listed.rows}")
    for column, nulls in (listed.null_counts or {}).items():
        found = (footer.null_counts or {}).get(column)
        if found is not None and found != nulls:
            raise ProofFailed(f"{listed.uri} holds {found} NULLs in field {column}, its manifest says {nulls}")


def _has(file: DataFile, column: int) -> bool:
    return column in (file.value_counts or {})


def _tells_nulls(file: DataFile, column: int) -> bool:
    return not _has(file, column) or column in (file.null_counts or {})


def _nulls(file: DataFile, column: int) -> int:
    """NULLs of a column; a file without the column has one in every row."""
    return (file.null_counts or {}).get(column, 0) if _has(file, column) else file.rows


def _bounds(files: Sequence[DataFile], column: int, kind: str) -> tuple[Any, Any] | None:
    """The bounds over all files; None where some file with values does not tell, or where the type has no order here."""
    decode = _decoder(kind)
    lows, highs = [], []
    for file in files:
        if not _has(file, column) or _nulls(file, column) == (file.value_counts or {})[column]:
            continue
        low, high = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
        if low is None or high is None or decode is None:
            return None
        lows.append(decode(low))
        highs.append(decode(high))
    return (min(lows), max(highs)) if lows else None


def _decoder(kind: str) -> Callable[[bytes], Any] | None:
    """Reads Iceberg's single-value encoding of a type as something that orders as the type does."""
    if kind in ("boolean", "string", "binary", "uuid") or kind.startswith("fixed["):
        return bytes
    if kind in ("int", "long", "date", "time", "timestamp", "timestamptz"):
        return lambda raw: int.from_bytes(raw, "little", signed=True)
    if kind in ("float", "double"):
        return lambda raw: struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    return None


def check_written(storage: Storage, output: DataFile, rows: pa.Table, leaves: Sequence[int]) -> None:
    """The file, read back, is what was meant, and says of itself what will be committed. Raises ProofFailed, NotFoundError, ArrowException."""
    data = storage.read(output.uri)
    if len(data) != output.size_bytes:
        raise ProofFailed(f"{output.uri} has {len(data)} bytes, {output.size_bytes} were written")
    file = pq.ParquetFile(pa.BufferReader(data))
    if describe_parquet(output.uri, output.hour or 0, output.size_bytes, file.metadata, leaves) != output:
        raise ProofFailed(f"the footer of {output.uri} is not the one that was written")
    reread = file.read(use_threads=False)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        other = reread.column(name)
        if not (other if other.type.equals(column.type) else other.cast(column.type)).equals(column):
            raise ProofFailed(f"column {name} of {output.uri} reads back differently from what was written")


def check_whole(storage: Storage, output: DataFile) -> None:
    """The file is there with its size and ends as a Parquet file ends: cheap enough for the driver. Raises ProofFailed."""
    size = storage.size(output.uri)
    if size != output.size_bytes:
        raise ProofFailed(f"{output.uri} has {size} bytes, {output.size_bytes} were written")
    if storage.read_range(output.uri, output.size_bytes - _TAIL_BYTES, _TAIL_BYTES)[-4:] != _MAGIC:
        raise ProofFailed(f"{output.uri} does not end as a Parquet file")
