"""A keyed table without services: messages of one partition, cut into flushes and their parts, are converted,
resolved and committed by the real code, over local files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq

from ingest.commit.key_resolution import resolve
from ingest.commit.keyed_table import KeyedTable, keyed_files
from ingest.commit.live_rows import LiveRowsReader
from ingest.commit.promised_columns import PromisedColumns
from ingest.convert.read_changes import ReadingTerms
from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_index_file import KeyIndex, make_index
from ingest.keys.key_index_store import KeyedFile, KeyIndexStore, hashes_of_file
from ingest.model.link import TableView, WrittenFlush, parse_table_key
from ingest.model.raw_rows import Headers
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from ingest.write.change_terms import ChangeTerms, PartFate
from ingest.write.keyed_writer import KeyedWriting
from lake.catalog_client import TableName
from lake.commit import TableState, keyed_table_state, new_table_state, prepare_row_delta
from lake.log_schema import WantedColumn
from lake.marks import Range, TopicPartition
from lake.settings import ChangeSettings
from lake.storage import canonical, open_storage
from lake.table_layout import buckets_of_spec
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("shop"), "orders")
PARTITION = TopicPartition("topic-id", 0)
NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Message:
    """One message: what a connector sends."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass
class AppliedChanges:
    """The table as it is after the flushes so far."""

    folder: Path
    settings: ChangeSettings
    rejected: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = open_storage()
        name, warehouse = TableName("shop", "orders"), f"file://{self.folder}/warehouse"
        self.state: TableState = new_table_state(name, "shop", "orders", warehouse)
        self._columns = PromisedColumns()
        self.store = KeyIndexStore(self.storage, self.folder / "index", 1 << 30)
        self._live_rows = LiveRowsReader(self.storage)
        self._reader = ColumnReader(self.storage)
        # Files never change: each is read once, however often it is looked at.
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._right_indexes: dict[str, KeyIndex] = {}
        self._source = Source("orders", PARTITION.topic_id, 0, "auto", changes=self.settings, is_alone=True)

    def flush(self, parts: Sequence[Sequence[Message]]) -> None:
        """Writes and commits the next messages."""
        state = self.state
        start = at = state.marks.of(PARTITION)
        writing = KeyedWriting(self._terms())
        for part in parts:
            buffer = TableBuffer(TABLE, 0.0)
            for message in part:
                buffer.add(0, at, NOW_MS, message.key, message.headers, message.value)
                at += 1
            writing.append(buffer)
        done, ranges = writing.close(), {PARTITION: Range(start, at)}
        if done.keyed is None:
            return
        flush = WrittenFlush(
            TABLE, state.uuid, ranges, done.files, done.rows, done.new, widened=done.widened, keyed=done.keyed
        )
        schema = self._columns.schema(state)
        live = self._live_rows.read(state)
        table = KeyedTable(state, schema, live, self.store, self.storage, self._reader)
        resolution = resolve(table, [flush])
        self._live_rows.keep(resolution.positions)
        if not state.exists:
            key = done.keyed.key
            state = keyed_table_state(state, schema, key.columns[0], key.to_properties(), done.keyed.buckets)
            schema = state.schema
        marks = state.marks.advanced(ranges)
        prepared = prepare_row_delta(state, resolution.delta, schema, marks, NOW_MS)
        self.storage.write_all([*resolution.written, *prepared.files])
        self.state = prepared.after
        self._columns.committed(self.state)

    def rows(self) -> list[dict[str, Any]]:
        """All rows that are not deleted."""
        live, found = self._live_rows.read(self.state), list[dict[str, Any]]()
        for entry in live.data:
            dead = live.deleted_of(canonical(entry.file.uri))
            found += [row for at, row in enumerate(self._rows_of(entry.file.uri)) if at not in dead]
        return found

    def _rows_of(self, uri: str) -> list[dict[str, Any]]:
        if uri not in self._rows:
            with self.storage.open(uri) as file:
                self._rows[uri] = pq.ParquetFile(file).read().to_pylist()
        return self._rows[uri]

    def wrong_indexes(self) -> list[str]:
        """The data files whose index is another than that of the keys that stand in them."""
        live = self._live_rows.read(self.state)
        key = parse_table_key(self.state.properties)
        if key is None:
            return []
        table = KeyedTable(self.state, self.state.schema, live, self.store, self.storage, self._reader)
        return [file.uri for file in keyed_files(table, key) if not self._is_right(file)]

    def _is_right(self, file: KeyedFile) -> bool:
        if file.uri not in self._right_indexes:
            self._right_indexes[file.uri] = make_index(hashes_of_file(self.storage, file))
        used, right = self.store.index_of(file), self._right_indexes[file.uri]
        pairs = (
            (used.hashes.high, right.hashes.high),
            (used.hashes.low, right.hashes.low),
            (used.rows, right.rows),
        )
        return used.doubled == right.doubled and all(np.array_equal(*pair) for pair in pairs)

    def _terms(self) -> ChangeTerms:
        state = self.state
        view = TableView(
            state.uuid,
            state.location,
            orjson.dumps(state.schema.json),
            state.marks,
            parse_table_key(state.properties),
            buckets_of_spec(state.spec),
            is_new=not state.exists,
        )

        def grow(names: Any) -> bytes:
            wanted: dict[str, WantedColumn] = dict(names)
            self._columns.promise(state, wanted)
            return orjson.dumps(self._columns.schema(state).json)

        def note(_: TableBuffer, fate: PartFate) -> None:
            self.rejected += fate.rejected

        marks = [state.marks.of(PARTITION)]
        return ChangeTerms(
            self.storage, view, [self._source], marks, ReadingTerms(64), grow, note, self.settings
        )
