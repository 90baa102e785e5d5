"""What a commit changes in a table's metadata, one function per update of the REST specification
(`TableUpdate`), on plain JSON.

A `Draft` is a freshly parsed tree that belongs to one commit, so the functions change it in place; when one
refuses, the draft is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.access.access import EVERYBODY, Principal
from catalog.access.locations import check_grants, granting, is_administrator, named_by
from catalog.access.policies import check_table_properties
from catalog.commit.schemas import (
    PARTITION_FIELD_START,
    by_id,
    check_order,
    check_schema,
    check_spec,
    checked_schema,
    same_schema,
    without_nulls,
)
from catalog.model.error_response import bad_request, commit_failed, forbidden, invalid
from catalog.model.json_fields import (
    LONG_MAX,
    check_uuid,
    integer,
    integers,
    mapping,
    objects,
    optional_integer,
    optional_small_integer,
    properties,
    string,
    strings,
)
from lake.storage import canonical
from lake.table_location import GRANTS_PROPERTY, PATH_PROPERTIES, parse_grants

Json = dict[str, Any]
FORMAT_VERSION_MAX = 3
LAST_ADDED = -1
MAIN = "main"


@dataclass(slots=True)
class Draft:
    """Metadata on its way from one version to the next.

    `by`: who asks; `allowed`: canonical prefixes below which an administrator may name files of any table.
    `named`: (what, URI) of the files that the updates name, which are compared with the table's place when
    its location is certain.
    """

    metadata: Json
    now_ms: int
    check_location: Callable[[object, str], str]
    by: Principal = EVERYBODY
    allowed: tuple[str, ...] = ()
    named: list[tuple[str, object]] = field(default_factory=list)
    paths_changed: bool = False
    added_snapshots: dict[int, Json] = field(default_factory=dict)
    main_heads: list[int] = field(default_factory=list)
    removed_snapshots: bool = False
    last_added: dict[str, int] = field(default_factory=dict)

    def current_schema(self) -> Json:
        """The schema that new specs and orders are bound to. Raises CatalogError 400 where none was added
        yet."""
        schema = by_id(self.metadata["schemas"], "schema-id", self.metadata.get("current-schema-id", -1))
        if schema is None:
            raise invalid("the table has no current schema yet; send add-schema and set-current-schema first")
        return schema


def apply_updates(draft: Draft, updates: Sequence[Json]) -> None:
    """Applies updates in their order. Raises CatalogError 400, or 409 where the update is stale."""
    for update in updates:
        action = update.get("action")
        apply = UPDATES.get(action) if isinstance(action, str) else None
        if apply is None:
            raise bad_request(
                f"update {action!r} is unknown; the REST specification lists the updates of tables"
            )
        apply(draft, update)


def _assign_uuid(draft: Draft, update: Json) -> None:
    uuid = check_uuid(string(update, "uuid"))
    known = draft.metadata.get("table-uuid")
    if known is not None and known.lower() != uuid.lower():
        raise invalid(f"Cannot reassign uuid: table has {known}, update says {uuid}")
    draft.metadata["table-uuid"] = uuid


def _upgrade_format_version(draft: Draft, update: Json) -> None:
    version, known = integer(update, "format-version"), draft.metadata["format-version"]
    if version > FORMAT_VERSION_MAX:
        raise invalid(
            f"Cannot upgrade table to unsupported format version: v{version} (supported: "
            f"v{FORMAT_VERSION_MAX})"
        )
    if version < known:
        raise invalid(f"Cannot downgrade v{known} table to v{version}")
    draft.metadata["format-version"] = version
    if version >= 2:
        draft.metadata.setdefault("last-sequence-number", 0)
        draft.metadata.pop("schema", None)
        draft.metadata.pop("partition-spec", None)
    if version >= 3:
        draft.metadata.setdefault("next-row-id", 0)


def _add_schema(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    schema = checked_schema(mapping(update, "schema"), metadata["format-version"])
    last_column_id = max(metadata["last-column-id"], schema.last_id)
    schemas = metadata["schemas"]
    found = next((known for known in schemas if same_schema(known, schema.json)), None)
    if found is None:
        schema_id = max((known["schema-id"] for known in schemas), default=-1) + 1
        schemas.append({**schema.json, "type": "struct", "schema-id": schema_id})
    else:
        schema_id = found["schema-id"]
    metadata["last-column-id"] = last_column_id
    draft.last_added["schema"] = schema_id


def _set_current_schema(draft: Draft, update: Json) -> None:
    schema_id = _last_added_or(draft, integer(update, "schema-id"), "schema")
    if by_id(draft.metadata["schemas"], "schema-id", schema_id) is None:
        raise invalid(f"Cannot set current schema to unknown schema: {schema_id}")
    draft.metadata["current-schema-id"] = schema_id


def _last_added_or(draft: Draft, given: int, what: str) -> int:
    if given != LAST_ADDED:
        return given
    if what not in draft.last_added:
        raise invalid(f"Cannot set last added {what}: no {what} has been added")
    return draft.last_added[what]


def _add_spec(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    fields = objects(mapping(update, "spec"), "fields", optional=True)
    check_spec(fields, check_schema(draft.current_schema(), metadata["format-version"]))
    specs = metadata["partition-specs"]
    for known in specs:
        if _shape(known["fields"]) == _shape(fields):
            draft.last_added["spec"] = known["spec-id"]
            return
    bound, last_id = _with_field_ids(fields, metadata.get("last-partition-id", 0))
    _check_field_ids([item["field-id"] for item in bound], metadata["format-version"])
    spec_id = max((known["spec-id"] for known in specs), default=-1) + 1
    specs.append({"spec-id": spec_id, "fields": bound})
    metadata["last-partition-id"] = last_id
    draft.last_added["spec"] = spec_id


def _shape(fields: Sequence[Json]) -> list[tuple[Any, ...]]:
    """What makes partition fields the same, whatever their ids."""
    return [(item["source-id"], item["transform"], item["name"]) for item in fields]


def _with_field_ids(fields: Sequence[Json], last_id: int) -> tuple[list[Json], int]:
    """Partition fields with an id each, the next one where none is given; and the highest id so far."""
    last_id = max(last_id, PARTITION_FIELD_START - 1)
    bound = []
    for item in fields:
        given = optional_small_integer(item, "field-id")
        last_id = max(last_id, given) if given is not None else last_id + 1
        bound.append(
            {
                "source-id": item["source-id"],
                "field-id": given if given is not None else last_id,
                "name": item["name"],
                "transform": item["transform"],
            }
        )
    return bound, last_id


def _check_field_ids(ids: list[int], version: int) -> None:
    if len(set(ids)) != len(ids):
        raise invalid(f"partition field ids must differ, but the spec has {ids}")
    if version == 1 and ids != list(range(PARTITION_FIELD_START, PARTITION_FIELD_START + len(ids))):
        raise invalid(f"Spec does not use sequential IDs that are required in v1: {ids}")


def _set_default_spec(draft: Draft, update: Json) -> None:
    spec_id = _last_added_or(draft, integer(update, "spec-id"), "spec")
    if by_id(draft.metadata["partition-specs"], "spec-id", spec_id) is None:
        raise invalid(f"Cannot set default partition spec to unknown spec: {spec_id}")
    draft.metadata["default-spec-id"] = spec_id


def _add_sort_order(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    fields = objects(mapping(update, "sort-order"), "fields", optional=True)
    check_order(fields, check_schema(draft.current_schema(), metadata["format-version"]))
    orders = metadata["sort-orders"]
    kept = [
        {key: item[key] for key in ("transform", "source-id", "direction", "null-order")} for item in fields
    ]
    for known in orders:
        if known["fields"] == kept:
            draft.last_added["sort order"] = known["order-id"]
            return
    order_id = max((known["order-id"] for known in orders), default=0) + 1 if kept else 0
    orders.append({"order-id": order_id, "fields": kept})
    draft.last_added["sort order"] = order_id


def _set_default_sort_order(draft: Draft, update: Json) -> None:
    order_id = _last_added_or(draft, integer(update, "sort-order-id"), "sort order")
    if by_id(draft.metadata["sort-orders"], "order-id", order_id) is None:
        raise invalid(f"Cannot set default sort order to unknown sort order: {order_id}")
    draft.metadata["default-sort-order-id"] = order_id


def _advance_sequence(metadata: Json, sequence_number: int, *, is_first: bool) -> None:
    last = metadata["last-sequence-number"]
    if sequence_number <= last and not is_first:
        raise commit_failed(
            "Validation failed, please retry: Cannot add snapshot with sequence number "
            f"{sequence_number} older than last sequence number {last}"
        )
    metadata["last-sequence-number"] = max(last, sequence_number)


def _add_snapshot(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    snapshot = without_nulls(mapping(update, "snapshot"))
    snapshot_id, timestamp_ms = integer(snapshot, "snapshot-id"), integer(snapshot, "timestamp-ms")
    parent_id = optional_integer(snapshot, "parent-snapshot-id")
    optional_small_integer(snapshot, "schema-id")
    if "manifest-list" not in snapshot and "manifests" not in snapshot:
        raise bad_request("a snapshot needs 'manifest-list'")
    draft.named += named_by(snapshot)
    if not metadata["schemas"] or not metadata["partition-specs"] or not metadata["sort-orders"]:
        raise invalid(
            "Attempting to add a snapshot before a schema, a partition spec and a sort order are added"
        )
    if any(known["snapshot-id"] == snapshot_id for known in metadata["snapshots"]):
        raise invalid(f"Snapshot already exists for id: {snapshot_id}")
    if "summary" in snapshot and not all(
        isinstance(value, str) for value in mapping(snapshot, "summary").values()
    ):
        raise bad_request("the values of a snapshot's 'summary' must be texts")
    _check_time(draft, timestamp_ms)
    if metadata["format-version"] > 1:
        _advance_sequence(metadata, integer(snapshot, "sequence-number"), is_first=parent_id is None)
    if metadata["format-version"] >= 3:
        _add_rows(metadata, snapshot)
    metadata["snapshots"].append(snapshot)
    draft.added_snapshots[snapshot_id] = snapshot


CLOCK_SKEW_MS = 60_000  # what Iceberg's own readers tolerate between entries of the snapshot log


def _check_time(draft: Draft, timestamp_ms: int) -> None:
    log = draft.metadata.get("snapshot-log")
    if log and timestamp_ms < log[-1]["timestamp-ms"] - CLOCK_SKEW_MS:
        raise invalid(
            f"Invalid snapshot timestamp {timestamp_ms}: before last snapshot log entry at "
            f"{log[-1]['timestamp-ms']}; use max(now, that)"
        )
    if timestamp_ms > draft.now_ms + CLOCK_SKEW_MS:
        raise invalid(
            f"Invalid snapshot timestamp {timestamp_ms}: more than a minute ahead of the catalog's clock "
            f"({draft.now_ms}); set the clock right"
        )


def _add_rows(metadata: Json, snapshot: Json) -> None:
    first, next_row_id = integer(snapshot, "first-row-id"), metadata["next-row-id"]
    if first < next_row_id:
        raise commit_failed(
            "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table "
            f"next-row-id: {first} < {next_row_id}"
        )
    added = integer(snapshot, "added-rows")
    if added < 0 or next_row_id + added > LONG_MAX:
        raise invalid(
            f"Cannot add a snapshot with {added} added rows to a table whose next row id is {next_row_id}"
        )
    metadata["next-row-id"] = next_row_id + added


_REF_AGES = {
    "min-snapshots-to-keep": optional_small_integer,
    "max-snapshot-age-ms": optional_integer,
    "max-ref-age-ms": optional_integer,
}


def _set_snapshot_ref(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    name, kind, snapshot_id = (
        string(update, "ref-name"),
        string(update, "type"),
        integer(update, "snapshot-id"),
    )
    if kind not in ("branch", "tag"):
        raise bad_request(f"a ref's 'type' must be branch or tag, not {kind!r}")
    snapshot = by_id(metadata["snapshots"], "snapshot-id", snapshot_id)
    if snapshot is None:
        raise invalid(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN and kind != "branch":
        raise invalid("Cannot set main to a tag, it must be a branch")
    ref: Json = {"snapshot-id": snapshot_id, "type": kind}
    for key, read in _REF_AGES.items():
        value = read(update, key)
        if value is not None:
            if kind == "tag" and key != "max-ref-age-ms":
                raise invalid(f"Tags do not support setting {key}")
            if value <= 0:
                raise invalid(f"{key} must be greater than 0")
            ref[key] = value
    refs = metadata["refs"]
    if refs.get(name) == ref:
        return
    refs[name] = ref
    if name == MAIN:
        metadata["current-snapshot-id"] = snapshot_id
        draft.main_heads.append(snapshot_id)
        time_ms = snapshot["timestamp-ms"] if snapshot_id in draft.added_snapshots else draft.now_ms
        metadata["snapshot-log"].append({"timestamp-ms": time_ms, "snapshot-id": snapshot_id})


def _remove_snapshot_ref(draft: Draft, update: Json) -> None:
    _remove_ref(draft.metadata, string(update, "ref-name"))


def _remove_ref(metadata: Json, name: str) -> None:
    if name == MAIN:
        metadata.pop("current-snapshot-id", None)
    metadata["refs"].pop(name, None)


def _remove_snapshots(draft: Draft, update: Json) -> None:
    metadata, gone = draft.metadata, set(integers(update, "snapshot-ids"))
    known = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
    if not gone & known:
        return
    metadata["snapshots"] = [
        snapshot for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] not in gone
    ]
    for key in ("statistics", "partition-statistics"):
        if key in metadata:
            metadata[key] = [entry for entry in metadata[key] if entry["snapshot-id"] not in gone]
    for name in [name for name, ref in metadata["refs"].items() if ref["snapshot-id"] in gone]:
        _remove_ref(metadata, name)
    draft.removed_snapshots = True


def _set_location(draft: Draft, update: Json) -> None:
    metadata = draft.metadata
    location, before = (
        draft.check_location(update.get("location"), "location").rstrip("/"),
        metadata["location"],
    )
    if before is not None and canonical(before).rstrip("/") != canonical(location):
        _require_administrator(draft, "moves a table to another location")
        if metadata["snapshots"] or metadata["metadata-log"]:
            metadata["properties"].update(
                granting(metadata["properties"], before)
            )  # its files stay where they are
    metadata["location"], draft.paths_changed = location, True


def _require_administrator(draft: Draft, what: str) -> None:
    if not is_administrator(draft.by):
        raise forbidden(
            f"only a key of scope admin that is bound to no namespace {what}; ask an administrator"
        )


def _set_properties(draft: Draft, update: Json) -> None:
    given = properties(update, "updates" if "updates" in update else "updated")
    check_given_properties(draft, given)
    draft.metadata["properties"].update(given)


def check_given_properties(draft: Draft, given: dict[str, str]) -> None:
    """Properties that say where files lie: what they grant at once, where they point at the end, when the
    location is certain. Raises CatalogError."""
    check_table_properties(draft.by, draft.metadata["properties"], given)
    if GRANTS_PROPERTY in given and given[GRANTS_PROPERTY] != draft.metadata["properties"].get(
        GRANTS_PROPERTY
    ):
        _require_administrator(draft, f"sets {GRANTS_PROPERTY}")
        for prefix in parse_grants(check_grants(given[GRANTS_PROPERTY])):
            draft.check_location(f"{prefix.rstrip('/')}/-", GRANTS_PROPERTY)
    for key in PATH_PROPERTIES:
        if key in given:
            draft.check_location(given[key], key)
            draft.paths_changed = True


def _remove_properties(draft: Draft, update: Json) -> None:
    removals = strings(update, "removals" if "removals" in update else "removed")
    check_table_properties(draft.by, draft.metadata["properties"], dict.fromkeys(removals))
    for key in removals:
        if key == GRANTS_PROPERTY and key in draft.metadata["properties"]:
            _require_administrator(draft, f"removes {GRANTS_PROPERTY}")
        draft.metadata["properties"].pop(key, None)


def _set_entry(key: str, payload: str, *numbers: str) -> Callable[[Draft, Json], None]:
    def apply(draft: Draft, update: Json) -> None:
        entry = mapping(update, payload)
        snapshot_id = integer(entry, "snapshot-id")
        draft.named.append(("statistics-path", string(entry, "statistics-path")))
        for name in ("file-size-in-bytes", *numbers):
            integer(entry, name)
        for blob in objects(entry, "blob-metadata", optional=key == "partition-statistics"):
            string(blob, "type")
            integers(blob, "fields")
            for name in ("snapshot-id", "sequence-number"):
                integer(blob, name)
        kept = [known for known in draft.metadata.get(key, []) if known["snapshot-id"] != snapshot_id]
        draft.metadata[key] = [*kept, entry]

    return apply


def _remove_entry(key: str) -> Callable[[Draft, Json], None]:
    def apply(draft: Draft, update: Json) -> None:
        snapshot_id = integer(update, "snapshot-id")
        draft.metadata[key] = [
            known for known in draft.metadata.get(key, []) if known["snapshot-id"] != snapshot_id
        ]

    return apply


def _remove_specs(draft: Draft, update: Json) -> None:
    gone = set(integers(update, "spec-ids"))
    if draft.metadata["default-spec-id"] in gone:
        raise invalid("Cannot remove the default partition spec")
    draft.metadata["partition-specs"] = [
        spec for spec in draft.metadata["partition-specs"] if spec["spec-id"] not in gone
    ]


def _remove_schemas(draft: Draft, update: Json) -> None:
    gone = set(integers(update, "schema-ids"))
    if draft.metadata["current-schema-id"] in gone:
        raise invalid("Cannot remove the current schema")
    draft.metadata["schemas"] = [
        schema for schema in draft.metadata["schemas"] if schema["schema-id"] not in gone
    ]


def _add_encryption_key(draft: Draft, update: Json) -> None:
    key = mapping(update, "encryption-key")
    keys = draft.metadata.setdefault("encryption-keys", [])
    if all(known.get("key-id") != string(key, "key-id") for known in keys):
        keys.append(key)


def _remove_encryption_key(draft: Draft, update: Json) -> None:
    gone = string(update, "key-id")
    draft.metadata["encryption-keys"] = [
        key for key in draft.metadata.get("encryption-keys", []) if key.get("key-id") != gone
    ]


UPDATES: dict[str, Callable[[Draft, Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-spec": _add_spec,
    "set-default-spec": _set_default_spec,
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_default_sort_order,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_snapshot_ref,
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": _remove_snapshot_ref,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _set_entry("statistics", "statistics", "file-footer-size-in-bytes"),
    "remove-statistics": _remove_entry("statistics"),
    "set-partition-statistics": _set_entry("partition-statistics", "partition-statistics"),
    "remove-partition-statistics": _remove_entry("partition-statistics"),
    "remove-partition-specs": _remove_specs,
    "remove-schemas": _remove_schemas,
    "add-encryption-key": _add_encryption_key,
    "remove-encryption-key": _remove_encryption_key,
}
