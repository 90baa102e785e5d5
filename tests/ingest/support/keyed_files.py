"""Data files of a keyed table, written by hand: an id, a name, and a column that no key has."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.keys.key_index_store import KeyedFile
from lake.storage import LocalStorage

TABLE = UUID("00000000-0000-0000-0000-000000000007")
Key = tuple[int, str | None]
KEY_IDS = (2, 1)  # in the order of the key, which is not that of the columns


def schema_of(id_type: pa.DataType) -> pa.Schema:
    """The file's columns with their field ids."""
    return pa.schema(
        [
            pa.field("name", pa.string(), metadata={b"PARQUET:field_id": b"1"}),
            pa.field("id", id_type, metadata={b"PARQUET:field_id": b"2"}),
            pa.field("body", pa.string(), metadata={b"PARQUET:field_id": b"3"}),
        ]
    )


def key_columns(keys: Sequence[Key], id_type: pa.DataType | None = None) -> list[pa.Array]:
    """The columns of these keys, in the order of the key."""
    return [pa.array([key[0] for key in keys], id_type or pa.int64()), pa.array([key[1] for key in keys])]


@dataclass
class KeyedFiles:
    """A folder with the data files of one keyed table."""

    folder: Path
    storage: LocalStorage = field(default_factory=LocalStorage)
    files: list[KeyedFile] = field(default_factory=list)

    def write(self, keys: Sequence[Key], id_type: pa.DataType | None = None, group: int = 3) -> KeyedFile:
        """One more file with rows of these keys, in row groups of so many."""
        path = self.folder / f"{len(self.files)}.parquet"
        ids, names = key_columns(keys, id_type)
        rows = [names.cast(pa.string()), ids, pa.array(["x" * 50] * len(keys))]
        pq.write_table(pa.table(rows, schema=schema_of(ids.type)), path, row_group_size=group)
        file = KeyedFile(TABLE, f"file://{path}", path.stat().st_size, KEY_IDS)
        self.files.append(file)
        return file
