"""Files of one flush of a keyed table, which grow part by part: a file per bucket, a new one where columns
came or became wider."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.keys.key_bucket import buckets_of
from ingest.keys.keyed_steps import NO_FILE
from ingest.write.hot_table import OpenFile
from ingest.write.writer import FileLayout, fields_of, laid_out, layout_of
from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.storage import Storage
from lake.table_layout import data_file_uri


@dataclass(slots=True)
class _BucketFile:
    """An open file: its number in the flush, how many rows it has."""

    number: int
    file: OpenFile
    rows: int = 0


@dataclass
class KeyedFiles:
    """Writes below the table's `location`; `buckets` as its spec says."""

    storage: Storage
    location: str
    buckets: int
    rows: int = 0
    _fields: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _open: dict[int, _BucketFile] = field(default_factory=dict)
    _done: dict[int, DataFile] = field(default_factory=dict)
    _begun: int = 0

    def append(
        self, rows: pa.Table, schema: LogSchema, first_key: str
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Adds rows; for each the number of its file, and its own in that. `first_key`: the column by which
        rows have buckets."""
        layout = self._layout(rows, schema)
        files = np.full(rows.num_rows, NO_FILE, np.int32)
        numbers = np.full(rows.num_rows, NO_FILE, np.int64)
        rows = laid_out(rows, layout)
        buckets = buckets_of(rows.column(first_key), self.buckets)
        for bucket, at in _by_bucket(buckets):
            into = self._file(bucket, layout)
            into.file.write(rows if len(at) == rows.num_rows else rows.take(pa.array(at)))
            files[at], numbers[at] = into.number, into.rows + np.arange(len(at))
            into.rows += len(at)
        self.rows += rows.num_rows
        return files, numbers

    def _layout(self, rows: pa.Table, schema: LogSchema) -> FileLayout:
        """The columns of all parts so far and of these rows. What is open is closed where that changes."""
        wanted = {field["name"]: field for field in fields_of(schema, rows.column_names)}
        after = self._fields | wanted
        if after != self._fields:
            self._close_open()
            self._fields = after
        return layout_of(list(self._fields.values()))

    def _file(self, bucket: int, layout: FileLayout) -> _BucketFile:
        if bucket not in self._open:
            uri = data_file_uri(self.location, bucket)
            file = OpenFile(self.storage, uri, None, layout, bucket)
            self._open[bucket] = _BucketFile(self._begun, file)
            self._begun += 1
        return self._open[bucket]

    def close(self) -> list[DataFile]:
        """All files in the order of their numbers: complete, not yet synced."""
        self._close_open()
        return [self._done[number] for number in range(self._begun)]

    def _close_open(self) -> None:
        for opened in self._open.values():
            self._done[opened.number] = opened.file.close()
        self._open = {}

    def discard(self) -> None:
        """Files that are complete are left to the orphan remover."""
        for opened in self._open.values():
            opened.file.discard()
        self._open = {}


def _by_bucket(buckets: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Places of the rows of each bucket."""
    for bucket in np.unique(buckets):
        yield int(bucket), np.flatnonzero(buckets == bucket)
