"""Arrow rows to Parquet files, one per hour partition, with the field ids of the table's schema."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.data_file import DataFile, describe_parquet
from lake.log_schema import SYSTEM_COLUMNS, TIMESTAMP, LogSchema, leaf_ids
from lake.storage import Storage
from lake.table_layout import US_PER_HOUR, data_file_uri

# Level 1: what a flush writes is written again by the optimizer, with a better level.
ZSTD_LEVEL = 1


def write_files(storage: Storage, location: str, rows: pa.Table, schema: LogSchema) -> list[DataFile]:
    """Writes the rows of a flush, one file per hour; complete but not yet synced when this returns.

    Columns absent from `rows` are absent from the files (Iceberg reads them as NULL), but for the system columns.
    """
    fields = fields_of(schema, rows.column_names)
    leaves = leaf_ids(fields)
    return [_write(storage, data_file_uri(location, hour), hour, part, leaves) for hour, part in by_hour(laid_out(rows, fields))]


def write_many_hours(storage: Storage, location: str, rows: pa.Table, schema: LogSchema) -> list[DataFile]:
    """The same for rows of an archive, which may be of a thousand hours: they are put in order once, and a file has only the columns that its hour has.

    All rows are held a second time meanwhile.
    """
    rows = rows.take(pc.sort_indices(rows.column(TIMESTAMP)))
    files = []
    for hour, part in _slices(rows):
        fields = fields_of(schema, [name for name in part.column_names if part.column(name).null_count < part.num_rows])
        names = {field["name"] for field in fields}
        part = laid_out(part.select([name for name in part.column_names if name in names]), fields)
        files.append(_write(storage, data_file_uri(location, hour), hour, part, leaf_ids(fields)))
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
    """The fields of a file that has these columns beside the system ones, as the schema's JSON spells them."""
    return [field for field in schema.json["fields"] if field["name"] in names or field["name"] in SYSTEM_COLUMNS]


def laid_out(rows: pa.Table, fields: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with exactly these fields, those that they lack being NULL."""
    arrow = LogSchema({"fields": fields}).arrow
    missing = {name: pa.nulls(rows.num_rows, arrow.field(name).type) for name in arrow.names if name not in rows.column_names}
    columns = [missing[name] if name in missing else rows.column(name) for name in arrow.names]
    return pa.table([column.cast(field.type) for column, field in zip(columns, arrow, strict=True)], schema=arrow)


def by_hour(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Rows by the hour of their time (hours since 1970), in order."""
    starts = pc.floor_temporal(table.column(TIMESTAMP), unit="hour").cast(pa.int64())
    hours = sorted(start // US_PER_HOUR for start in pc.unique(starts).to_pylist())
    if len(hours) == 1:
        yield hours[0], table
        return
    for hour in hours:
        yield hour, table.filter(pc.equal(starts, hour * US_PER_HOUR))


def _write(storage: Storage, uri: str, hour: int, table: pa.Table, leaves: tuple[int, ...]) -> DataFile:
    footers: list[pq.FileMetaData] = []
    with storage.create(uri) as file:
        pq.write_table(table, file, compression="zstd", compression_level=ZSTD_LEVEL, store_schema=False, metadata_collector=footers)
        size = file.tell()
    return describe_parquet(uri, hour, size, footers[0], leaves)
