"""A reader that looks at every snapshot of a table: whether one has a key twice."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyroaring import BitMap64

from ingest.commit.live_rows import LiveRowsReader
from lake.catalog_client import CatalogClient, TableName
from lake.commit import state_of
from lake.storage import Storage, canonical


@dataclass
class SnapshotReader:
    """Reads keys by the ids of their columns, of each file once. `snapshots`: how many it has looked at."""

    catalog: CatalogClient
    storage: Storage
    snapshots: int = 0
    doubled: list[str] = field(default_factory=list)
    _keys: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _live: dict[str, tuple[BitMap64, list[tuple[Any, ...]]]] = field(default_factory=dict)

    def read(self, name: TableName, key: Sequence[str]) -> None:
        """Counts the keys of every snapshot of a table; `doubled` says which has one more than once. Fails
        where a snapshot is not kept any more."""
        metadata = self.catalog.load_table(name)["metadata"]
        reader = LiveRowsReader(self.storage)
        numbers = sorted(snapshot["sequence-number"] for snapshot in metadata["snapshots"])
        assert numbers == list(range(1, metadata["last-sequence-number"] + 1)), f"{name}: {numbers}"
        for snapshot in metadata["snapshots"]:
            state = state_of({**metadata, "current-snapshot-id": snapshot["snapshot-id"]}, name, self.storage)
            live = reader.read(state)
            ids = [state.schema.by_name[column].id for column in key]
            counted = Counter[tuple[Any, ...]]()
            for entry in live.data:
                dead = live.deleted_of(canonical(entry.file.uri))
                counted.update(self._live_keys(entry.file.uri, ids, dead))
            twice = [found for found, count in counted.items() if count > 1]
            if twice:
                self.doubled.append(f"{name} snapshot {snapshot['snapshot-id']}: {sorted(twice)[:5]}")
            self.snapshots += 1

    def _live_keys(self, uri: str, ids: Sequence[int], dead: BitMap64) -> list[tuple[Any, ...]]:
        if uri not in self._keys:
            with self.storage.open(uri) as file:
                read = pq.ParquetFile(file)
                by_id = _columns(read)
                columns = read.read([by_id[field_id] for field_id in ids])
            values = [columns.column(by_id[field_id]).to_pylist() for field_id in ids]
            self._keys[uri] = list(zip(*values, strict=True))
        if (live := self._live.get(uri)) is None or live[0] != dead:
            keys = [key for at, key in enumerate(self._keys[uri]) if at not in dead]
            live = self._live[uri] = dead, keys
        return live[1]


def _columns(file: pq.ParquetFile) -> Mapping[int, str]:
    """The names of a file's columns by their ids."""
    return {int((each.metadata or {})[b"PARQUET:field_id"]): each.name for each in file.schema_arrow}
