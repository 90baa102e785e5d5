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
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.keys.key_columns import field_ids, parquet_errors
from lake.storage import Storage

# Of columns as Arrow has them: a key that is a number, and the topic and partition of its row, take 16 bytes.
KEPT_BYTES = 64 * 1024 * 1024
# What it takes to keep one, however small, and also that a file does not have it.
ENTRY_BYTES = 512
FOOTERS_KEPT = 10_000


@dataclass
class ColumnReader:
    """Reads, and keeps up to `bytes_max` of what was used last. Thread-safe."""

    storage: Storage
    bytes_max: int = KEPT_BYTES
    kept_bytes: int = field(default=0, init=False)
    _ends: OrderedDict[str, NDArray[np.int64]] = field(default_factory=OrderedDict, init=False)
    _columns: OrderedDict[tuple[str, int, int], pa.Array | None] = field(
        default_factory=OrderedDict, init=False
    )
    _lock: Lock = field(default_factory=Lock, init=False)

    def groups(
        self, uri: str, positions: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], pa.Array]]:
        """The row groups that rows are in: the number of each, which of the `positions` it has, and where
        these are in it. Raises NotFoundError, UnavailableError, ProtocolError."""
        ends = self._group_ends(uri)
        group_of = np.searchsorted(ends, positions, side="right")
        for group in np.unique(group_of).tolist():
            places = np.flatnonzero(group_of == group)
            first = int(ends[group - 1]) if group else 0
            yield group, places, pa.array(positions[places] - first)

    def _group_ends(self, uri: str) -> NDArray[np.int64]:
        """For each row group the number of the first row behind it."""
        with self._lock:
            if (kept := self._ends.get(uri)) is not None:
                self._ends.move_to_end(uri)
                return kept
        with self.storage.open(uri) as file, parquet_errors(uri):
            footer = pq.ParquetFile(file).metadata
        rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
        ends = np.cumsum(rows, dtype=np.int64)
        with self._lock:
            self._ends[uri] = ends
            while len(self._ends) > FOOTERS_KEPT:
                self._ends.popitem(last=False)
        return ends

    def of_group(self, uri: str, group: int, ids: Sequence[int]) -> list[pa.Array | None]:
        """The columns with these field ids of one row group; None for one that the file does not have. Raises
        as `groups`."""
        found: dict[int, pa.Array | None] = {}
        with self._lock:
            for each in ids:
                if (key := (uri, group, each)) in self._columns:
                    self._columns.move_to_end(key)
                    found[each] = self._columns[key]
        if missing := [each for each in ids if each not in found]:
            with self.storage.open(uri) as file, parquet_errors(uri):
                read = _read(file, group, missing)
            found |= read
            with self._lock:
                self._keep(uri, group, read)
        return [found[each] for each in ids]

    def _keep(self, uri: str, group: int, read: Mapping[int, pa.Array | None]) -> None:
        for each, column in read.items():
            if _bytes(column) > self.bytes_max:
                continue
            key = uri, group, each
            if key in self._columns:  # another thread was as quick
                self.kept_bytes -= _bytes(self._columns.pop(key))
            self._columns[key] = column
            self.kept_bytes += _bytes(column)
        while self.kept_bytes > self.bytes_max:
            _, oldest = self._columns.popitem(last=False)
            self.kept_bytes -= _bytes(oldest)


def _read(file: IO[bytes], group: int, ids: Sequence[int]) -> dict[int, pa.Array | None]:
    """Columns of a row group; texts that stand there as numbers of a dictionary stay so."""
    parquet = pq.ParquetFile(file)
    names = {field_id: name for name, field_id in field_ids(parquet.schema_arrow).items() if field_id in ids}
    footer = parquet.metadata.row_group(group)
    chunks = [footer.column(at) for at in range(footer.num_columns)]
    dictionaries = [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    ]
    parquet = pq.ParquetFile(file, metadata=parquet.metadata, read_dictionary=dictionaries)
    rows = parquet.read_row_group(group, columns=list(names.values()), use_threads=False)
    return {each: rows.column(names[each]).combine_chunks() if each in names else None for each in ids}


def _bytes(column: pa.Array | None) -> int:
    return ENTRY_BYTES + (0 if column is None else int(column.nbytes))
