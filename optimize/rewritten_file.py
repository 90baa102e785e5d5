"""A data file written anew without some of its rows: column by column as it was, a row group at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap64

from lake.data_file import DataFile, describe_parquet
from lake.errors import FatalError
from lake.log_schema import LogSchema
from lake.manifest import ManifestEntry
from lake.storage import Storage
from lake.token_filter.builder import GROUP_ROWS_MAX, FilterBuilder, filtered_columns
from optimize.compaction import field_id
from optimize.row_lineage import LAST_UPDATED, LINEAGE_FIELDS, ROW_ID, lineage_column

_FIELD_ID = b"PARQUET:field_id"


def write_without(
    storage: Storage,
    old: IO[bytes],
    uri: str,
    entry: ManifestEntry,
    gone: BitMap64,
    *,
    keeps_row_ids: bool,
    token_filter: bool = True,
) -> DataFile:
    """Writes the Parquet file `old` to `uri` without the rows that are gone. `entry`: what the table says of
    it; `keeps_row_ids`: its rows have ids (format version 3), which the new file carries; `token_filter`:
    whether it gets a filter of its words. Complete, not yet synced. Raises FatalError, UnavailableError."""
    footers: list[Any] = []
    with pq.ParquetFile(old) as source:
        keep = np.ones(source.metadata.num_rows, dtype=bool)
        keep[np.asarray(gone.to_array(), dtype=np.int64)] = False
        schema = _with_lineage(source.schema_arrow) if keeps_row_ids else source.schema_arrow
        leaves = [leaf for field in schema for leaf in _leaf_ids(field)]
        block = _block(source, keep) if token_filter else b""
        with storage.create(uri) as file:
            sink = pa.PythonFile(file, mode="w")
            with pq.ParquetWriter(
                sink, schema, compression="zstd", store_schema=False, metadata_collector=footers
            ) as writer:
                sink.write(block)
                for read, rows, mask in _groups(source, keep, None):
                    kept = _completed(read, schema, entry, rows).filter(pa.array(mask))
                    writer.write_table(kept, row_group_size=kept.num_rows)
            size = file.tell()
    if footers[0].num_rows != int(keep.sum()):
        raise FatalError(
            f"{uri} holds {footers[0].num_rows} rows, {int(keep.sum())} should be left; nothing was changed, "
            "look at the disk's health"
        )
    described = describe_parquet(uri, entry.file.hour, size, footers[0], leaves)
    return replace(described, bucket=entry.file.bucket, span=entry.file.span)


def _block(source: pq.ParquetFile, keep: NDArray[np.bool_]) -> bytes:
    """The block of token filters of the rows that are kept. The columns that it is about are read once more
    for it, so that one row group at a time is in memory."""
    builder = FilterBuilder()
    for read, _, mask in _groups(source, keep, filtered_columns(source.schema_arrow)):
        builder.add(read.filter(pa.array(mask)))
    return builder.block()


def _groups(
    source: pq.ParquetFile, keep: NDArray[np.bool_], columns: list[str] | None
) -> Iterator[tuple[pa.Table, range, NDArray[np.bool_]]]:
    """The rows of each row group of which some are kept, their numbers in the file, and which are kept. Those
    of another writer's large row groups come in parts."""
    first = 0
    for at in range(source.metadata.num_row_groups):
        group = range(first, first + source.metadata.row_group(at).num_rows)
        first = group.stop
        if not keep[group.start : group.stop].any():
            continue
        read = source.read_row_group(at, columns=columns)
        for start in range(group.start, group.stop, GROUP_ROWS_MAX):
            rows = range(start, min(start + GROUP_ROWS_MAX, group.stop))
            mask = keep[rows.start : rows.stop]
            if mask.any():
                yield read.slice(start - group.start, len(rows)), rows, mask


def _with_lineage(schema: pa.Schema) -> pa.Schema:
    """The columns of a file, and those of the ids of rows where it has none."""
    there = {field_id(field) for field in schema}
    for field in LogSchema({"fields": LINEAGE_FIELDS}).arrow:
        if field_id(field) not in there:
            schema = schema.append(field)
    return schema


def _completed(read: pa.Table, schema: pa.Schema, entry: ManifestEntry, rows: range) -> pa.Table:
    """Rows of a file with the columns of a schema, of which it lacks at most those of the ids of rows."""
    columns = []
    for field in schema:
        has = field.name in read.column_names
        column = read.column(field.name) if has else None
        own_id = field_id(field)
        if own_id in (ROW_ID, LAST_UPDATED):
            column = lineage_column(own_id, entry.file, entry.sequence_number, rows, column)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _leaf_ids(field: pa.Field) -> list[int]:
    """Field ids of a column's primitive leaves, in Parquet's order."""
    kind = field.type
    if pa.types.is_struct(kind):
        return [leaf for at in range(kind.num_fields) for leaf in _leaf_ids(kind.field(at))]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaf_ids(kind.value_field)
    if pa.types.is_map(kind):
        return [*_leaf_ids(kind.key_field), *_leaf_ids(kind.item_field)]
    if field.metadata is None or _FIELD_ID not in field.metadata:
        raise FatalError(
            f"column {field.name!r} has no field id: the file was not written by an Iceberg engine and "
            "cannot be rewritten"
        )
    return [int(field.metadata[_FIELD_ID])]
