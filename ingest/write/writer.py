"""Arrow rows to Parquet files, one per hour partition, with the field ids of the table's schema."""

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary, ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.convert.work import RowSlice
from ingest.core.library import Absent, load
from ingest.core.parquet import ParquetRows, layout_for_core
from ingest.core.reordering import Reordering
from lake.bounds import Encoding
from lake.data_file import DataFile, describe_parquet, encodings_of, listed_file
from lake.log_schema import (
    INDEX,
    SEVERITY,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
    LogSchema,
    leaf_ids,
)
from lake.storage import Storage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.token_filter.block import PARQUET_MAGIC_BYTES
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
# The native core writes files of up to so much, before compression, without dictionaries and filters. Of 600
# rows pyarrow makes half as many bytes in three times the time; maintenance merges them within the hour. Of
# more, what a file costs pyarrow by itself weighs less.
CORE_ROWS_MAX = min(DICTIONARY_ROWS_MIN, FILTERED_ROWS_MIN) - 1
CORE_BYTES_MAX = 256 * 1024
# After so many rows pyarrow looks whether a page is full. By its own 1,024, columns that most rows lack take
# a tenth longer.
WRITE_BATCH_ROWS = 4_096
# A smaller file is put together in memory: Parquet's many small writes are dear when each goes through
# Python.
IN_MEMORY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class FileLayout:
    """The columns of a file: their Arrow schema with field ids, each one's folded name with its type, and the
    field ids of the leaves in the order of Parquet's columns."""

    arrow: pa.Schema
    columns: Sequence[tuple[str, pa.DataType]]
    leaves: tuple[int, ...]
    fields: Sequence[Mapping[str, Any]]

    @cached_property
    def for_core(self) -> bytes | None:
        """The fields as the native core reads them; None where it cannot write them."""
        return layout_for_core(self.fields, SYSTEM_COLUMNS)

    @cached_property
    def encodings(self) -> Sequence[Encoding | None]:
        """How Parquet's statistics of the leaves are to be read."""
        return [encoding for field in self.arrow for encoding in _encodings(field.type)]


@lru_cache(maxsize=256)
def _encodings(kind: pa.DataType) -> Sequence[Encoding | None]:
    """Those of a column's leaves: what pyarrow says of a file with no row."""
    footers: list[pq.FileMetaData] = []
    none = pa.schema([("column", kind)]).empty_table()
    pq.write_table(none, pa.BufferOutputStream(), store_schema=False, metadata_collector=footers)
    return encodings_of(footers[0])


def layout_of(fields: Sequence[Mapping[str, Any]]) -> FileLayout:
    """The layout of a file with these fields, as a schema's JSON spells them."""
    return _layout_of(LogSchema({"fields": fields}), range(len(fields)))


def _layout_of(schema: LogSchema, places: Sequence[int]) -> FileLayout:
    """Of the columns at these places. What is of a column alone is the schema's, one for all its layouts:
    made anew it would be four fifths of their memory."""
    fields = [schema.json["fields"][at] for at in places]
    arrow = pa.schema([schema.arrow.field(at) for at in places])
    return FileLayout(arrow, [schema.arrow_types[at] for at in places], leaf_ids(fields), fields)


class Layouts:
    """The layouts that were made last, of `LAID_OUT_MAX` columns together. Most tables of a node have the
    schema of their shipper, one object for all of them, and files of different columns of it; what was laid
    out by a schema goes with it."""

    def __init__(self) -> None:
        self._of = WeakKeyDictionary[LogSchema, dict[tuple[str, ...], FileLayout]]()
        self._made = deque[tuple[ref[LogSchema], tuple[str, ...]]]()
        self._columns = 0  # of all of them

    def __call__(self, schema: LogSchema, names: tuple[str, ...]) -> FileLayout:
        """The layout of a file with these columns of a schema."""
        known = self._of.setdefault(schema, {})
        found = known.get(names)
        if found is None:
            found = known[names] = _layout_of(schema, _places_of(schema, names))
            self._made.append((ref(schema), names))
            self._columns += len(names)
            while self._columns > LAID_OUT_MAX and len(self._made) > 1:
                self._forget(*self._made.popleft())
        return found

    def _forget(self, of: ref[LogSchema], names: tuple[str, ...]) -> None:
        self._columns -= len(names)
        schema = of()
        if schema is not None:
            del self._of[schema][names]


# 200 bytes for each. Not a number of layouts: whoever sends a thousand fields, others in each flush, would
# have fifty times as much remembered.
LAID_OUT_MAX = 50_000
_layout = Layouts()


def parquet_options(rows: int, *, small: bool = False) -> dict[str, Any]:
    """How rows of a flush are encoded. `small`: they take at most `SNAPPY_BYTES_MAX` as Arrow columns."""
    dictionary: Any = list(DICTIONARY) if rows >= DICTIONARY_ROWS_MIN else False
    codec: dict[str, Any] = (
        {"compression": "snappy"} if small else {"compression": "zstd", "compression_level": ZSTD_LEVEL}
    )
    return {
        **codec,
        "use_dictionary": dictionary,
        "store_schema": False,
        "write_batch_size": WRITE_BATCH_ROWS,
    }


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


class SharedLayouts:
    """Files of slices of the same rows: these are laid out once for all tables with equal columns. A context
    manager; not thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._open = ExitStack()
        self._known = dict[tuple[int, int], tuple[ParquetRows | None, pa.Table, LogSchema]]()
        self._hours = dict[int, NDArray[np.int64]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def write(self, location: str, part: RowSlice, schema: LogSchema) -> list[DataFile] | None:
        """Writes a slice as `write_files` does; None where that has to: it is no small file of one hour."""
        core, count = self._in_core(part.rows, schema), part.end - part.first
        if core is None or not count:
            return None
        hours = self._hours[id(part.rows)][part.first : part.end]
        hour = int(hours[0])
        if (hours != hour).any():
            return None
        uri = data_file_uri(location, hour)
        file = _write_small(self._storage, uri, hour, core, part.first, count, leave_out_nulls=True)
        return None if file is None else [file]

    def _in_core(self, rows: pa.Table, schema: LogSchema) -> ParquetRows | None:
        key = id(rows), id(schema)
        if key not in self._known:
            layout = _layout(schema, tuple(rows.column_names))
            core = self._open.enter_context(_in_core(laid_out(rows, layout), layout))
            # Kept, so that nothing else gets their ids meanwhile.
            self._known[key] = core, rows, schema
            self._hours[id(rows)] = rows.column(TIMESTAMP).cast(pa.int64()).to_numpy() // US_PER_HOUR
        return self._known[key][0]


def write_many_hours(
    storage: Storage, location: str, rows: pa.Table, schema: LogSchema, *, token_filter: bool = True
) -> list[DataFile]:
    """The same for rows of an archive, which may be of a thousand hours: they are put in order once, and a
    file has only the columns that its hour has. `token_filter`: whether those with so many rows that it pays
    have a filter of their words.

    Rows that are not in the order of time are all held a second time meanwhile.
    """
    order = _order(rows)
    times = rows.column(TIMESTAMP)
    hours = list(_hours(times if order is None else pc.take(times, order)))
    are_small = [count <= CORE_ROWS_MAX for *_, count in hours]
    if order is not None:
        # The core picks the rows of each file out of all of them: where all files are its, none is moved.
        if all(are_small):
            rows = rows.combine_chunks()
        else:
            rows, order = Reordering(order).rows(rows), None
    layout = _layout(schema, tuple(rows.column_names))
    files = []
    # Where all hours are large, nothing is copied for the core.
    with _in_core(laid_out(rows, layout), layout, order) if any(are_small) else nullcontext() as core:
        for hour, first, count in hours:
            uri = data_file_uri(location, hour)
            file = _write_small(storage, uri, hour, core, first, count, leave_out_nulls=True)
            if file is None:
                part = rows.slice(first, count) if order is None else rows.take(order.slice(first, count))
                file = _write_hour(storage, uri, hour, part, schema, token_filter)
            files.append(file)
    return files


def _order(rows: pa.Table) -> pa.Array | None:
    """The order of the rows by their times; None where they are in it, as in most archives."""
    times = rows.column(TIMESTAMP).cast(pa.int64()).to_numpy()
    return None if (times[1:] >= times[:-1]).all() else pc.sort_indices(rows.column(TIMESTAMP))


def _write_hour(
    storage: Storage, uri: str, hour: int, rows: pa.Table, schema: LogSchema, token_filter: bool
) -> DataFile:
    """Of an hour of an archive, the columns that have a value."""
    names = tuple(name for name in rows.column_names if rows.column(name).null_count < rows.num_rows)
    layout = _layout(schema, names)
    rows = laid_out(rows, layout)
    is_filtered = token_filter and rows.num_rows >= FILTERED_ROWS_MIN
    block = file_block(rows, GROUP_ROWS) if is_filtered else b""
    return _write_by_arrow(storage, uri, hour, rows, layout, block)


def _hours(times: pa.ChunkedArray) -> Iterator[tuple[int, int, int]]:
    """Of ascending times each hour, the number of its first row, and how many it has."""
    starts = pc.floor_temporal(times, unit="hour").cast(pa.int64()).combine_chunks()
    first = 0
    for count in pc.value_counts(starts).to_pylist():
        yield count["values"] // US_PER_HOUR, first, count["counts"]
        first += count["counts"]


def fields_of(schema: LogSchema, names: Container[str]) -> list[Mapping[str, Any]]:
    """The fields of a file that has these columns (their names folded) beside the system ones, as the
    schema's JSON spells them."""
    return [schema.json["fields"][at] for at in _places_of(schema, names)]


def _places_of(schema: LogSchema, names: Container[str]) -> list[int]:
    """The places of these fields in the schema."""
    ours = {schema.by_name[name].id for name in schema.by_name if name in names or name in SYSTEM_COLUMNS}
    return [at for at, field in enumerate(schema.json["fields"]) if field["id"] in ours]


def laid_out(rows: pa.Table, layout: FileLayout) -> pa.Table:
    """Rows with exactly these columns, those that they lack being NULL."""
    given = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = [
        _of_type(given[name], kind) if name in given else pa.nulls(rows.num_rows, kind)
        for name, kind in layout.columns
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


def _write(storage: Storage, uri: str, hour: int, table: pa.Table, layout: FileLayout) -> DataFile:
    if table.num_rows > CORE_ROWS_MAX:  # nothing of it is copied for the core
        return _write_by_arrow(storage, uri, hour, table, layout)
    with _in_core(table, layout) as core:
        file = _write_small(storage, uri, hour, core, 0, table.num_rows)
    return _write_by_arrow(storage, uri, hour, table, layout) if file is None else file


@contextmanager
def _in_core(
    rows: pa.Table, layout: FileLayout, order: pa.Array | None = None
) -> Iterator[ParquetRows | None]:
    """Rows for the native core to write; None where there is no core, or no use in asking it."""
    functions = load()
    if isinstance(functions, Absent) or layout.for_core is None:
        yield None
        return
    batches = rows.combine_chunks().to_batches()
    if len(batches) != 1:  # no row, or more text than an array can have
        yield None
        return
    numbers = None if order is None else order.to_numpy().astype(np.uint32)
    with ParquetRows(functions, layout.for_core, batches[0], numbers) as core:
        yield core


def _write_small(
    storage: Storage,
    uri: str,
    hour: int,
    core: ParquetRows | None,
    first: int,
    count: int,
    *,
    leave_out_nulls: bool = False,
) -> DataFile | None:
    """Has the core write a few rows; None where it does not."""
    if core is None or count > CORE_ROWS_MAX:
        return None
    small = core.file(first, count, CORE_BYTES_MAX, leave_out_nulls=leave_out_nulls)
    if small is None:
        return None
    storage.write_new(uri, small.data)
    return listed_file(uri, hour, count, len(small.data), small.metrics, PARQUET_MAGIC_BYTES)


def _write_by_arrow(
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
