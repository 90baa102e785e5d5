"""Log tables made in a moment: records straight to Parquet and one commit, with marks, as ingestion leaves
them."""

import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import epoch_us
from lake.commit import (
    Prepared,
    RowDelta,
    TableState,
    load_state,
    new_table_state,
    prepare_append,
    prepare_row_delta,
)
from lake.data_file import DATA, DataFile, describe_parquet
from lake.deletes.row_delta import delete_rows
from lake.log_schema import SYSTEM_COLUMNS, LogSchema, leaf_ids
from lake.manifest import Status, read_manifest
from lake.marks import Range, TopicPartition
from lake.storage import AnyStorage, open_storage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.tenant import TableId, TenantId, parse_tenant
from optimize.compaction import write_file
from optimize.merge_job import FileLayout

TOPIC_ID = "test-topic-id"
_numbers = itertools.count(1)


class LogTable:
    """One table. A record is a mapping of columns; `timestamp` is a datetime, all else as its column's type
    wants it. `layout`: files are written as merges write them; `as_flushes`: as ingestion does."""

    def __init__(
        self,
        catalog: CatalogClient,
        tenant: str,
        stream: str = "logs",
        *,
        types: Mapping[str, str] | None = None,
        layout: FileLayout | None = None,
        as_flushes: bool = False,
    ) -> None:
        parsed = parse_tenant(tenant)
        assert isinstance(parsed, TenantId)
        self.tenant, self.stream = tenant, stream
        self.id = TableId(parsed, stream)
        self.name = TableName(self.id.tenant.namespace, self.id.table)
        self.catalog = catalog
        self.storage: AnyStorage = open_storage()
        self._types = dict(types or {})
        self._layout = layout
        self._as_flushes = as_flushes
        self.next_offset: dict[int, int] = {}

    def append(
        self, records: Sequence[Mapping[str, Any]], *, partition: int = 0, rows_per_file: int = 1_000_000
    ) -> list[dict[str, Any]]:
        """Commits records in one snapshot; gives them back as complete rows."""
        rows = [self._row(record, partition) for record in records]
        names = {name: f"/{name}" for row in rows for name in row if name not in SYSTEM_COLUMNS}
        state = load_state(self.catalog, self.storage, self.name) or self._new_state()
        schema = self._grown(state, names)
        files = []
        for hour, group in itertools.groupby(sorted(rows, key=_hour), key=_hour):
            listed = list(group)
            files += [
                self._write(state, schema, hour, listed[at : at + rows_per_file])
                for at in range(0, len(listed), rows_per_file)
            ]
        if not state.exists:
            self.catalog.create_namespace(self.name.namespace, {})
        while not self._committed(state, files, schema, partition):
            state = load_state(self.catalog, self.storage, self.name) or state
        return rows

    def _committed(self, state: TableState, files: list[DataFile], schema: LogSchema, partition: int) -> bool:
        """False where another writer was faster."""
        key = TopicPartition(TOPIC_ID, partition)
        marks = state.marks.advanced({key: Range(state.marks.of(key), self.next_offset[partition])})
        prepared = prepare_append(state, files, schema, marks, epoch_us(datetime.now(UTC)) // 1000)
        return self._sent(prepared) is CommitStatus.COMMITTED

    def change(
        self,
        dead: Mapping[str, Iterable[int]],
        records: Sequence[Mapping[str, Any]] = (),
        own_dead: Iterable[int] = (),
    ) -> None:
        """Commits deletes of rows together with records of one hour. `dead`: positions by the URI of a data
        file; `own_dead`: positions among the records."""
        state = load_state(self.catalog, self.storage, self.name)
        assert state is not None
        files = {file.uri: file for file in self.files()}
        deleted = [(files[uri], BitMap64(positions)) for uri, positions in dead.items()]
        rows = [self._row(record, 0) for record in records]
        added = [self._write(state, state.schema, _hour(rows[0]), rows)] if rows else []
        own = BitMap64(own_dead)
        deleted += [(file, own) for file in added if own]
        made = delete_rows(self.storage, state, deleted)
        key = TopicPartition(TOPIC_ID, 0)
        marks = state.marks.advanced({key: Range(state.marks.of(key), self.next_offset[0])})
        now_ms = epoch_us(datetime.now(UTC)) // 1000
        self.storage.write_all(list(made.written))
        delta = RowDelta(added, made.entries, made.kept)
        prepared = prepare_row_delta(state, delta, state.schema, marks, now_ms)
        assert self._sent(prepared) is CommitStatus.COMMITTED

    def _sent(self, prepared: Prepared) -> CommitStatus:
        self.storage.write_all(list(prepared.files))
        result = self.catalog.commit_all([prepared.request])[0]
        assert result.status in (CommitStatus.COMMITTED, CommitStatus.CONFLICT), result
        return result.status

    def files(self) -> list[DataFile]:
        """The live data files."""
        state = load_state(self.catalog, self.storage, self.name)
        assert state is not None
        entries = [
            entry
            for manifest in state.manifests
            for entry in read_manifest(self.storage.read(manifest.uri), manifest)
        ]
        live = [entry.file for entry in entries if entry.status is not Status.DELETED]
        return [file for file in live if file.content == DATA]

    def _row(self, record: Mapping[str, Any], partition: int) -> dict[str, Any]:
        offset = self.next_offset.get(partition, 0)
        self.next_offset[partition] = offset + 1
        coordinates = {
            "_topic": "test",
            "_topic_id": TOPIC_ID,
            "_topic_partition": partition,
            "_offset": offset,
            "_index": 0,
        }
        return {
            "observed_timestamp": record["timestamp"],
            "severity": None,
            "message": None,
            "_errors": None,
            "_overflow": None,
            **record,
            **coordinates,
        }

    def _new_state(self) -> TableState:
        warehouse = self.catalog.warehouse
        assert warehouse is not None
        return new_table_state(self.name, self.tenant, self.stream, warehouse)

    def _grown(self, state: TableState, names: Mapping[str, str]) -> LogSchema:
        new = [name for name in names if name not in state.schema.by_name]
        if not new:
            return state.schema
        grown = state.schema.with_strings(
            {name: (state.last_column_id + at, names[name]) for at, name in enumerate(new, 1)},
            state.schema_id_max + 1,
        )
        return LogSchema(
            {
                **grown.json,
                "fields": [
                    {**field, "type": self._types.get(field["name"], field["type"])}
                    for field in grown.json["fields"]
                ],
            }
        )

    def _write(self, state: TableState, schema: LogSchema, hour: int, rows: list[dict[str, Any]]) -> Any:
        fields = [
            field
            for field in schema.json["fields"]
            if field["name"] in SYSTEM_COLUMNS or any(field["name"] in row for row in rows)
        ]
        arrow = LogSchema({"fields": fields}).arrow
        table = pa.table({name: [row.get(name) for row in rows] for name in arrow.names}, schema=arrow)
        if self._as_flushes:
            (file,) = write_files(self.storage, state.location, table, schema)
            return file
        if self._layout is not None:
            return write_file(
                self.storage,
                data_file_uri(state.location, hour),
                hour,
                table.sort_by("timestamp"),
                fields,
                self._layout,
            )
        buffer = io.BytesIO()
        footers: list[Any] = []
        pq.write_table(table, buffer, compression="zstd", store_schema=False, metadata_collector=footers)
        uri = data_file_uri(state.location, hour)
        self.storage.write(uri, buffer.getvalue())
        return describe_parquet(uri, hour, buffer.tell(), footers[0], leaf_ids(fields))


def _hour(row: Mapping[str, Any]) -> int:
    return epoch_us(row["timestamp"]) // US_PER_HOUR


def fresh_tenant(name: str = "tenant") -> str:
    """A tenant's name that no other test uses."""
    return f"{name}-{next(_numbers)}-{datetime.now(UTC):%H%M%S%f}"
