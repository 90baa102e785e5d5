"""Rows whose source did not send all values: completed from the rows that have them, and written once more.

The values are in an earlier row of the same flushes, or in a row of the table. What nobody has stays NULL and
is noted in `_errors`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.commit.keyed_table import KeyedTable, deleted_arrays
from ingest.keys.key_hash import KeyHashes
from ingest.keys.key_index_store import KeyedFile
from ingest.keys.key_lookup import find_live_rows
from ingest.keys.keyed_steps import KeyedSteps
from ingest.model.link import TableKey
from ingest.write.hot_table import OpenFile
from ingest.write.writer import fields_of, laid_out, layout_of
from lake.data_file import DataFile
from lake.log_schema import ERRORS, ValueReason
from lake.table_layout import data_file_uri

Row = dict[str, Any]
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Completed:
    """`steps` name the rows where they are now; `files`: what was written, numbered after the flushes' own.
    `replaced`: places of steps, with the file and row where each was before."""

    steps: KeyedSteps
    files: Sequence[DataFile]
    replaced: Sequence[tuple[int, int]]


def complete_rows(
    table: KeyedTable, steps: KeyedSteps, winners: NDArray[np.int64], key: TableKey, own: Sequence[DataFile]
) -> Completed:
    """Completes the rows of the winning steps that lack values. Raises what reading and writing files
    raises."""
    if steps.unavailable is None or steps.values_of is None:
        return Completed(steps, (), ())
    lacking = [int(at) for at in winners if steps.unavailable[int(at)].is_valid]
    if not lacking:
        return Completed(steps, (), ())
    rows = _Rows(table, steps, key, own)
    completed = {at: rows.complete(at) for at in lacking}
    return _written(table, steps, own, completed)


class _Rows:
    """Rows of the flushes' own files and of the table, each read once."""

    def __init__(self, table: KeyedTable, steps: KeyedSteps, key: TableKey, own: Sequence[DataFile]) -> None:
        assert steps.values_of is not None
        self._table, self._steps, self._own = table, steps, own
        self._names = {column.id: column.name for column in table.schema.columns}
        self._of: KeyHashes = steps.values_of
        self._files: dict[str, pa.Table] = {}
        self._done: dict[int, Row] = {}
        self._places: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at in np.flatnonzero(steps.file >= 0).tolist():
            self._places[int(steps.hashes.high[at]), int(steps.hashes.low[at])].append(at)
        ids = tuple(table.state.schema.by_name[name].id for name in key.columns if table.live.data)
        self._keyed = [
            KeyedFile(UUID(table.state.uuid), entry.file.uri, entry.file.size_bytes, ids)
            for entry in table.live.data
        ]

    def complete(self, at: int) -> Row:
        """The row of a step with the values that it keeps."""
        if at in self._done:
            return self._done[at]
        row = dict(self._own_row(at))
        names = self._steps.unavailable[at].as_py() if self._steps.unavailable is not None else None
        if names:
            there = self._source(at)
            row |= {name: None if there is None else there.get(name) for name in names}
            if there is None:
                row[ERRORS] = [*(row.get(ERRORS) or ()), *map(_missing, names)]
        self._done[at] = row
        return row

    def _source(self, at: int) -> Row | None:
        """The row that has the values a step lacks."""
        wanted = int(self._of.high[at]), int(self._of.low[at])
        offset, source = self._steps.offset[at], self._steps.source[at]
        earlier = [
            other
            for other in self._places.get(wanted, ())
            if other != at and self._steps.source[other] == source and self._steps.offset[other] < offset
        ]
        if earlier:
            return self.complete(max(earlier, key=lambda other: int(self._steps.offset[other])))
        hashes = KeyHashes(np.array([wanted[0]], np.uint64), np.array([wanted[1]], np.uint64))
        found = find_live_rows(self._table.store, hashes, self._keyed, deleted_arrays(self._table.live))
        if not len(found):
            return None
        return self._row(self._keyed[int(found.file[0])].uri, int(found.position[0]))

    def _own_row(self, at: int) -> Row:
        return self._row(self._own[int(self._steps.file[at])].uri, int(self._steps.row[at]))

    def _row(self, uri: str, position: int) -> Row:
        if uri not in self._files:
            with self._table.storage.open(uri) as file:
                read = pq.read_table(file)
            ids = [int((field.metadata or {}).get(_FIELD_ID, b"0")) for field in read.schema]
            self._files[uri] = read.rename_columns(
                [self._names.get(field_id, f"\0{field_id}") for field_id in ids]
            )
        (row,) = self._files[uri].slice(position, 1).to_pylist()
        return dict(row)


def _missing(column: str) -> Mapping[str, str | None]:
    return {"field": column, "value": None, "reason": ValueReason.UNAVAILABLE.value}


def _written(
    table: KeyedTable, steps: KeyedSteps, own: Sequence[DataFile], completed: Mapping[int, Row]
) -> Completed:
    """Writes the rows, a file for each bucket."""
    by_bucket: dict[int | None, list[int]] = defaultdict(list)
    for at in completed:
        by_bucket[own[int(steps.file[at])].bucket].append(at)
    file, row = steps.file.copy(), steps.row.copy()
    files = []
    for number, (bucket, places) in enumerate(by_bucket.items(), len(own)):
        files.append(_write(table, bucket, [completed[at] for at in places]))
        file[places], row[places] = number, np.arange(len(places))
    table.storage.sync([each.uri for each in files])
    replaced = [(int(steps.file[at]), int(steps.row[at])) for at in completed]
    return Completed(replace(steps, file=file, row=row), files, replaced)


def _write(table: KeyedTable, bucket: int | None, rows: Sequence[Row]) -> DataFile:
    names = {name for row in rows for name, value in row.items() if value is not None}
    layout = layout_of(fields_of(table.schema, names))
    given = pa.Table.from_pylist(
        [{name: row.get(name) for name in layout.arrow.names} for row in rows],
        pa.schema([field.with_nullable(True) for field in layout.arrow]),
    )
    uri = data_file_uri(table.state.location, bucket or 0)
    opened = OpenFile(table.storage, uri, None, layout, bucket)
    opened.write(laid_out(given, layout))
    return opened.close()
