"""The proof before a merge may be committed: the new files hold exactly the rows of the old ones.

the order is a permutation        no row of the inputs is left out or taken twice
the times are of the partition    where rows of hours become those of a day or month
rows, null counts and bounds      of the old files (footers and manifests) agree with those of the new ones
the file, read back, is equal     to the ordered rows in memory, and its footer says what will be committed
its bounds hold every row         as the rows that were read back have them, whatever a footer says
                                  (`bounds_proof.py`)
its token filter is of its rows   one for each row group, as many rows in each
the file has not changed since    asked by the driver, just before the commit

What Spark's rewrite_data_files wrote was in no memory of ours: there Spark itself sums the hashes of the rows
before and after (`rewrite_branch.py`), and of the new files the second line and the one of the bounds hold,
with the positions that delete files took away, and every row of them can be read (`rewrite_proof.py`)."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.data_file import DataFile, describe_parquet
from lake.errors import TooLargeError
from lake.storage import Storage, canonical
from lake.table_layout import US_PER_HOUR
from lake.token_filter.block import PARQUET_MAGIC_BYTES, block_bytes, decode
from optimize.bounds_proof import SeenValues

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


def check_within(times: pa.ChunkedArray, hours: range) -> None:
    """Every time is of one of the hours (since 1970-01-01T00Z) that a partition stands for: readers go by its
    value. Raises ProofFailed."""
    found = pc.min_max(times.cast(pa.int64()))
    first, last = (found[name].as_py() // US_PER_HOUR for name in ("min", "max"))
    if first not in hours or last not in hours:
        raise ProofFailed(f"rows of hours {first} to {last} are none of {hours.start} to {hours.stop - 1}")


def check_inputs(
    inputs: Sequence[tuple[DataFile, DataFile]],
    outputs: Sequence[DataFile],
    kinds: Mapping[int, str],
    deleted_rows: int = 0,
) -> None:
    """Rows, null counts and bounds agree.

    `inputs`: each old file as its manifest has it, and as its own footer says. `kinds`: Iceberg's primitive
    type of every leaf field. `deleted_rows`: rows of the old files that delete files took away; then no more
    NULLs and no wider bounds than before may be there. Raises ProofFailed.
    """
    for listed, footer in inputs:
        _check_listed(listed, footer)
    footers = [footer for _, footer in inputs]
    rows, wanted = sum(file.rows for file in outputs), sum(footer.rows for footer in footers) - deleted_rows
    if rows != wanted:
        raise ProofFailed(
            f"{len(inputs)} files hold {wanted} rows, {deleted_rows} deleted ones aside; after the merge "
            f"there are {rows}"
        )
    for column, kind in kinds.items():
        if kind:
            _check_nulls(column, footers, outputs, exact=not deleted_rows)
        _check_bounds(
            column, _bounds(footers, column, kind), _bounds(outputs, column, kind), exact=not deleted_rows
        )


def _check_nulls(
    column: int, inputs: Sequence[DataFile], outputs: Sequence[DataFile], *, exact: bool
) -> None:
    if not all(_tells_nulls(file, column) for file in (*inputs, *outputs)):
        return
    before, after = (
        sum(_nulls(file, column) for file in inputs),
        sum(_nulls(file, column) for file in outputs),
    )
    if after > before or (exact and after != before):
        raise ProofFailed(f"field {column} had {before} NULLs and now has {after}")


def _check_bounds(
    column: int, before: tuple[Any, Any] | None, after: tuple[Any, Any] | None, *, exact: bool
) -> None:
    if before is None or after is None:
        return
    if after[0] < before[0] or after[1] > before[1] or (exact and before != after):
        raise ProofFailed(
            f"field {column} was between {before[0]!r} and {before[1]!r} and now is between {after[0]!r} and "
            f"{after[1]!r}"
        )


def _check_listed(listed: DataFile, footer: DataFile) -> None:
    if listed.rows != footer.rows:
        raise ProofFailed(f"{listed.uri} holds {footer.rows} rows, its manifest says {listed.rows}")
    for column, nulls in (listed.null_counts or {}).items():
        found = (footer.null_counts or {}).get(column)
        if found is not None and found != nulls:
            raise ProofFailed(
                f"{listed.uri} holds {found} NULLs in field {column}, its manifest says {nulls}"
            )


def _has(file: DataFile, column: int) -> bool:
    return column in (file.value_counts or {})


def _tells_nulls(file: DataFile, column: int) -> bool:
    return not _has(file, column) or column in (file.null_counts or {})


def _nulls(file: DataFile, column: int) -> int:
    """NULLs of a column; a file without the column has one in every row."""
    return (file.null_counts or {}).get(column, 0) if _has(file, column) else file.rows


def _bounds(files: Sequence[DataFile], column: int, kind: str) -> tuple[Any, Any] | None:
    """The bounds over all files; None where some file with values does not tell, or where the type has no
    order here."""
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
    if kind.startswith("decimal("):
        return lambda raw: int.from_bytes(raw, "big", signed=True)
    if kind in ("float", "double"):
        return lambda raw: struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    return None


def check_written(storage: Storage, output: DataFile, rows: pa.Table, leaves: Sequence[int]) -> int:
    """The file, read back, is what was meant, and says of itself what will be committed; returns the checksum
    of its bytes.

    Raises ProofFailed, NotFoundError, ArrowException.
    """
    data = read_whole(storage, output)
    file = pq.ParquetFile(pa.BufferReader(data))
    described = describe_parquet(output.uri, output.hour, output.size_bytes, file.metadata, leaves)
    if replace(described, bucket=output.bucket, span=output.span) != output:
        raise ProofFailed(f"the footer of {output.uri} is not the one that was written")
    at, seen = 0, SeenValues(leaves)
    for group in range(
        file.num_row_groups
    ):  # one after the other: all at once would take the memory of a second copy
        reread = file.read_row_group(group, use_threads=False)
        meant = rows.slice(at, reread.num_rows)
        at += reread.num_rows
        seen.take(reread)
        for name, column in zip(meant.column_names, meant.columns, strict=True):
            other = reread.column(name)
            if not _same(other if other.type.equals(column.type) else other.cast(column.type), column):
                raise ProofFailed(
                    f"column {name} of {output.uri} reads back differently from what was written"
                )
    if hidden := seen.hidden(output):
        raise ProofFailed(hidden)
    _check_filter(data, output, file.metadata)
    return crc32(data)


def _check_filter(data: bytes, output: DataFile, metadata: Any) -> None:
    """Searches pass over row groups by what the block of the file says of them."""
    length = block_bytes(output.split_offsets)
    if not length:
        return
    found = decode(data[PARQUET_MAGIC_BYTES : PARQUET_MAGIC_BYTES + length])
    rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    if found is None or [group.rows for group in found.groups] != rows:
        raise ProofFailed(f"the token filter of {output.uri} is not of its row groups")


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns of one type hold the same. For Arrow no NaN equals another: numbers are compared by
    their bits."""
    if one.equals(other):
        return True
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(one.type)
    if bits is not None:
        return bool(one.combine_chunks().view(bits).equals(other.combine_chunks().view(bits)))
    return pa.types.is_nested(one.type) and repr(one.to_pylist()) == repr(other.to_pylist())


def read_whole(storage: Storage, file: DataFile) -> bytes:
    """The bytes of a file. Raises ProofFailed where they are not as many as they should be, NotFoundError."""
    try:
        data = storage.read(file.uri, bytes_max=file.size_bytes)
    except TooLargeError as error:
        raise ProofFailed(f"{file.uri} should have {file.size_bytes} bytes: {error}") from error
    if len(data) != file.size_bytes:
        raise ProofFailed(f"{file.uri} has {len(data)} bytes, it should have {file.size_bytes}")
    return data


def check_whole(storage: Storage, output: DataFile, checksum: int) -> None:
    """The file is still what was proven: asked by the driver, just before the commit. Raises ProofFailed,
    NotFoundError.

    An object store keeps an object as it was put, by checksums of its own: there the size and the end of it
    tell whether it is the one.
    """
    if canonical(output.uri).startswith("file:"):
        if crc32(read_whole(storage, output)) != checksum:
            raise ProofFailed(f"{output.uri} is not what it was when it was proven")
        return
    size = storage.size(output.uri)
    if size != output.size_bytes:
        raise ProofFailed(f"{output.uri} has {size} bytes, it should have {output.size_bytes}")
    if storage.read_range(output.uri, output.size_bytes - _TAIL_BYTES, _TAIL_BYTES)[-4:] != _MAGIC:
        raise ProofFailed(f"{output.uri} does not end as a Parquet file")
