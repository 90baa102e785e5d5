"""Commits to a table: what is known of it, and the one request that adds or replaces files, deletes rows, and
sets schema and marks, all together.

A commit is prepared from a `TableState` and carries requirements that hold only for exactly that state. After
an acknowledged commit the next state is known without loading anything; after a conflict the state is loaded
again and the caller compares.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson

from lake.catalog_client import CatalogClient, MetadataMissingError, TableName
from lake.data_file import DATA, POSITION_DELETES, ROW_LINEAGE, DataFile
from lake.errors import NotFoundError, RefusedError
from lake.log_schema import TIMESTAMP, LogSchema, new_log_schema, shared_schema
from lake.manifest import ManifestEntry, Status, write_manifest
from lake.manifest_list import ManifestFile, ManifestList, write_manifest_list
from lake.marks import MARKS_PROPERTY, NO_MARKS, Marks, parse_marks
from lake.snapshot import Totals, new_snapshot_id, snapshot_json, summarise, totals_of
from lake.span import SpanSpecs, Unit
from lake.storage import Storage
from lake.system_tables import typed_columns
from lake.table_files import load_manifest_list
from lake.table_layout import (
    KEY_PROPERTY,
    PARTITION_SPEC,
    bucket_spec,
    find_spec,
    metadata_uri,
    new_location,
    table_properties,
)
from lake.table_location import GRANTS_PROPERTY, TableLocation

MAIN = "main"
# Who made a snapshot: a table that gets rows from two ingesters of the same topic names both of them.
WRITER_SUMMARY = "firn.writer"
# A manifest is read as a whole, by every reader that needs one of its files.
MANIFEST_ENTRIES_MAX = 4_000
NO_SPAN_SPECS = SpanSpecs.of([PARTITION_SPEC], 0, 0)


@dataclass(frozen=True, slots=True)
class TableState:
    """What a committer has to know of a table. `head` None: no snapshot yet; `exists` False: the next commit
    creates it.

    `marks` are the table property, `head_marks` those that the summary of the head, or of its nearest
    ancestor with marks, repeats (None: no snapshot that is kept says). `writer`: who made that snapshot.
    `head_ms`: when the head was made. `snapshots`: how many it has. `version`: of the table's format; from 3
    on every row has an id, and `next_row_id` is the first that none has. `spec`: by which rows are ingested;
    `span_specs`: of the days and months that maintenance makes of cold hours.
    """

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
    manifests: ManifestList
    properties: Mapping[str, str]
    head_marks: Marks | None = None
    writer: str = ""
    head_ms: int = 0
    snapshots: int = 0
    version: int = 2
    next_row_id: int = 0
    span_specs: SpanSpecs = NO_SPAN_SPECS

    def is_own(self, spec_id: int) -> bool:
        """Whether a spec is one of Firn's; what lies in partitions of others is somebody else's."""
        return spec_id == self.spec["spec-id"] or self.span_specs.unit_of(spec_id) is not None

    @property
    def table_location(self) -> TableLocation:
        """Where its files may lie."""
        return TableLocation.at(self.location, self.properties.get(GRANTS_PROPERTY))

    @property
    def moved_back(self) -> bool:
        """Whether the head is older than the marks: somebody set the table back to an earlier snapshot, and
        properties do not go back with it."""
        return self.head_marks is not None and self.marks.exceeds(self.head_marks)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit ready to be sent: its request, the metadata files that must be durable first, and the state
    after it is acknowledged."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int
    after: TableState


def load_state(
    catalog: CatalogClient, storage: Storage, name: TableName, *, timeout_s: float | None = None
) -> TableState | None:
    """Loads a table; None where there is none. Reads its manifest list, no manifests. Raises
    MetadataMissingError where a file of it is gone.

    `timeout_s`: the catalog is asked once and given so long.
    """
    try:
        metadata = catalog.load_table(name, timeout_s=timeout_s)["metadata"]
    except MetadataMissingError:
        raise
    except NotFoundError:
        return None
    return state_of(metadata, name, storage)


def state_of(metadata: Mapping[str, Any], name: TableName, storage: Storage) -> TableState:
    """The state a table's metadata describes. Raises FatalError where it is not a log table or names files
    that are not its own, MetadataMissingError where its manifest list is gone."""
    snapshots = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    head = snapshots.get(metadata.get("current-snapshot-id"))
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    spec_id = find_spec(metadata)
    marked = _nearest_with_marks(head, snapshots)
    return TableState(
        name=name,
        exists=True,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        schema=shared_schema(orjson.dumps(schema)),
        schema_id_max=max(s["schema-id"] for s in metadata["schemas"]),
        last_column_id=metadata["last-column-id"],
        spec=next(s for s in metadata["partition-specs"] if s["spec-id"] == spec_id),
        head=head["snapshot-id"] if head else None,
        sequence_number=metadata.get("last-sequence-number", 0),
        updated_ms=max(
            [metadata["last-updated-ms"], *(e["timestamp-ms"] for e in metadata.get("snapshot-log", ())[-1:])]
        ),
        totals=totals_of(head["summary"]) if head else Totals(),
        marks=parse_marks(metadata.get("properties", {}).get(MARKS_PROPERTY)),
        manifests=_manifests(
            head, name, storage, TableLocation.of(metadata), max(2, metadata.get("format-version", 2))
        ),
        properties=metadata.get("properties", {}),
        head_marks=None if marked is None else parse_marks(marked.get(MARKS_PROPERTY)),
        writer=(marked or {}).get(WRITER_SUMMARY, ""),
        head_ms=head["timestamp-ms"] if head else 0,
        snapshots=len(snapshots),
        version=metadata.get("format-version", 2),
        next_row_id=metadata.get("next-row-id", 0),
        span_specs=SpanSpecs.of(
            metadata["partition-specs"],
            next((f["id"] for f in schema["fields"] if f["name"] == TIMESTAMP), -1),
            metadata.get("last-partition-id", 0),
        ),
    )


def _manifests(
    head: Mapping[str, Any] | None,
    name: TableName,
    storage: Storage,
    table_location: TableLocation,
    version: int,
) -> ManifestList:
    if head is None:
        return ManifestList(version=version)
    try:
        return ManifestList.of(load_manifest_list(storage, head["manifest-list"], table_location), version)
    except NotFoundError as error:
        raise MetadataMissingError(
            f"table {name}: its manifest list is gone ({error}); restore the file, or roll the table back to "
            "a snapshot that is whole"
        ) from error


def _nearest_with_marks(
    head: Mapping[str, Any] | None, snapshots: Mapping[int, Mapping[str, Any]]
) -> Mapping[str, str] | None:
    """The summary of the head or its nearest ancestor that repeats the marks (other engines do not write
    them); empty where the table's first snapshot has none either, None where an ancestor that may have had
    them is not kept any more."""
    if head is None:
        return {}
    at: Mapping[str, Any] | None = head
    while at is not None and MARKS_PROPERTY not in at.get("summary", {}):
        parent = at.get("parent-snapshot-id")
        if parent is None:
            return {}
        at = snapshots.get(parent)
    return at["summary"] if at is not None else None


def new_table_state(name: TableName, tenant: str, stream: str, warehouse: str) -> TableState:
    """The state of a table that its first commit creates, with the uuid and location it will have."""
    location, table_uuid = new_location(warehouse)
    schema = new_log_schema(typed_columns(tenant, stream))
    return TableState(
        name=name,
        exists=False,
        uuid=table_uuid,
        location=location,
        schema=schema,
        schema_id_max=0,
        last_column_id=schema.last_column_id,
        spec=PARTITION_SPEC,
        head=None,
        sequence_number=0,
        updated_ms=0,
        totals=Totals(),
        marks=NO_MARKS,
        manifests=ManifestList(),
        properties=table_properties(tenant, stream),
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """What one commit does to a table: its files, and what its snapshot says of them.

    `entries` go into new manifests beside the `kept` ones; `summary_marks` is what the summary repeats of the
    marks (None: nothing).
    """

    operation: str
    entries: Sequence[ManifestEntry]
    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    kept: ManifestList
    schema: LogSchema
    marks: Marks
    summary_marks: Marks | None
    writer: str

    def summary(self) -> dict[str, str]:
        """What the snapshot's summary says beside its counts."""
        told = {"engine-name": "firn"}
        if self.summary_marks is not None:
            told[MARKS_PROPERTY] = self.summary_marks.to_property()
        return told | ({WRITER_SUMMARY: self.writer} if self.writer else {})


def prepare_append(
    state: TableState,
    files: Sequence[DataFile],
    schema: LogSchema,
    marks: Marks,
    now_ms: int,
    *,
    writer: str = "",
    recreate: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Prepared:
    """A commit that appends files, sets the marks and, where `schema` is not the state's, adds it: all or
    nothing.

    The marks also stand in the snapshot's summary, so that a rollback shows behind any catalog. `writer`
    names the process that commits; `recreate`: a new table may take the name of a dropped one; `properties`:
    further table properties set in the same commit.
    """
    entries = [ManifestEntry(Status.ADDED, file) for file in files]
    change = _Change("append", entries, files, (), state.manifests, schema, marks, marks, writer)
    return _prepare(state, change, now_ms, properties or {}, recreate=recreate)


def keyed_table_state(
    new: TableState, schema: LogSchema, first_key: str, properties: Mapping[str, str], buckets: int
) -> TableState:
    """The state of a table that its first commit creates with a key: with this schema, and rows in buckets of
    the first column of the key."""
    first = LogSchema({**schema.json, "schema-id": 0})
    return replace(
        new,
        schema=first,
        last_column_id=first.last_column_id,
        spec=bucket_spec(first.by_name[first_key].id, buckets),
        properties={**new.properties, **properties},
    )


@dataclass(frozen=True, slots=True)
class RowDelta:
    """Data files that come, and rows that go. `deletes` go into delete manifests of their own: new delete
    files, and whatever else those manifests list that they stand for; `kept`: the manifests that stay (None:
    all). `removed`: live entries of manifests that do not stay, whose files go as a whole."""

    files: Sequence[DataFile]
    deletes: Sequence[ManifestEntry] = ()
    kept: Sequence[ManifestFile] | None = None
    removed: Sequence[ManifestEntry] = ()


def prepare_row_delta(
    state: TableState,
    delta: RowDelta,
    schema: LogSchema,
    marks: Marks,
    now_ms: int,
    *,
    writer: str = "",
    recreate: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Prepared:
    """A commit that appends data files and deletes rows by position, in older files and in its own; the rest
    as in `prepare_append`.

    Raises RefusedError for deletes of another form than the table's format version has.
    """
    files, kept = delta.files, delta.kept
    deletes = [*delta.deletes, *(replace(entry, status=Status.DELETED) for entry in delta.removed)]
    _check_deletes(state, deletes)
    added = [*files, *(entry.file for entry in deletes if entry.status is Status.ADDED)]
    removed = [entry.file for entry in deletes if entry.status is Status.DELETED]
    entries = [*(ManifestEntry(Status.ADDED, file) for file in files), *deletes]
    staying = state.manifests if kept is None else ManifestList.of(kept, state.manifests.version)
    takes_rows = bool(removed) or any(file.content != DATA for file in added)
    operation = _row_delta_operation(bool(files), takes_rows)
    change = _Change(operation, entries, added, removed, staying, schema, marks, marks, writer)
    return _prepare(state, change, now_ms, properties or {}, recreate=recreate)


def _row_delta_operation(adds_rows: bool, takes_rows: bool) -> str:
    """What readers of a snapshot are told (Iceberg spec, "Snapshots", key `operation`)."""
    if adds_rows and takes_rows:
        return "overwrite"
    return "delete" if takes_rows else "append"


def _check_deletes(state: TableState, deletes: Sequence[ManifestEntry]) -> None:
    """Raises RefusedError for new delete files that a table of this format version must not get, and for two
    live deletion vectors of one data file."""
    by_vectors = state.version >= ROW_LINEAGE
    covered: set[str | None] = set()
    for entry in deletes:
        file = entry.file
        if entry.status is Status.ADDED and (
            file.content != POSITION_DELETES or file.is_deletion_vector != by_vectors
        ):
            form = "deletion vectors" if by_vectors else "position delete files"
            raise RefusedError(
                f"table {state.name} has format version {state.version}, where rows are deleted by {form}; "
                f"{file.uri} is something else, write its positions anew"
            )
        if entry.status is Status.DELETED or not file.is_deletion_vector:
            continue
        if file.referenced_data_file in covered:
            raise RefusedError(
                f"table {state.name} would have two deletion vectors of {file.referenced_data_file}; put the "
                "positions of both into one, and take the old one away in the same commit"
            )
        covered.add(file.referenced_data_file)


def prepare_replace(
    state: TableState,
    entries: Sequence[ManifestEntry],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
    now_ms: int,
) -> Prepared:
    """A commit that changes files but no rows: `entries`, of data files and of delete files, go into new
    manifests beside the `kept` ones; marks stay as they are. In tables of format version 3 the rows of added
    files carry their ids.

    Its summary says of the marks what its parent's said, or nothing, so that maintenance never hides that a
    table was moved back.
    """
    return _prepare(state, _maintenance(state, "replace", entries, added, removed, kept), now_ms)


def prepare_delete(
    state: TableState,
    entries: Sequence[ManifestEntry],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
    now_ms: int,
) -> Prepared:
    """A commit that takes whole files away with their rows (retention); `entries` and `kept` as in
    `prepare_replace`."""
    return _prepare(state, _maintenance(state, "delete", entries, (), removed, kept), now_ms)


def prepare_overwrite(
    state: TableState,
    entries: Sequence[ManifestEntry],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
    now_ms: int,
) -> Prepared:
    """A commit that takes some rows of files away (erasure, retention): `added` hold what is left of the
    `removed` ones; the rest as in `prepare_replace`."""
    return _prepare(state, _maintenance(state, "overwrite", entries, added, removed, kept), now_ms)


def _maintenance(
    state: TableState,
    operation: str,
    entries: Sequence[ManifestEntry],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    kept: Sequence[ManifestFile],
) -> _Change:
    """A change of files that leaves schema, marks and what is said of them as they are."""
    return _Change(
        operation,
        entries,
        added,
        removed,
        ManifestList.of(kept, state.manifests.version),
        state.schema,
        state.marks,
        state.head_marks,
        state.writer,
    )


def _prepare(
    state: TableState,
    change: _Change,
    now_ms: int,
    properties: Mapping[str, str] = MappingProxyType({}),
    *,
    recreate: bool = False,
) -> Prepared:
    snapshot_id, sequence, version = new_snapshot_id(), state.sequence_number + 1, state.manifests.version
    specs = _with_specs(state, change)
    files, lines = _new_manifests(state, specs, change, snapshot_id, sequence)
    manifests, first_row_id, new_ids = change.kept.after(lines), None, 0
    if version >= ROW_LINEAGE:
        first_row_id = state.next_row_id
        manifests, new_ids = manifests.with_row_ids(first_row_id)
    list_uri = metadata_uri(state.location, f"snap-{snapshot_id}-1-{state.uuid}.avro")
    listed = write_manifest_list(
        manifests,
        snapshot_id=snapshot_id,
        parent_id=state.head,
        sequence_number=sequence,
        first_row_id=first_row_id,
    )
    summary, totals = summarise(
        change.operation, change.added, change.removed, state.totals, change.summary()
    )
    timestamp_ms = max(now_ms, state.updated_ms)
    snapshot = snapshot_json(
        snapshot_id=snapshot_id,
        parent_id=state.head,
        sequence_number=sequence,
        timestamp_ms=timestamp_ms,
        manifest_list=list_uri,
        summary=summary,
        schema_id=change.schema.id,
    )
    if first_row_id is not None:
        snapshot |= {"first-row-id": first_row_id, "added-rows": new_ids}
    after = replace(
        state,
        exists=True,
        schema=change.schema,
        properties={**state.properties, **properties} if properties else state.properties,
        schema_id_max=max(state.schema_id_max, change.schema.id),
        last_column_id=max(state.last_column_id, change.schema.last_column_id),
        head=snapshot_id,
        sequence_number=sequence,
        updated_ms=timestamp_ms,
        totals=totals,
        marks=change.marks,
        manifests=manifests,
        head_marks=change.summary_marks,
        writer=change.writer,
        head_ms=timestamp_ms,
        snapshots=state.snapshots + 1,
        version=version,
        next_row_id=state.next_row_id + new_ids,
        span_specs=specs,
    )
    request = _request(state, change.schema, snapshot, change.marks, specs)
    if properties:
        request["updates"].append({"action": "set-properties", "updates": dict(properties)})
    if recreate and not state.exists:
        request["allow-recreate"] = True
    return Prepared(request, [*files, (list_uri, listed)], snapshot_id, after)


def _with_specs(state: TableState, change: _Change) -> SpanSpecs:
    """The table's specs of spans, with those that the change needs first."""
    specs, files = state.span_specs, [entry.file for entry in change.entries]
    for unit in Unit:
        if any(file.span is not None and file.span.unit is unit for file in files):
            specs = specs.having(unit, change.schema.by_name[TIMESTAMP].id)
    return specs


def _new_manifests(
    state: TableState, specs: SpanSpecs, change: _Change, snapshot_id: int, sequence: int
) -> tuple[list[tuple[str, bytes]], list[ManifestFile]]:
    """The change's entries in manifests of bounded size, those of data files and those of delete files apart,
    and those of each partition spec: (location, content) of each, and its line in the manifest list."""
    files, lines = list[tuple[str, bytes]](), list[ManifestFile]()
    for at, (unit, entries) in enumerate(_parts(change.entries)):
        uri = metadata_uri(state.location, f"{snapshot_id:016x}-m{at}.avro")
        data, line = write_manifest(
            uri,
            entries,
            schema=change.schema.json,
            spec=state.spec if unit is None else specs.known[unit],
            snapshot_id=snapshot_id,
            sequence_number=sequence,
            version=state.manifests.version,
        )
        files.append((uri, data))
        lines.append(line)
    return files, lines


def _parts(entries: Sequence[ManifestEntry]) -> Iterator[tuple[Unit | None, Sequence[ManifestEntry]]]:
    """Entries that go into one manifest each, with the unit of their spans (None: they are in none)."""
    alike: dict[tuple[bool, Unit | None], list[ManifestEntry]] = {}
    for entry in entries:
        unit = None if entry.file.span is None else entry.file.span.unit
        alike.setdefault((entry.file.content != DATA, unit), []).append(entry)
    # Manifests of data files before those of deletes.
    for (_, unit), group in sorted(alike.items(), key=lambda item: item[0][0]):
        for first in range(0, len(group), MANIFEST_ENTRIES_MAX):
            yield unit, group[first : first + MANIFEST_ENTRIES_MAX]


def _request(
    state: TableState, schema: LogSchema, snapshot: Mapping[str, Any], marks: Marks, specs: SpanSpecs
) -> dict[str, Any]:
    updates: list[dict[str, Any]] = []
    requirements: list[dict[str, Any]] = []
    create: dict[str, Any] = {}
    if state.version < 2:
        updates.append(
            {"action": "upgrade-format-version", "format-version": 2}
        )  # a change of metadata alone; our manifests are of version 2
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
            requirements.append(
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": state.last_column_id}
            )
        updates += [
            {"action": "add-schema", "schema": schema.json, "last-column-id": schema.last_column_id},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    new_specs = [spec for unit, spec in specs.known.items() if unit not in state.span_specs.known]
    if new_specs:
        # The manifests name its id, which the catalog gives it if nobody else adds one first.
        requirements.append(
            {
                "type": "assert-last-assigned-partition-id",
                "last-assigned-partition-id": state.span_specs.field_id_max,
            }
        )
        updates += [{"action": "add-spec", "spec": spec} for spec in new_specs]
    updates += [
        {"action": "add-snapshot", "snapshot": snapshot},
        {
            "action": "set-snapshot-ref",
            "ref-name": MAIN,
            "type": "branch",
            "snapshot-id": snapshot["snapshot-id"],
        },
    ]
    if marks != state.marks:
        updates.append({"action": "set-properties", "updates": {MARKS_PROPERTY: marks.to_property()}})
    return {"identifier": state.name.to_json(), "requirements": requirements, "updates": updates, **create}


def creation_request(state: TableState) -> dict[str, Any]:
    """The CreateTableRequest of a table that does not exist yet, with the location and uuid it has chosen."""
    # Files of a keyed table have its columns with the ids that were promised.
    keeps_ids = {"keep-field-ids": True} if KEY_PROPERTY in state.properties else {}
    return {
        **keeps_ids,
        "name": state.name.name,
        "location": state.location,
        "table-uuid": state.uuid,
        "schema": state.schema.json,
        "partition-spec": state.spec,
        "write-order": {"order-id": 0, "fields": []},
        "properties": dict(state.properties),
    }
