"""Merging with PyArrow, inside Spark tasks: reads small files by field id, orders their rows, writes one
file, proves it.

Runs on executors, which get this package as a zip: module level imports are of `lake`, `optimize` and what
every executor has.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lake.data_file import DataFile, describe_parquet
from lake.errors import FirnError, UnavailableError
from lake.log_schema import TIMESTAMP, LogSchema, leaf_ids
from lake.span import Span
from lake.storage import AnyStorage, Storage, open_storage
from lake.token_filter.builder import file_block
from optimize.live_rows import check_keys, key_columns, load_deleted, places_of, without_deleted
from optimize.merge_job import Bin, FileLayout, JobResult, Merged, MergeGroup, MergeJob
from optimize.merged_file import merged_file_uri
from optimize.parquet_options import parquet_options, row_group_rows
from optimize.row_lineage import LAST_UPDATED, LINEAGE_FIELDS, ROW_ID, lineage_column
from optimize.verify import ProofFailed, check_inputs, check_order, check_within, check_written

FIELD_ID = b"PARQUET:field_id"
# Text columns beyond this are held with 64-bit offsets: Arrow's 32-bit ones end at 2 GiB.
LARGE_COLUMN_BYTES = 1 << 30


def merge_bins(bins: Iterable[Bin]) -> Iterator[JobResult]:
    """The function of a Spark partition. A task has one core, so Arrow gets one thread: more would only wait
    for each other."""
    pa.set_cpu_count(1)
    for one in bins:
        storage = open_storage(one.storage)
        yield from merge_bin(one, storage)


def merge_bin(one: Bin, storage: AnyStorage) -> list[JobResult]:
    """Merges every job of a bin; a job that fails leaves no files behind and does not touch the others. All
    outputs are durable at the end."""
    results = [_merge_job(job, storage, one.now_ms) for job in one.jobs]
    storage.sync([file.uri for result in results for merged in result.merged for file in merged.outputs])
    return results


def _merge_job(job: MergeJob, storage: Storage, now_ms: int) -> JobResult:
    started_s = time.process_time()
    merged: list[Merged] = []
    written: list[str] = []
    try:
        merged.extend(merge_group(group, job, storage, now_ms, written) for group in job.groups)
    except (FirnError, ProofFailed, pa.ArrowException, OSError, ValueError) as error:
        # Nobody refers to these files and nobody will; where the storage is away, the orphan remover finds
        # them.
        with suppress(UnavailableError):
            storage.delete(written)
        return JobResult(
            job,
            (),
            f"{type(error).__name__}: {error}",
            time.process_time() - started_s,
            isinstance(error, ProofFailed),
        )
    return JobResult(job, tuple(merged), "", time.process_time() - started_s)


def merge_group(
    group: MergeGroup, job: MergeJob, storage: Storage, now_ms: int, written: list[str]
) -> Merged:
    """Merges the live rows of one group into one file; into none where no row is alive. `written` gets the
    file's URI before anything is written. Raises ProofFailed, FirnError, ArrowException."""
    schema = LogSchema(job.schema)
    deleted = load_deleted(storage, group, job.table_location)
    sources = [
        _Source(storage, file, schema, deleted[at], group.facts_of(at).sequence_number)
        for at, file in enumerate(group.inputs)
    ]
    if group.kept_from_us is not None:
        for source in sources:
            source.leave_out_before(group.kept_from_us)
    present = {field_id for source in sources for field_id in source.ids}
    fields = [f for f in schema.json["fields"] if f["id"] in present or f["required"]]
    fields += LINEAGE_FIELDS if job.keeps_row_ids else ()
    arrow = LogSchema({"fields": fields}).arrow
    ids = [f["id"] for f in fields]
    together = _combined([source.read(arrow, ids) for source in sources], arrow)
    order = pc.sort_indices(
        together,
        sort_keys=[(name, "ascending") for name in job.layout.sort_by if name in together.column_names],
    )
    check_order(order, together.num_rows)
    rows = together.take(order)
    del together
    keys = [name for name in key_columns(schema) if name in rows.column_names] if group.keeps_places else []
    if keys:
        check_keys([(source.file, source.columns(arrow, keys), source.deleted) for source in sources], rows)
    places = places_of(deleted, order) if group.keeps_places else None
    gone = sum(map(len, deleted))
    outputs = _write_output(group, job, storage, now_ms, written, rows, fields)
    # What a file does not hold of the ids of its rows they inherit: that is no NULL.
    inherited = {each for each in (ROW_ID, LAST_UPDATED) for source in sources if not source.holds(each)}
    kinds = dict(zip(leaf_ids(fields), leaf_kinds(fields), strict=True))
    check_inputs(
        [(source.file, source.described) for source in sources],
        outputs,
        {leaf: kind for leaf, kind in kinds.items() if leaf not in inherited},
        gone,
    )
    checksums = tuple(check_written(storage, output, rows, leaf_ids(fields)) for output in outputs)
    return Merged(group, tuple(outputs), checksums, places)


def _write_output(
    group: MergeGroup,
    job: MergeJob,
    storage: Storage,
    now_ms: int,
    written: list[str],
    rows: pa.Table,
    fields: Sequence[Mapping[str, Any]],
) -> list[DataFile]:
    if not rows.num_rows:
        return []
    uri = merged_file_uri(job.location, group.partition, now_ms)
    written.append(uri)
    place, by_bucket = group.partition, group.by_bucket
    if isinstance(place, Span):
        check_within(rows.column(TIMESTAMP), place.hours)
        return [replace(write_file(storage, uri, None, rows, fields, job.layout), span=place)]
    output = write_file(storage, uri, None if by_bucket else place, rows, fields, job.layout)
    return [replace(output, bucket=place) if by_bucket else output]


class _Source:
    """One input file, its footer read. `deleted`: its rows that are not alive."""

    def __init__(
        self,
        storage: Storage,
        file: DataFile,
        schema: LogSchema,
        deleted: BitMap64,
        sequence_number: int | None,
    ) -> None:
        self.file, self.deleted = file, deleted
        self._sequence_number = sequence_number
        self._parquet = pq.ParquetFile(pa.BufferReader(storage.read(file.uri, bytes_max=file.size_bytes)))
        self._arrow: pa.Schema = self._parquet.schema_arrow
        self._places = {i: at for at, field in enumerate(self._arrow) if (i := field_id(field)) is not None}
        self._known = {column.id for column in schema.columns}
        self._timestamp = next(field for field in schema.json["fields"] if field["name"] == TIMESTAMP)
        if field_id(self._arrow.field(0)) is None:
            raise ValueError(
                f"{file.uri} has no field ids; set schema.name-mapping.default and run Spark's "
                "rewrite_data_files on it"
            )
        self.described = describe_parquet(
            file.uri, file.hour or 0, file.size_bytes, self._parquet.metadata, arrow_leaves(self._arrow)
        )

    @property
    def ids(self) -> Iterable[int]:
        return self._places.keys() & self._known

    def read(self, arrow: pa.Schema, ids: Sequence[int]) -> pa.Table:
        """The live rows with the wanted columns, NULL where the file has none of an id. Raises ArrowInvalid
        where a type does not fit."""
        table = self._parquet.read(use_threads=False)
        columns = []
        for wanted_id, field in zip(ids, arrow, strict=True):
            at = self._places.get(wanted_id)
            column = None if at is None else _fitted(table.column(at), field.type)
            if wanted_id in (ROW_ID, LAST_UPDATED):
                column = lineage_column(
                    wanted_id, self.file, self._sequence_number, range(table.num_rows), column
                )
            columns.append(pa.nulls(table.num_rows, field.type) if column is None else column)
        return without_deleted(pa.table(columns, schema=arrow), self.deleted)

    def holds(self, field_id: int) -> bool:
        """Whether the file has a column of this id."""
        return field_id in self._places

    def leave_out_before(self, time_us: int) -> None:
        """Counts rows before a time (µs since 1970) as deleted ones."""
        times = self.columns(LogSchema({"fields": [self._timestamp]}).arrow, [TIMESTAMP]).column(0)
        past = pc.less(times.cast(pa.int64()), time_us)
        self.deleted.update(np.flatnonzero(past.to_numpy()).tolist())

    def columns(self, arrow: pa.Schema, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows, read once more."""
        fields = [arrow.field(name) for name in names]
        places = [self._places.get(field_id(field) or 0) for field in fields]
        own = [self._arrow.field(at).name for at in places if at is not None]
        table = self._parquet.read(columns=own, use_threads=False)
        columns = [
            pa.nulls(table.num_rows, field.type)
            if at is None
            else _fitted(table.column(self._arrow.field(at).name), field.type)
            for at, field in zip(places, fields, strict=True)
        ]
        return pa.table(columns, names=list(names))


def _fitted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type.equals(wanted) else column.cast(wanted)


def field_id(field: pa.Field) -> int | None:
    """The Iceberg field id that a Parquet file carries for a column."""
    raw = (field.metadata or {}).get(FIELD_ID)
    return None if raw is None else int(raw)


def arrow_leaves(schema: pa.Schema) -> list[int]:
    """Field ids of all leaves of a file, in Parquet's order; -1 where it has none."""
    return [leaf for field in schema for leaf in arrow_leaf_ids(field)]


def arrow_leaf_ids(field: pa.Field) -> list[int]:
    """Field ids of the leaves below a column, in Parquet's order; -1 where the file has none."""
    kind = field.type
    if pa.types.is_struct(kind):
        return [leaf for part in kind for leaf in arrow_leaf_ids(part)]
    if pa.types.is_map(kind):
        return [*arrow_leaf_ids(kind.key_field), *arrow_leaf_ids(kind.item_field)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return arrow_leaf_ids(kind.value_field)
    found = field_id(field)
    return [-1 if found is None else found]


def _combined(tables: Sequence[pa.Table], arrow: pa.Schema) -> pa.Table:
    """All rows in one table, each column in one chunk so that rows can be taken from it."""
    table = pa.concat_tables(tables)
    columns = []
    for field, column in zip(arrow, table.columns, strict=True):
        if column.nbytes > LARGE_COLUMN_BYTES and (
            pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        ):
            column = column.cast(pa.large_string() if pa.types.is_string(field.type) else pa.large_binary())
        columns.append(column)
    kinds = [arrow_field.with_type(column.type) for arrow_field, column in zip(arrow, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(kinds)).combine_chunks()


def write_file(
    storage: Storage,
    uri: str,
    hour: int | None,
    rows: pa.Table,
    fields: Sequence[Mapping[str, Any]],
    layout: FileLayout,
) -> DataFile:
    """Writes ordered rows as one Parquet file; complete, not yet synced."""
    footers: list[pq.FileMetaData] = []
    group_rows = row_group_rows(layout)
    block = file_block(rows, group_rows) if layout.token_filter else b""
    options = parquet_options(rows, fields, layout)
    with storage.create(uri) as file:
        sink = pa.PythonFile(file, mode="w")
        with pq.ParquetWriter(sink, rows.schema, metadata_collector=footers, **options) as writer:
            sink.write(block)
            writer.write_table(rows, row_group_size=group_rows)
        size = file.tell()
    return describe_parquet(uri, hour, size, footers[0], leaf_ids(fields))


def leaf_kinds(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Primitive types of the leaves, in the order of `leaf_ids`; those inside lists have another count of
    values and are left out as ''."""
    return [
        kind
        for f in fields
        for kind in ([f["type"]] if isinstance(f["type"], str) else [""] * len(leaf_ids([f])))
    ]
