"""Rows that another engine (Flink) has deleted by their values, turned into positions: equality deletes cost
every reader a join, and some engines cannot read them at all.

    plan      an equality delete is about the data files of its partition with smaller sequence numbers
              (Iceberg spec, "Scan Planning")
    executor  reads the columns that the deletes name, finds the rows
    commit    position deletes of these rows come, the equality deletes go, in one snapshot; where a file that
              was looked at is gone, or another came that the deletes are about, it is left to the next round

Merges follow on the version after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.data_file import DATA, EQUALITY_DELETES, PARQUET, DataFile
from lake.errors import FirnError, ProtocolError, RefusedError, TooLargeError
from lake.log_schema import LogSchema
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST
from lake.settings import StorageSettings
from lake.span import Partition, in_order
from lake.storage import Storage, open_storage
from lake.table_files import check_ordinary
from lake.table_location import TableLocation
from optimize.compaction import field_id
from optimize.table_view import TableView, has_live

# Of all deletes of one partition, whose keys are held in memory.
ROWS_MAX = 25_000_000
Numbered = tuple[DataFile, int]


@dataclass(frozen=True, slots=True)
class EqualityJob:
    """The equality deletes of one partition, and the data files that they may be about, each with its
    sequence number. `schema`: the table's, as Iceberg's JSON."""

    table: TableName
    partition: Partition
    deletes: tuple[Numbered, ...]
    files: tuple[Numbered, ...]
    schema: Mapping[str, Any]
    table_location: TableLocation


@dataclass(frozen=True, slots=True)
class Turned:
    """The deleted rows of a job's data files, by URI, or why they could not be found."""

    job: EqualityJob
    rows: Mapping[str, BitMap64] = field(default_factory=dict)
    failure: str = ""


def equality_jobs(view: TableView) -> list[EqualityJob]:
    """What is to be turned in a version of a table; deletes of other partition specs are left alone."""
    deletes = _numbered(view, DELETE_MANIFEST, EQUALITY_DELETES, None)
    if not deletes:
        return []
    files = _numbered(view, DATA_MANIFEST, DATA, frozenset(deletes))
    return [
        EqualityJob(
            view.name,
            partition,
            tuple(found),
            tuple(each for each in files.get(partition, ()) if each[1] < max(number for _, number in found)),
            view.state.schema.json,
            view.state.table_location,
        )
        for partition, found in sorted(deletes.items(), key=lambda item: in_order(item[0]))
    ]


def _numbered(
    view: TableView, of_manifests: int, content: int, partitions: frozenset[Partition] | None
) -> dict[Partition, list[Numbered]]:
    """Live files of a kind with their sequence numbers, by partition; only manifests that may hold one of
    these partitions (None: of any) are read."""
    found: dict[Partition, list[Numbered]] = {}
    for manifest in view.own_manifests():
        if manifest.content == of_manifests and has_live(manifest) and view.may_hold(manifest, partitions):
            for entry in view.live_entries(manifest):
                if entry.file.content == content and entry.file.partition is not None:
                    numbered = entry.file, entry.sequence_number or 0
                    found.setdefault(entry.file.partition, []).append(numbered)
    return found


def still_complete(view: TableView, turned: Sequence[Turned]) -> list[Turned]:
    """Those whose deletes are live in this version, and about no other data files than were looked at."""
    now = {job.partition: job for job in equality_jobs(view)}
    found = []
    for one in turned:
        job = now.get(one.job.partition)
        if job is None:
            continue
        looked_at = {file.uri for file, _ in one.job.files}
        ours = {file.place for file, _ in one.job.deletes}
        newest = max(number for _, number in one.job.deletes)
        about = {file.uri for file, number in job.files if number < newest}
        if about == looked_at and ours <= {file.place for file, _ in job.deletes}:
            found.append(one)
    return found


def turn_all(jobs: Iterable[EqualityJob], settings: StorageSettings) -> Iterator[Turned]:
    """The function of a Spark partition."""
    pa.set_cpu_count(1)
    storage = open_storage(settings)
    for job in jobs:
        try:
            yield turn(job, storage)
        except (FirnError, pa.ArrowException, OSError, ValueError, KeyError) as error:
            yield Turned(job, failure=f"{type(error).__name__}: {error}")


def turn(job: EqualityJob, storage: Storage) -> Turned:
    """Finds the rows. Raises RefusedError for deletes of other forms than Parquet with columns of the table,
    TooLargeError, and what reading files raises."""
    if sum(file.rows for file, _ in job.deletes) > ROWS_MAX:
        raise TooLargeError(
            f"partition {job.partition} of {job.table} has more than {ROWS_MAX:,} rows of equality deletes; "
            "run Spark's rewrite_data_files on it"
        )
    by_ids: dict[tuple[int, ...], list[Numbered]] = {}
    for file, number in job.deletes:
        by_ids.setdefault(tuple(file.equality_ids or ()), []).append((file, number))
    found: dict[str, BitMap64] = {}
    for ids, deletes in by_ids.items():
        keys = _DeletedKeys.read(job, storage, ids, deletes)
        for file, number in job.files:
            if number < keys.newest and (rows := keys.rows_of(job, storage, file, number)):
                found[file.uri] = found.get(file.uri, BitMap64()) | rows
    return Turned(job, found)


@dataclass(frozen=True, slots=True)
class _DeletedKeys:
    """The values that rows are deleted by. `values`: by column the distinct ones; `codes`: by column after
    the first the distinct pairs of what came before and this one; `numbers`: of each key the largest sequence
    number that deletes it."""

    ids: tuple[int, ...]
    kinds: tuple[pa.DataType, ...]
    values: tuple[pa.Array, ...]
    codes: tuple[NDArray[np.int64], ...]
    numbers: NDArray[np.int64]

    @classmethod
    def read(
        cls, job: EqualityJob, storage: Storage, ids: tuple[int, ...], deletes: Sequence[Numbered]
    ) -> "_DeletedKeys":
        """Reads the delete files that name these columns."""
        kinds = _kinds(job, ids)
        parts, numbers = list[list[pa.ChunkedArray]](), list[NDArray[np.int64]]()
        for file, number in deletes:
            for columns in _columns(job, storage, file, ids, kinds):
                parts.append(columns)
                numbers.append(np.full(len(columns[0]), number, np.int64))
        chunks = [[chunk for part in parts for chunk in part[at].chunks] for at in range(len(ids))]
        columns = [pa.chunked_array(each, kind) for each, kind in zip(chunks, kinds, strict=True)]
        values = tuple(pc.unique(column) for column in columns)
        codes, coded = list[NDArray[np.int64]](), _codes(columns[0], values[0])
        for column, distinct in zip(columns[1:], values[1:], strict=True):
            pairs = coded * len(distinct) + _codes(column, distinct)
            known, coded = np.unique(pairs, return_inverse=True)
            codes.append(known)
        largest = np.zeros(int(coded.max(initial=-1)) + 1, np.int64)
        np.maximum.at(largest, coded, np.concatenate([np.empty(0, np.int64), *numbers]))
        return cls(ids, kinds, values, tuple(codes), largest)

    @property
    def newest(self) -> int:
        """The largest sequence number of all."""
        return int(self.numbers.max(initial=0))

    def rows_of(self, job: EqualityJob, storage: Storage, file: DataFile, number: int) -> BitMap64:
        """The rows of a data file with this sequence number that are deleted."""
        found = BitMap64()
        first = 0
        for columns in _columns(job, storage, file, self.ids, self.kinds):
            coded = _codes(columns[0], self.values[0])
            for column, distinct, known in zip(columns[1:], self.values[1:], self.codes, strict=True):
                own = _codes(column, distinct)
                pairs = np.where((coded < 0) | (own < 0), -1, coded * len(distinct) + own)
                at = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
                coded = np.where(known[at] == pairs, at, -1)
            deleted = (coded >= 0) & (self.numbers[np.maximum(coded, 0)] > number)
            found.update((np.flatnonzero(deleted) + first).tolist())
            first += len(coded)
        return found


def _codes(column: pa.ChunkedArray, distinct: pa.Array) -> NDArray[np.int64]:
    """Of each value its place among the distinct ones, -1 where it is none; NULL equals NULL."""
    places = pc.fill_null(pc.index_in(column, value_set=distinct), -1)
    return np.asarray(places.to_numpy(), np.int64)


def _kinds(job: EqualityJob, ids: tuple[int, ...]) -> tuple[pa.DataType, ...]:
    known = {column.id: field for column, field in _fields(LogSchema(job.schema))}
    missing = [each for each in ids if each not in known]
    if not ids or missing:
        raise RefusedError(
            f"partition {job.partition} of {job.table} has equality deletes by {missing or 'no column'}, "
            "which is no column of the table; run Spark's rewrite_data_files on it"
        )
    return tuple(known[each].type for each in ids)


def _fields(schema: LogSchema) -> Iterable[tuple[Any, pa.Field]]:
    return zip(schema.columns, schema.arrow, strict=True)


def _columns(
    job: EqualityJob, storage: Storage, file: DataFile, ids: tuple[int, ...], kinds: Sequence[pa.DataType]
) -> Iterator[list[pa.ChunkedArray]]:
    """Columns of a file by their field ids, a row group at a time; NULL where it has none of an id."""
    if file.file_format.upper() != PARQUET:
        raise RefusedError(
            f"{file.uri} is {file.file_format}, and only Parquet is read; run Spark's rewrite_data_files on "
            "it"
        )
    check_ordinary(job.table_location, file.uri, set())
    with storage.open(file.uri) as opened:
        parquet = pq.ParquetFile(opened)
        if parquet.metadata.num_rows != file.rows:
            raise ProtocolError(
                f"{file.uri} has {parquet.metadata.num_rows} rows, and its manifest says {file.rows}; "
                "restore it, or roll the table back"
            )
        names = {field_id(each): each.name for each in parquet.schema_arrow}
        wanted = [names.get(each) for each in ids]
        for group in range(parquet.num_row_groups):
            own = [name for name in wanted if name is not None]
            read = parquet.read_row_group(group, columns=own, use_threads=False)
            yield [
                pa.chunked_array([pa.nulls(parquet.metadata.row_group(group).num_rows, kind)])
                if name is None
                else read.column(name).cast(kind)
                for name, kind in zip(wanted, kinds, strict=True)
            ]
