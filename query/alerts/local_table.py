"""A log table in a folder of this machine, without a catalog: what a rule's tests have rows in. Everything
that reads it is what reads tables of the lake."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.catalog_client import TableName
from lake.clock import epoch_us
from lake.commit import TableState, new_table_state, prepare_append
from lake.data_file import DataFile, describe_parquet
from lake.errors import NotFoundError
from lake.log_schema import MESSAGE, SEVERITY, SYSTEM_COLUMNS, TIMESTAMP, LogSchema, fold, leaf_ids
from lake.marks import Range, TopicPartition
from lake.storage import AnyStorage
from lake.table_layout import US_PER_HOUR, data_file_uri
from lake.tenant import TableId

TOPIC_ID, TOPIC = "rules-test", "rules-test"
Row = Mapping[str, Any]


@dataclass(slots=True)
class LocalTables:
    """Tables below a folder; a source of tables like a catalog."""

    storage: AnyStorage
    folder: Path
    _states: dict[TableName, TableState] = field(default_factory=dict)
    _snapshots: dict[TableName, list[dict[str, Any]]] = field(default_factory=dict)

    def load_table(self, table: TableName) -> dict[str, Any]:
        """The table as a catalog gives it. Raises NotFoundError."""
        if table not in self._states:
            raise NotFoundError(f"there is no table {table}")
        return {"metadata-location": "", "metadata": self._metadata(table), "config": {}}

    def append(self, table: TableId, rows: Sequence[Row], now: datetime) -> None:
        """Commits rows, which have a `timestamp` and texts."""
        name = TableName(table.tenant.namespace, table.table)
        state = self._states.get(name) or self._new(name, table)
        first = state.marks.of(TopicPartition(TOPIC_ID, 0))
        whole = [_whole(row, first + at) for at, row in enumerate(rows)]
        schema = _grown(state, whole)
        files = [
            self._write(state, schema, hour, list(group))
            for hour, group in groupby(sorted(whole, key=_hour), key=_hour)
        ]
        marks = state.marks.advanced({TopicPartition(TOPIC_ID, 0): Range(first, first + len(whole))})
        prepared = prepare_append(state, files, schema, marks, epoch_us(now) // 1000)
        self.storage.write_all(list(prepared.files))
        self._states[name] = replace(prepared.after)
        snapshot = next(
            each["snapshot"] for each in prepared.request["updates"] if each["action"] == "add-snapshot"
        )
        self._snapshots.setdefault(name, []).append(snapshot)

    def _new(self, name: TableName, table: TableId) -> TableState:
        return new_table_state(name, table.tenant.name, table.stream, self.folder.absolute().as_uri())

    def _metadata(self, name: TableName) -> dict[str, Any]:
        state = self._states[name]
        return {
            "format-version": 2,
            "table-uuid": state.uuid,
            "location": state.location,
            "last-sequence-number": state.sequence_number,
            "last-updated-ms": state.updated_ms,
            "last-column-id": state.last_column_id,
            "current-schema-id": state.schema.id,
            "schemas": [{"schema-id": 0, **state.schema.json}],
            "default-spec-id": 0,
            "partition-specs": [dict(state.spec)],
            "properties": {**state.properties, "firn.offsets": state.marks.to_property()},
            "current-snapshot-id": state.head,
            "snapshots": self._snapshots[name],
        }

    def _write(self, state: TableState, schema: LogSchema, hour: int, rows: list[dict[str, Any]]) -> DataFile:
        fields = [
            each
            for each in schema.json["fields"]
            if each["name"] in SYSTEM_COLUMNS or any(each["name"] in row for row in rows)
        ]
        arrow = LogSchema({"fields": fields}).arrow
        table = pa.table({name: [row.get(name) for row in rows] for name in arrow.names}, schema=arrow)
        buffer, footers = io.BytesIO(), list[Any]()
        pq.write_table(table, buffer, compression="snappy", store_schema=False, metadata_collector=footers)
        uri = data_file_uri(state.location, hour)
        self.storage.write(uri, buffer.getvalue())
        return describe_parquet(uri, hour, buffer.tell(), footers[0], leaf_ids(fields))


def _whole(row: Row, offset: int) -> dict[str, Any]:
    own = {
        SEVERITY: None,
        MESSAGE: None,
        **{fold(name).replace(".", "_"): value for name, value in row.items()},
    }
    return {
        **own,
        "observed_timestamp": row[TIMESTAMP],
        "_topic": TOPIC,
        "_topic_id": TOPIC_ID,
        "_topic_partition": 0,
        "_offset": offset,
        "_index": 0,
        "_errors": None,
        "_overflow": None,
    }


def _grown(state: TableState, rows: Sequence[Row]) -> LogSchema:
    names = dict.fromkeys(name for row in rows for name in row)
    new = [name for name in names if name not in state.schema.by_name]
    if not new:
        return state.schema
    columns = {name: (state.last_column_id + at, f"/{name}") for at, name in enumerate(new, 1)}
    return state.schema.with_strings(columns, state.schema_id_max + 1)


def _hour(row: Row) -> int:
    return epoch_us(row[TIMESTAMP]) // US_PER_HOUR
