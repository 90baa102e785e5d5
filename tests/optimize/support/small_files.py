"""Tables with many small files, made directly: what a day of flushes leaves behind, in milliseconds."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import TableState, load_state, new_table_state, prepare_append
from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.marks import Range, TopicPartition
from lake.storage import AnyStorage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.tenant import to_identifier
from optimize.compaction import write_file
from optimize.merge_job import FileLayout

TOPIC = TopicPartition("topic-id", 0)
UTC_US = pa.timestamp("us", "UTC")


def hour_of(moment: datetime) -> int:
    """Hours since 1970-01-01T00Z."""
    return int(moment.timestamp()) // 3600


def this_hour() -> int:
    return hour_of(datetime.now(UTC))


def rows_of(
    hour: int, first_offset: int, count: int, columns: Mapping[str, Sequence[str | None]] | None = None
) -> dict[str, Any]:
    """Columns of `count` records of one hour, their events spread over it in no order, offsets from
    `first_offset` on."""
    offsets = range(first_offset, first_offset + count)
    times = [hour * US_PER_HOUR + (offset * 2_654_435_761) % US_PER_HOUR for offset in offsets]
    return {
        "timestamp": pa.array(times, pa.int64()).cast(UTC_US),
        "observed_timestamp": pa.array(times, pa.int64()).cast(UTC_US),
        "severity": pa.array([("info", "warn", None)[offset % 3] for offset in offsets]),
        "message": pa.array([f"message {offset} of hour {hour}" for offset in offsets]),
        "_topic": pa.array(["logs"] * count),
        "_topic_id": pa.array([TOPIC.topic_id] * count),
        "_topic_partition": pa.array([TOPIC.partition] * count, pa.int32()),
        "_offset": pa.array(offsets, pa.int64()),
        "_index": pa.array([0] * count, pa.int32()),
        "_errors": pa.array(
            [
                [{"field": "status", "value": "x", "reason": "wrong_type"}] if offset % 7 == 0 else None
                for offset in offsets
            ],
            _ERRORS,
        ),
        "_overflow": pa.nulls(count, pa.string()),
        **{name: pa.array(values, pa.string()) for name, values in (columns or {}).items()},
    }


_ERRORS = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string()), ("reason", pa.string())]))


def write_small_file(
    storage: AnyStorage, state: TableState, schema: LogSchema, hour: int, columns: Mapping[str, Any]
) -> DataFile:
    """One file as ingestion writes it: with those columns only that its rows have."""
    fields = [f for f in schema.json["fields"] if f["name"] in columns]
    arrow = LogSchema({"fields": fields}).arrow
    table = pa.table([columns[name].cast(arrow.field(name).type) for name in arrow.names], schema=arrow)
    layout = FileLayout(zstd_level=1, token_filter=False)
    return write_file(storage, data_file_uri(state.location, hour), hour, table, fields, layout)


def grown(state: TableState, names: Iterable[str]) -> LogSchema:
    """The table's schema with string columns for the names it does not have yet."""
    new = sorted(set(names) - set(state.schema.by_name))
    numbered = {name: (state.last_column_id + at, name) for at, name in enumerate(new, 1)}
    return state.schema.with_strings(numbered, state.schema_id_max + 1) if new else state.schema


class SmallFiles:
    """One table of a tenant that grows by small files; every append moves the marks, as ingestion does.
    Several threads may append: one at a time chooses its offsets and commits them."""

    def __init__(
        self,
        catalog: CatalogClient,
        storage: AnyStorage,
        tenant: str,
        stream: str = "logs",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog, self.storage = catalog, storage
        self._turn = threading.Lock()
        self.name = TableName(to_identifier(tenant), to_identifier(stream))
        found = load_state(catalog, storage, self.name)
        warehouse = catalog.warehouse
        assert warehouse is not None
        self.state = found or new_table_state(self.name, tenant, stream, warehouse)
        if properties and found is None:
            self.state = replace(self.state, properties={**self.state.properties, **properties})
        self.offset = self.state.marks.of(TOPIC)

    def append(
        self,
        hour: int,
        count: int = 10,
        columns: Mapping[str, Sequence[str | None]] | None = None,
        times: int = 1,
    ) -> None:
        """Commits `times` files of `count` rows each, one after the other."""
        for _ in range(times):
            with self._turn:
                self.commit({hour: rows_of(hour, self.offset, count, columns)}, count)

    def commit(self, parts: Mapping[int, Mapping[str, Any]], count: int) -> None:
        """Commits one file per hour; `count` offsets are committed. Loads the table again after a
        conflict."""
        while True:
            schema = grown(self.state, {name for rows in parts.values() for name in rows})
            files = [
                write_small_file(self.storage, self.state, schema, hour, rows) for hour, rows in parts.items()
            ]
            marks = self.state.marks.advanced({TOPIC: Range(self.offset, self.offset + count)})
            now_ms = int(datetime.now(UTC).timestamp() * 1000)
            prepared = prepare_append(self.state, files, schema, marks, now_ms)
            self.storage.write_all(prepared.files)
            (result,) = self.catalog.commit_all([prepared.request])
            if result.status is CommitStatus.COMMITTED:
                self.state, self.offset = prepared.after, self.offset + count
                return
            assert result.status is CommitStatus.CONFLICT, result
            self.storage.delete([file.uri for file in files])
            self.reload()

    def reload(self) -> TableState:
        state = load_state(self.catalog, self.storage, self.name)
        assert state is not None
        self.state = state
        return state
