"""Files of a hot table that grow while its messages come, so that they reach a good size although only little
is held in memory.

A part of the buffer becomes a row group; nothing is visible before the files are closed and committed.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.model.link import NewColumn, TableView, new_columns
from ingest.write.writer import (
    DICTIONARY_ROWS_MIN,
    FileLayout,
    by_hour,
    fields_of,
    laid_out,
    layout_of,
    parquet_options,
)
from lake.data_file import DataFile, describe_parquet
from lake.errors import FirnError
from lake.log_schema import LogSchema
from lake.storage import Storage
from lake.table_layout import data_file_uri


class OpenFile:
    """One Parquet file of one hour, or of one bucket of a keyed table, to be closed or discarded."""

    def __init__(
        self, storage: Storage, uri: str, hour: int | None, layout: FileLayout, bucket: int | None = None
    ) -> None:
        self._uri, self._hour, self._bucket, self._leaves = uri, hour, bucket, layout.leaves
        self._footers: list[pq.FileMetaData] = []
        self._context = storage.create(uri)
        self._file = self._context.__enter__()
        self._writer = pq.ParquetWriter(
            self._file, layout.arrow, metadata_collector=self._footers, **parquet_options(DICTIONARY_ROWS_MIN)
        )

    @property
    def size_bytes(self) -> int:
        """What is in it so far."""
        return int(self._file.tell())

    def write(self, rows: pa.Table) -> None:
        """Adds a row group."""
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> DataFile:
        """Complete, not yet synced."""
        self._writer.close()
        size = self.size_bytes
        self._context.__exit__(None, None, None)
        described = describe_parquet(self._uri, self._hour, size, self._footers[0], self._leaves)
        return replace(described, bucket=self._bucket)

    def discard(self) -> None:
        """As if it had never been."""
        with suppress(OSError, ValueError):  # the storage may be what fails
            self._writer.close()
        reason = ValueError("discarded")
        with suppress(FirnError, OSError, ValueError):
            self._context.__exit__(ValueError, reason, None)


@dataclass
class HotFiles:
    """The files of one flush of one table, written for the table as `view` shows it. `new`: columns it did
    not have.

    `parts`: how many parts of the buffer are in them, from the first on. `hours_max`: of so many hours a file
    is open at once.
    """

    storage: Storage
    view: TableView
    hours_max: int
    parts: int = 0
    rows: int = 0
    new: dict[str, NewColumn] = field(default_factory=dict)
    ids_changed: bool = False  # a promise ended meanwhile: what is written has an id that somebody else took
    _fields: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _open: dict[int, OpenFile] = field(default_factory=dict)
    _done: list[DataFile] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """What the largest file has."""
        return max((file.size_bytes for file in self._open.values()), default=0)

    def append(self, rows: pa.Table, schema: LogSchema) -> None:
        """Adds rows. The schema has the table's columns and theirs."""
        promised = new_columns(self.view.log_schema, schema)
        self.ids_changed = self.ids_changed or any(
            self.new.get(name, column) != column for name, column in promised.items()
        )
        self.new |= promised
        more = {
            field["name"]: field
            for field in fields_of(schema, rows.column_names)
            if field["name"] not in self._fields
        }
        if more:
            self._close_open()
            self._fields |= more
        layout = layout_of(
            list(self._fields.values())
        )  # of all parts so far: the schema of this one need not have the columns of those before
        for hour, part in by_hour(laid_out(rows, layout)):
            if hour not in self._open:
                if len(self._open) >= self.hours_max:
                    self._close_open()
                self._open[hour] = OpenFile(
                    self.storage, data_file_uri(self.view.location, hour), hour, layout
                )
            self._open[hour].write(part)
        self.rows += rows.num_rows

    def close(self) -> list[DataFile]:
        """All files, complete, not yet synced."""
        self._close_open()
        return self._done

    def _close_open(self) -> None:
        self._done += [file.close() for file in self._open.values()]
        self._open = {}

    def discard(self) -> None:
        """Files that are complete are left to the orphan remover."""
        for file in self._open.values():
            file.discard()
        self._open = {}
