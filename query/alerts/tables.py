"""The tables of one round, each loaded once, whatever number of rules asks for it, and many in one
request."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError, NotFoundError
from lake.table_loads import load_each
from lake.tenant import TableId
from query.files.file_index import FileIndex, LiveFile
from query.model.table_view import TableSource, TableView, load_view


class LoadedTables:
    """What searches of a round load tables from."""

    def __init__(self, catalog: CatalogClient, tables: Iterable[TableId]) -> None:
        names = dict.fromkeys(TableName(each.tenant.namespace, each.table) for each in tables)
        self._loaded: Mapping[TableName, dict[str, Any] | FirnError] = dict(load_each(catalog, names))

    def load_table(self, table: TableName) -> dict[str, Any]:
        """The table as `CatalogClient.load_table` gives it. Raises what that raised."""
        loaded = self._loaded.get(table)
        if isinstance(loaded, dict):
            return loaded
        raise loaded or NotFoundError(f"{table} was not loaded")


class TableLook:
    """A table as a round has it: its newest files, by sequence number."""

    def __init__(self, view: TableView, files: tuple[LiveFile, ...]) -> None:
        self._view = view
        self.snapshot_id = view.snapshot_id
        self._files = files
        self.sequence = max((file.sequence_number or 0 for file in files), default=0)

    @cached_property
    def pin(self) -> str:
        """What re-opens exactly these rows."""
        return self._view.pin().to_text()

    def has_rows_since(self, sequence: int, start: int, end: int) -> bool:
        """Whether a file that is newer than a sequence number may have rows of `[start, end)` (seconds since
        1970). A merged file is as new as its merge, so it may be taken for late rows; then they are counted
        again, to the same result."""
        first_us, last_us = start * 1_000_000, end * 1_000_000
        return any(
            file.first_us < last_us and file.last_us >= first_us
            for file in self._files
            if file.sequence_number is None or file.sequence_number > sequence
        )


def look_at(tables: TableSource, index: FileIndex, table: TableId) -> TableLook:
    """Raises FirnError, BadRequestError."""
    view = load_view(tables, table)
    return TableLook(view, index.files(view).files)
