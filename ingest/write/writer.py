"""Arrow rows to Parquet files, one per hour partition, with the field ids of the table's schema."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.bounds import Encoding
from lake.data_file import DataFile, describe_parquet, encodings_of
from lake.log_schema import (
    INDEX,
    SEVERITY,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogSchema,
    fold,
    leaf_ids,
)
from lake.storage import Storage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.token_filter.builder import GROUP_ROWS, file_block

# Level 1: what a flush writes is written again by the optimizer, with a better level.
ZSTD_LEVEL = 1
# Of so little, zstd's context, which each column makes anew, takes longer than all else, and saves less than
# the block in which a disk counts.
SNAPPY_BYTES_MAX = 32 * 1024
# The words of fewer rows take longer to gather than to look for, and maintenance merges such files.
FILTERED_ROWS_MIN = 1_000
# Columns with few values. Of all others nothing is known yet: a dictionary that most values are new to costs
# time and bytes.
DICTIONARY = (TOPIC, TOPIC_ID, TOPIC_PARTITION, INDEX, SEVERITY)
# With fewer rows, a second page per column is more than a dictionary saves.
DICTIONARY_ROWS_MIN = 1_000
# A smaller file is put together in memory: Parquet's many small writes are dear when each goes through
# Python.
IN_MEMORY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class FileLayout:
    """The columns of a file: their Arrow schema with field ids, and the field ids of its leaves in the order
    of Parquet's columns."""

    arrow: pa.Schema
    columns: Sequence[tuple[str, pa.DataType]]
    leaves: tuple[int, ...]

    @cached_property
    def encodings(self) -> Sequence[Encoding | None]:
        """How Parquet's statistics of the leaves are to be read."""
        footers: list[pq.FileMetaData] = []
        none = self.arrow.empty_table()
        pq.write_table(none, pa.BufferOutputStream(), store_schema=False, metadata_collector=footers)
        return encodings_of(footers[0])


def layout_of(fields: Sequence[Mapping[str, Any]]) -> FileLayout:
    """The layout of a file with these fields, as a schema's JSON spells them."""
    arrow = LogSchema({"fields": fields}).arrow
    return FileLayout(arrow, [(field.name, field.type) for field in arrow], leaf_ids(fields))


# Most tables of a node have the schema of their shipper, one object for all of them.
@lru_cache(maxsize=4_096)
def _layout(schema: LogSchema, names: tuple[str, ...]) -> FileLayout:
    return layout_of(fields_of(schema, names))


def parquet_options(rows: int, *, small: bool = False) -> dict[str, Any]:
    """How rows of a flush are encoded. `small`: they take at most `SNAPPY_BYTES_MAX` as Arrow columns."""
    dictionary: Any = list(DICTIONARY) if rows >= DICTIONARY_ROWS_MIN else False
    codec: dict[str, Any] = (
        {"compression": "snappy"} if small else {"compression": "zstd", "compression_level": ZSTD_LEVEL}
    )
    return {**codec, "use_dictionary": dictionary, "store_schema": False}


def write_files(storage: Storage, location: str, rows: pa.Table, schema: LogSchema) -> list[DataFile]:
    """Writes the rows of a flush, one file per hour; complete but not yet synced when this returns.

    Columns absent from `rows` are absent from the files (Iceberg reads them as NULL), but for the system
    columns.
    """
    layout = _layout(schema, tuple(rows.column_names))
    return [
        _write(storage, data_file_uri(location, hour), hour, part, layout)
        for hour, part in by_hour(laid_out(rows, layout))
    ]


def write_many_hours(
    storage: Storage, location: str, rows: pa.Table, schema: LogSchema, *, token_filter: bool = True
) -> list[DataFile]:
    """The same for rows of an archive, which may be of a thousand hours: they are put in order once, and a
    file has only the columns that its hour has. `token_filter`: whether those with so many rows that it pays
    have a filter of their words.

    All rows are held a second time meanwhile.
    """
    rows = rows.take(pc.sort_indices(rows.column(TIMESTAMP)))
    files = []
    for hour, part in _slices(rows):
        layout = _layout(
            schema, tuple(name for name in part.column_names if part.column(name).null_count < part.num_rows)
        )
        part = laid_out(part, layout)
        is_filtered = token_filter and part.num_rows >= FILTERED_ROWS_MIN
        block = file_block(part, GROUP_ROWS) if is_filtered else b""
        files.append(_write(storage, data_file_uri(location, hour), hour, part, layout, block))
    return files


def _slices(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Rows that are ordered by their time, by its hour."""
    starts = pc.floor_temporal(rows.column(TIMESTAMP), unit="hour").cast(pa.int64()).combine_chunks()
    counts = pc.value_counts(starts).to_pylist()
    at = 0
    for count in counts:
        yield count["values"] // US_PER_HOUR, rows.slice(at, count["counts"])
        at += count["counts"]


def fields_of(schema: LogSchema, names: Container[str]) -> list[Mapping[str, Any]]:
    """The fields of a file that has these columns (their names folded) beside the system ones, as the
    schema's JSON spells them."""
    ours = {schema.by_name[name].id for name in schema.by_name if name in names or name in SYSTEM_COLUMNS}
    return [field for field in schema.json["fields"] if field["id"] in ours]


def laid_out(rows: pa.Table, layout: FileLayout) -> pa.Table:
    """Rows with exactly these columns, those that they lack being NULL."""
    given = dict(zip(rows.column_names, rows.columns, strict=True))
    # Somebody else may have given a column a name with capitals.
    named = [(fold(name), kind) for name, kind in layout.columns]
    columns = [
        _of_type(given[name], kind) if name in given else pa.nulls(rows.num_rows, kind)
        for name, kind in named
    ]
    return pa.table(columns, schema=layout.arrow)


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # Types that differ in the field ids of their members only count as equal.
    return column if column.type == kind and not pa.types.is_nested(kind) else column.cast(kind)


def by_hour(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Rows by the hour of their time (hours since 1970), in order."""
    bounds = pc.min_max(table.column(TIMESTAMP))
    first, last = (bounds[end].value // US_PER_HOUR for end in ("min", "max"))
    if first == last:  # as good as always, and dear to find out by looking at every row
        yield first, table
        return
    starts = pc.floor_temporal(table.column(TIMESTAMP), unit="hour").cast(pa.int64())
    for start in sorted(pc.unique(starts).to_pylist()):
        yield start // US_PER_HOUR, table.filter(pc.equal(starts, start))


def _write(
    storage: Storage, uri: str, hour: int, table: pa.Table, layout: FileLayout, block: bytes = b""
) -> DataFile:
    """`block`: of token filters for row groups of GROUP_ROWS rows, where there is one."""
    size_bytes = table.nbytes  # dear for so many columns: asked for once
    if size_bytes <= IN_MEMORY_BYTES:
        sink = pa.BufferOutputStream()
        footer = _write_parquet(sink, table, block, small=size_bytes <= SNAPPY_BYTES_MAX)
        data = sink.getvalue()
        storage.write_new(uri, memoryview(data))
        return describe_parquet(uri, hour, data.size, footer, layout.leaves, layout.encodings)
    with storage.create(uri) as file:
        footer = _write_parquet(pa.PythonFile(file, mode="w"), table, block)
        size = file.tell()
    return describe_parquet(uri, hour, size, footer, layout.leaves, layout.encodings)


def _write_parquet(
    sink: pa.NativeFile, table: pa.Table, block: bytes, *, small: bool = False
) -> pq.FileMetaData:
    footers: list[pq.FileMetaData] = []
    options = parquet_options(table.num_rows, small=small)
    with pq.ParquetWriter(sink, table.schema, metadata_collector=footers, **options) as writer:
        sink.write(block)
        writer.write_table(table, row_group_size=GROUP_ROWS if block else None)
    return footers[0]
