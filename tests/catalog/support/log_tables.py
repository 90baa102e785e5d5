"""Log tables with real rows and marks, written by Firn's own commit code."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import TableState, load_state, new_table_state, prepare_append
from lake.marks import MARKS_PROPERTY, Range, TopicPartition
from lake.storage import open_storage

PARTITION = TopicPartition("id", 0)
HOUR = datetime(2026, 11, 20, 5, tzinfo=UTC)
STORAGE = open_storage()


def log_rows(times: Sequence[datetime], severities: Sequence[str], *, first: int = 0) -> pa.Table:
    """Rows with what every log table requires; their offsets count up."""
    rows = len(times)
    moments = pa.array(times, pa.timestamp("us", "UTC"))
    zeros = pa.array([0] * rows, pa.int32())
    origin = {
        "_topic": ["t"] * rows,
        "_topic_id": [PARTITION.topic_id] * rows,
        "_topic_partition": zeros,
        "_index": zeros,
    }
    offsets = pa.array(range(first, first + rows), pa.int64())
    return pa.table(
        {
            "timestamp": moments,
            "observed_timestamp": moments,
            "severity": list(severities),
            **origin,
            "_offset": offsets,
        }
    )


def append_rows(client: CatalogClient, name: TableName, rows: int, *, recreate: bool = False) -> None:
    """The next rows of the topic, and the marks behind them; the first ones create the table, where asked
    under a dropped one's name."""
    state = load_state(client, STORAGE, name) or _new_state(client, name)
    first = state.marks.of(PARTITION)
    files = write_files(
        STORAGE, state.location, log_rows([HOUR] * rows, ["info"] * rows, first=first), state.schema
    )
    prepared = prepare_append(
        state, files, state.schema, state.marks.advanced({PARTITION: Range(first, first + rows)}), 1
    )
    STORAGE.write_all(prepared.files)
    (result,) = client.commit_all([{**prepared.request, "allow-recreate": recreate}], timeout_s=30)
    assert result.status is CommitStatus.COMMITTED, result


def _new_state(client: CatalogClient, name: TableName) -> TableState:
    assert client.warehouse is not None
    return new_table_state(name, name.namespace, name.name, client.warehouse)


def offsets_and_marks(uri: str) -> dict[str, tuple[list[int], str]]:
    """(offsets of the rows, marks) of every table in every top-level namespace, as PyIceberg reads them."""
    catalog = load_catalog("live", type="rest", uri=uri)
    found: dict[str, tuple[list[int], str]] = {}
    for namespace in catalog.list_namespaces():
        for identifier in catalog.list_tables(namespace):
            table = catalog.load_table(identifier)
            rows: Any = table.scan(selected_fields=("_offset",)).to_arrow()
            found[".".join(identifier)] = (
                sorted(rows["_offset"].to_pylist()),
                table.properties[MARKS_PROPERTY],
            )
    return found
