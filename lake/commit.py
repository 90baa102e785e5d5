"""Commits to a table: what is known of it, and the one request that adds or replaces files, schema and marks together.

A commit is prepared from a `TableState` and carries requirements that hold only for exactly that state. After an acknowledged
commit the next state is known without loading anything; after a conflict the state is loaded again and the caller compares.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.data_file import DataFile
from lake.errors import NotFoundError
from lake.log_schema import LogSchema, new_log_schema
from lake.manifest import ManifestEntry, ManifestFile, Status, read_manifest_list, write_manifest, write_manifest_list
from lake.marks import MARKS_PROPERTY, NO_MARKS, Marks, parse_marks
from lake.snapshot import Totals, new_snapshot_id, snapshot_json, summarise, totals_of
from lake.storage import Storage
from lake.table_layout import PARTITION_SPEC, find_hour_spec, metadata_uri, new_location, table_properties

MAIN = "main"
# A manifest is read as a whole, by every reader that needs one of its files.
MANIFEST_ENTRIES_MAX = 4_000


@dataclass(frozen=True, slots=True)
class TableState:
    """What a committer has to know of a table. `head` None: no snapshot yet; `exists` False: the next commit creates it."""

    name: TableName
    exists: bool
    uuid: str
    location: str
    schema: LogSchema
    schema_id_max: int
    last_column_id: int
    spec: Mapping[str, Any]
    head: int | None
    sequence_number: int
    updated_ms: int
    totals: Totals
    marks: Marks
    manifests: tuple[ManifestFile, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit ready to be sent: its request, the metadata files that must be durable first, and the state after it is acknowledged."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int
    after: TableState


def load_state(catalog: CatalogClient, storage: Storage, name: TableName) -> TableState | None:
    """Loads a table; None where there is none. Reads its manifest list, no manifests."""
    try:
        metadata = catalog.load_table(name)["metadata"]
    except NotFoundError:
        return None
    return state_of(metadata, name, storage.read)


def state_of(metadata: Mapping[str, Any], name: TableName, read: Callable[[str], bytes]) -> TableState:
    """The state a table's metadata describes. Raises FatalError where it is not a log table."""
    head_id = metadata.get("current-snapshot-id")
    head = next((s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == head_id), None)
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    spec_id = find_hour_spec(metadata)
    return TableState(
        name=name,
        exists=True,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        schema=LogSchema(schema),
        schema_id_max=max(s["schema-id"] for s in metadata["schemas"]),
        last_column_id=metadata["last-column-id"],
        spec=next(s for s in metadata["partition-specs"] if s["spec-id"] == spec_id),
        head=head["snapshot-id"] if head else None,
        sequence_number=metadata.get("last-sequence-number", 0),
        updated_ms=max([metadata["last-updated-ms"], *(e["timestamp-ms"] for e in metadata.get("snapshot-log", ())[-1:])]),
        totals=totals_of(head["summary"]) if head else Totals(),
        marks=parse_marks(metadata.get("properties", {}).get(MARKS_PROPERTY)),
        manifests=tuple(read_manifest_list(read(head["manifest-list"]))) if head else (),
        properties=metadata.get("properties", {}),
    )


def new_table_state(name: TableName, tenant: str, stream: str, warehouse: str) -> TableState:
    """The state of a table that its first commit creates, with the uuid and location it will have."""
    location, table_uuid = new_location(warehouse)
    schema = new_log_schema()
    return TableState(
        name=name,
        exists=False,
        uuid=table_uuid,
        location=location,
        schema=schema,
        schema_id_max=0,
        last_column_id=_last_column_id(schema),
        spec=PARTITION_SPEC,
        head=None,
        sequence_number=0,
        updated_ms=0,
        totals=Totals(),
        marks=NO_MARKS,
        manifests=(),
        properties=table_properties(tenant, stream),
    )


def prepare_append(state: TableState, files: Sequence[DataFile], schema: LogSchema, marks: Marks, now_ms: int) -> Prepared:
    """A commit that appends files, moves the marks and, where `schema` is not the state's, adds it: all or nothing.

    The marks also stand in the snapshot's summary, so that a rollback shows behind any catalog.
    """
    entries = [ManifestEntry(Status.ADDED, file) for file in files]
    return _prepare(state, "append", entries, files, (), state.manifests, schema, marks, now_ms)


def prepare_replace(
    state: TableState,
    entries: Sequence[ManifestEntry],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
    now_ms: int,
) -> Prepared:
    """A commit that changes files but no rows: `entries`, ordered by hour, go into new manifests beside the `kept` ones; marks stay as they are."""
    return _prepare(state, "replace", entries, added, removed, kept, state.schema, state.marks, now_ms)


def prepare_delete(state: TableState, entries: Sequence[ManifestEntry], removed: Sequence[DataFile], kept: Sequence[ManifestFile], now_ms: int) -> Prepared:
    """A commit that takes whole files away with their rows (retention); `entries` and `kept` as in `prepare_replace`."""
    return _prepare(state, "delete", entries, (), removed, kept, state.schema, state.marks, now_ms)


def _prepare(
    state: TableState,
    operation: str,
    entries: Sequence[ManifestEntry],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
    schema: LogSchema,
    marks: Marks,
    now_ms: int,
) -> Prepared:
    snapshot_id, sequence = new_snapshot_id(), state.sequence_number + 1
    files, manifests = list[tuple[str, bytes]](), list(kept)
    for at, first in enumerate(range(0, len(entries), MANIFEST_ENTRIES_MAX)):
        uri, part = metadata_uri(state.location, f"{snapshot_id:016x}-m{at}.avro"), entries[first : first + MANIFEST_ENTRIES_MAX]
        data, line = write_manifest(uri, part, schema=schema.json, spec=state.spec, snapshot_id=snapshot_id, sequence_number=sequence)
        files.append((uri, data))
        manifests.insert(at, line)
    list_uri = metadata_uri(state.location, f"snap-{snapshot_id}-1-{state.uuid}.avro")
    files.append((list_uri, write_manifest_list(manifests, snapshot_id=snapshot_id, parent_id=state.head, sequence_number=sequence)))
    summary, totals = summarise(operation, added, removed, state.totals, {MARKS_PROPERTY: marks.to_property(), "engine-name": "firn"})
    timestamp_ms = max(now_ms, state.updated_ms)
    snapshot = snapshot_json(
        snapshot_id=snapshot_id,
        parent_id=state.head,
        sequence_number=sequence,
        timestamp_ms=timestamp_ms,
        manifest_list=list_uri,
        summary=summary,
        schema_id=schema.id,
    )
    after = replace(
        state,
        exists=True,
        schema=schema,
        schema_id_max=max(state.schema_id_max, schema.id),
        last_column_id=max(state.last_column_id, _last_column_id(schema)),
        head=snapshot_id,
        sequence_number=sequence,
        updated_ms=timestamp_ms,
        totals=totals,
        marks=marks,
        manifests=tuple(manifests),
    )
    return Prepared(_request(state, schema, snapshot, marks), files, snapshot_id, after)


def _request(state: TableState, schema: LogSchema, snapshot: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    updates: list[dict[str, Any]] = []
    requirements: list[dict[str, Any]] = []
    create: dict[str, Any] = {}
    if state.exists:
        requirements = [
            {"type": "assert-table-uuid", "uuid": state.uuid},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": state.head},
            {"type": "assert-current-schema-id", "current-schema-id": state.schema.id},
        ]
    else:
        create = {"create": creation_request(state)}
    if schema.id != state.schema.id:
        if state.exists:
            requirements.append({"type": "assert-last-assigned-field-id", "last-assigned-field-id": state.last_column_id})
        updates += [
            {"action": "add-schema", "schema": schema.json, "last-column-id": _last_column_id(schema)},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    updates += [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": snapshot["snapshot-id"]},
    ]
    if marks != state.marks:
        updates.append({"action": "set-properties", "updates": {MARKS_PROPERTY: marks.to_property()}})
    return {"identifier": state.name.to_json(), "requirements": requirements, "updates": updates, **create}


def creation_request(state: TableState) -> dict[str, Any]:
    """The CreateTableRequest of a table that does not exist yet, with the location and uuid it has chosen."""
    return {
        "name": state.name.name,
        "location": state.location,
        "table-uuid": state.uuid,
        "schema": state.schema.json,
        "partition-spec": state.spec,
        "write-order": {"order-id": 0, "fields": []},
        "properties": dict(state.properties),
    }


def _last_column_id(schema: LogSchema) -> int:
    def ids(kind: Any) -> list[int]:
        if isinstance(kind, str):
            return []
        if kind["type"] == "struct":
            return [i for field in kind["fields"] for i in (field["id"], *ids(field["type"]))]
        if kind["type"] == "list":
            return [kind["element-id"], *ids(kind["element"])]
        return [kind["key-id"], kind["value-id"], *ids(kind["key"]), *ids(kind["value"])]

    return max(ids(schema.json))
