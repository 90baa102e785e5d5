"""Columns of data files by field id, a row group at a time: what keys are compared with, and where their rows
came from.

Each commit of a keyed table asks for the same columns of the same files, few rows of each. To open a file and
to read a column of some thousand rows takes longer than all else that is done to them, and files never
change: so what was read is kept.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.keys.key_columns import parquet_errors
from lake.storage import Storage

# Of columns as Arrow has them: a key that is a number, and the topic and partition of its row, take 16 bytes.
KEPT_BYTES = 64 * 1024 * 1024
SHAPES_KEPT = 10_000
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, eq=False)
class FileShape:
    """`ends`: for each row group the number of the first row behind it; `names`: of the columns, by field id;
    `dictionaries`: the names of texts that stand there as numbers of a dictionary."""

    ends: NDArray[np.int64]
    names: Mapping[int, str]
    dictionaries: Sequence[str]


@dataclass
class ColumnReader:
    """Reads, and keeps up to `bytes_max` of what was used last. Thread-safe."""

    storage: Storage
    bytes_max: int = KEPT_BYTES
    kept_bytes: int = field(default=0, init=False)
    _shapes: OrderedDict[str, FileShape] = field(default_factory=OrderedDict, init=False)
    _columns: OrderedDict[tuple[str, int, int], pa.Array | None] = field(
        default_factory=OrderedDict, init=False
    )
    _lock: Lock = field(default_factory=Lock, init=False)

    def groups(
        self, uri: str, positions: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], pa.Array]]:
        """The row groups that rows are in: the number of each, which of the `positions` it has, and where
        these are in it. Raises as `shape`."""
        ends = self.shape(uri).ends
        group_of = np.searchsorted(ends, positions, side="right")
        for group in np.unique(group_of).tolist():
            places = np.flatnonzero(group_of == group)
            first = int(ends[group - 1]) if group else 0
            yield group, places, pa.array(positions[places] - first)

    def shape(self, uri: str) -> FileShape:
        """What a file's footer says. Raises NotFoundError, UnavailableError, ProtocolError."""
        with self._lock:
            if (kept := self._shapes.get(uri)) is not None:
                self._shapes.move_to_end(uri)
                return kept
        with self.storage.open(uri) as file, parquet_errors(uri):
            shape = _shape_of(pq.ParquetFile(file))
        with self._lock:
            self._shapes[uri] = shape
            while len(self._shapes) > SHAPES_KEPT:
                self._shapes.popitem(last=False)
        return shape

    def of_group(self, uri: str, group: int, ids: Sequence[int]) -> list[pa.Array | None]:
        """The columns with these field ids of one row group; None for one that the file does not have. Raises
        as `shape`."""
        shape = self.shape(uri)
        found: dict[int, pa.Array | None] = {}
        with self._lock:
            for each in ids:
                if (key := (uri, group, each)) in self._columns:
                    self._columns.move_to_end(key)
                    found[each] = self._columns[key]
        if missing := [each for each in ids if each not in found]:
            read = self._read(uri, shape, group, missing)
            found |= read
            with self._lock:
                self._keep(uri, group, read)
        return [found[each] for each in ids]

    def _read(self, uri: str, shape: FileShape, group: int, ids: Sequence[int]) -> dict[int, pa.Array | None]:
        names = [shape.names[each] for each in ids if each in shape.names]
        with self.storage.open(uri) as file, parquet_errors(uri):
            parquet = pq.ParquetFile(file, read_dictionary=shape.dictionaries)
            rows = parquet.read_row_group(group, columns=names, use_threads=False)
        return {
            each: _as_one(rows.column(shape.names[each])) if each in shape.names else None for each in ids
        }

    def _keep(self, uri: str, group: int, read: Mapping[int, pa.Array | None]) -> None:
        for each, column in read.items():
            if _bytes(column) > self.bytes_max:
                continue
            replaced = self._columns.pop((uri, group, each), None)
            self._columns[uri, group, each] = column
            self.kept_bytes += _bytes(column) - _bytes(replaced)
        while self.kept_bytes > self.bytes_max:
            _, oldest = self._columns.popitem(last=False)
            self.kept_bytes -= _bytes(oldest)


def _shape_of(parquet: Any) -> FileShape:
    metadata, schema = parquet.metadata, parquet.schema_arrow
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    names = {int((each.metadata or {}).get(_FIELD_ID, b"0")): each.name for each in schema}
    dictionaries = []
    if groups:
        columns = [groups[0].column(at) for at in range(groups[0].num_columns)]
        dictionaries = [
            each.path_in_schema
            for each in columns
            if each.has_dictionary_page and each.physical_type == "BYTE_ARRAY"
        ]
    return FileShape(np.cumsum([group.num_rows for group in groups], dtype=np.int64), names, dictionaries)


def _as_one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _bytes(column: pa.Array | None) -> int:
    return 0 if column is None else int(column.nbytes)
