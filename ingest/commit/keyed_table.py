"""A keyed table at one state, and by what its rows are found."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ingest.commit.live_rows import LiveRows
from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_index_store import KeyedFile, KeyIndexStore
from ingest.model.link import TableKey
from lake.commit import TableState
from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.storage import Storage


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """`schema`: the one that it has after the commit. `reader`: of its data files, for what is looked at
    again with each commit."""

    state: TableState
    schema: LogSchema
    live: LiveRows
    store: KeyIndexStore
    storage: Storage
    reader: ColumnReader


def keyed_files(table: KeyedTable, key: TableKey) -> list[KeyedFile]:
    """The live data files, as look-ups of keys take them, in the order of `live.data`."""
    return as_keyed(table, key, [entry.file for entry in table.live.data])


def as_keyed(table: KeyedTable, key: TableKey, files: Sequence[DataFile]) -> list[KeyedFile]:
    """Data files of the table, as look-ups of keys take them."""
    if not files:
        return []  # the key's columns may be yet to come
    key_ids = tuple(table.state.schema.by_name[name].id for name in key.columns)
    return [KeyedFile(UUID(table.state.uuid), file.uri, file.size_bytes, key_ids) for file in files]
