"""What maintenance did, as rows of the Iceberg table `firn_system.maintenance`: anybody can ask Trino why a
table is as it is."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import structlog

from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import Clock, epoch_ms
from lake.commit import TableState, load_state, new_table_state, prepare_append
from lake.errors import FirnError
from lake.log_schema import LogSchema
from lake.retention import PROPERTY as RETENTION
from lake.storage import AnyStorage
from lake.table_layout import STREAM_PROPERTY, TENANT_PROPERTY, data_file_uri
from lake.tenant import SYSTEM_NAMESPACE
from optimize.compaction import write_file
from optimize.merge_job import FileLayout

TABLE = TableName(SYSTEM_NAMESPACE, "maintenance")
ATTEMPTS = 10
# A table like any other: it is merged, and its old hours go. Who wants to know for longer sets the property.
KEPT = "90d"
# So many entries of a task that goes through all tables are written together.
TOGETHER = 500
_FIELDS: tuple[tuple[str, str, bool, str], ...] = (
    ("timestamp", "timestamptz", True, "when it was done"),
    ("tenant_table", "string", True, "namespace and table"),
    ("action", "string", True, "merge, rewrite, deletes, expire, retention, purge, orphans, failed"),
    ("outcome", "string", True, "done, or why not"),
    ("files_before", "long", False, "files that went"),
    ("files_after", "long", False, "files that came"),
    ("size_bytes", "long", False, "bytes of the files that went"),
    ("row_count", "long", False, "rows in them"),
    ("snapshots_expired", "long", False, "snapshots that went"),
    ("attempts", "long", False, "attempts to commit"),
    ("cpu_s", "double", False, "CPU seconds on executors"),
)
_UTC = pa.timestamp("us", "UTC")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. `at`: when it was done."""

    at: datetime
    table: str
    action: str
    outcome: str = "done"
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0
    rows: int = 0
    snapshots_expired: int = 0
    attempts: int = 0
    cpu_s: float = 0.0


def history_schema() -> LogSchema:
    """The columns of the history, with the field ids it is created with."""
    fields = [
        {"id": at, "name": n, "required": required, "type": kind, "doc": doc}
        for at, (n, kind, required, doc) in enumerate(_FIELDS, 1)
    ]
    return LogSchema({"type": "struct", "schema-id": 0, "fields": fields})


@dataclass(frozen=True, slots=True)
class History:
    """Writes entries; an entry that cannot be written is logged and lost, because history must never stop
    maintenance."""

    catalog: CatalogClient
    storage: AnyStorage
    clock: Clock

    def write(self, entries: Sequence[Entry]) -> None:
        """Appends entries in one commit."""
        if not entries:
            return
        try:
            for attempt in range(ATTEMPTS):
                if self._append(entries):
                    return
                time.sleep(0.05 * (attempt + 1) * random.random())  # noqa: S311
            log.warning(
                "optimize.history_not_written", entries=len(entries), error="others commit all the time"
            )
        except FirnError as error:
            log.warning("optimize.history_not_written", entries=len(entries), error=str(error))

    @contextmanager
    def together(self) -> Iterator[Callable[[Entry], None]]:
        """Writes what its body notes, many entries in one commit: a commit for each of thousands of
        tables would cost as much as what was done to them."""
        waiting = list[Entry]()

        def note(entry: Entry) -> None:
            waiting.append(entry)
            if len(waiting) >= TOGETHER:
                self.write(waiting)
                waiting.clear()

        try:
            yield note
        finally:
            self.write(waiting)

    def _append(self, entries: Sequence[Entry]) -> bool:
        state = self._state()
        if state is None:
            log.warning(
                "optimize.history_not_written",
                entries=len(entries),
                error="the catalog does not say where tables go",
            )
            return True
        files = []
        by_hour: dict[int, list[Entry]] = {}
        for entry in entries:
            by_hour.setdefault(int(entry.at.timestamp()) // 3600, []).append(entry)
        for hour, part in by_hour.items():
            rows = _rows(part, state.schema)
            files.append(
                write_file(
                    self.storage,
                    data_file_uri(state.location, hour),
                    hour,
                    rows,
                    state.schema.json["fields"],
                    FileLayout(),
                )
            )
        self.storage.sync([file.uri for file in files])
        prepared = prepare_append(state, files, state.schema, state.marks, epoch_ms(self.clock.now()))
        self.storage.write_all(prepared.files)
        request = (
            {**prepared.request, "create-namespace-properties": {}} if not state.exists else prepared.request
        )
        (result,) = self.catalog.commit_all([request])
        if result.status is CommitStatus.COMMITTED:
            return True
        if result.status is not CommitStatus.UNKNOWN:
            self.storage.delete([file.uri for file in files])
        log.info("optimize.history_again", status=result.status.value, message=result.message)
        return result.status is CommitStatus.UNKNOWN

    def _state(self) -> TableState | None:
        found = load_state(self.catalog, self.storage, TABLE)
        warehouse = self.catalog.warehouse
        if found is not None or warehouse is None:
            return found
        new = new_table_state(TABLE, "", "maintenance", warehouse)
        schema = history_schema()
        own = {
            key: value
            for key, value in new.properties.items()
            if key not in (TENANT_PROPERTY, STREAM_PROPERTY)
        } | {RETENTION: KEPT}
        return replace(new, schema=schema, last_column_id=len(_FIELDS), properties=own)


def _rows(entries: Sequence[Entry], schema: LogSchema) -> pa.Table:
    columns = {
        "timestamp": pa.array([entry.at for entry in entries], _UTC),
        "tenant_table": [entry.table for entry in entries],
        "row_count": [entry.rows for entry in entries],
    }
    arrays = [
        columns.get(name) if name in columns else [getattr(entry, name) for entry in entries]
        for name in schema.arrow.names
    ]
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(arrays, schema.arrow.types, strict=True)],
        schema=schema.arrow,
    )
