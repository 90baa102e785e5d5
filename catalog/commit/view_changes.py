"""One view's step from its current metadata to the next (Iceberg view specification), beside `table_changes`
for tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.access.locations import check_paths, table_location_of
from catalog.commit.requirements import check_requirements
from catalog.commit.schemas import by_id, check_schema, same_schema, without_nulls
from catalog.commit.table_changes import (
    NextVersion,
    TableChange,
    chosen_place,
    next_version,
    read_metadata,
    written,
)
from catalog.model.error_response import CatalogError, bad_request, invalid
from catalog.model.json_fields import integer, mapping, objects, properties, string, strings
from catalog.store.metadata_store import MetadataStore, parse_metadata
from catalog.store.tables import Head, missing, taken

Json = dict[str, Any]
LAST_ADDED = -1
HISTORY_DEFAULT = 10
FORMAT_VERSION = 1
# Views may show any type of any table, so types of the newest format version pass.
_SCHEMA_FORMAT_VERSION = 3


@dataclass(slots=True)
class ViewDraft:
    """View metadata on its way from one version to the next."""

    metadata: Json
    now_ms: int
    check_location: Callable[[object, str], str]
    given: dict[str, str] = field(default_factory=dict)
    added_versions: set[int] = field(default_factory=set)
    last_added: dict[str, int] = field(default_factory=dict)


def next_view_version(
    change: TableChange, head: Head | None, store: MetadataStore, now_ms: int
) -> NextVersion:
    """Checks and applies one view change. Raises CatalogError; nothing has happened then."""
    if change.register is not None or (head is not None and head.kind != change.kind):
        return next_version(change, head, store, now_ms)  # the same for both kinds
    if change.create is not None:
        if head is not None:
            raise taken(change.identifier, head.kind, change.kind)
        return _created(change, change.create, store, now_ms)
    if head is None:
        raise missing(change.identifier, change.kind)
    base = read_metadata(store, head.metadata_location)
    metadata = parse_metadata(base)
    check_requirements(change.requirements, metadata, view=True)
    before, previous = (
        orjson.dumps(metadata),
        by_id(metadata["versions"], "version-id", metadata["current-version-id"]),
    )
    draft = ViewDraft(metadata, now_ms, store.check_location)
    _apply(draft, change)
    if orjson.dumps(metadata) == before:
        return NextVersion.unchanged(change, head, base)
    _finish(draft, previous)
    check_paths(table_location_of(metadata["location"], None), draft.given)
    return written(change, head, metadata, store)


def _created(change: TableChange, create: Json, store: MetadataStore, now_ms: int) -> NextVersion:
    view_uuid, location = chosen_place(create, store)
    metadata: Json = {
        "view-uuid": view_uuid,
        "format-version": FORMAT_VERSION,
        "location": location,
        "schemas": [],
        "current-version-id": -1,
        "versions": [],
        "version-log": [],
        "properties": {},
    }
    draft = ViewDraft(metadata, now_ms, store.check_location)
    _set_properties(draft, {"updates": properties(create, "properties")})
    _add_schema(draft, {"schema": mapping(create, "schema")})
    _add_version(draft, {"view-version": {**mapping(create, "view-version"), "schema-id": LAST_ADDED}})
    _set_current_version(draft, {"view-version-id": LAST_ADDED})
    _finish(draft, None)
    check_paths(table_location_of(metadata["location"], None), draft.given)
    return written(change, None, metadata, store)


def _apply(draft: ViewDraft, change: TableChange) -> None:
    for update in change.updates:
        action = update.get("action")
        apply = _UPDATES.get(action) if isinstance(action, str) else None
        if apply is None:
            raise bad_request(
                f"update {action!r} is unknown; the REST specification lists the updates of views"
            )
        apply(draft, update)


def _assign_uuid(draft: ViewDraft, update: Json) -> None:
    if string(update, "uuid") != draft.metadata["view-uuid"]:
        raise invalid("Cannot reassign uuid")


def _upgrade_format_version(_: ViewDraft, update: Json) -> None:
    if integer(update, "format-version") != FORMAT_VERSION:
        raise invalid(
            f"Unsupported format version: {update['format-version']}; views have format version "
            f"{FORMAT_VERSION}"
        )


def _set_location(draft: ViewDraft, update: Json) -> None:
    draft.metadata["location"] = draft.check_location(update.get("location"), "location").rstrip("/")


def _set_properties(draft: ViewDraft, update: Json) -> None:
    given = properties(update, "updates" if "updates" in update else "updated")
    if "write.metadata.path" in given:
        draft.check_location(given["write.metadata.path"], "write.metadata.path")
    draft.given.update(given)
    draft.metadata["properties"].update(given)


def _remove_properties(draft: ViewDraft, update: Json) -> None:
    for key in strings(update, "removals" if "removals" in update else "removed"):
        draft.metadata["properties"].pop(key, None)


def _add_schema(draft: ViewDraft, update: Json) -> None:
    schema = without_nulls(mapping(update, "schema"))
    check_schema(schema, _SCHEMA_FORMAT_VERSION)
    schemas = draft.metadata["schemas"]
    found = next((known for known in schemas if same_schema(known, schema)), None)
    if found is None:
        found = {
            **schema,
            "type": "struct",
            "schema-id": max((known["schema-id"] for known in schemas), default=-1) + 1,
        }
        schemas.append(found)
    draft.last_added["schema"] = found["schema-id"]


def _add_version(draft: ViewDraft, update: Json) -> None:
    version = without_nulls(mapping(update, "view-version"))
    integer(version, "timestamp-ms")
    version_id = integer(version, "version-id")
    if integer(version, "schema-id") == LAST_ADDED:
        if "schema" not in draft.last_added:
            raise invalid("Cannot set last added schema: no schema has been added")
        version["schema-id"] = draft.last_added["schema"]
    if by_id(draft.metadata["schemas"], "schema-id", version["schema-id"]) is None:
        raise invalid(f"Cannot add version with unknown schema: {version['schema-id']}")
    if not isinstance(version.get("default-namespace"), list):
        raise bad_request("'default-namespace' of a view version must be a list of texts")
    mapping(version, "summary")
    _dialects(version)
    versions = draft.metadata["versions"]
    same = next((known for known in versions if _meaning(known) == _meaning(version)), None)
    if same is None:
        version_id = max([version_id, *(known["version-id"] + 1 for known in versions)])
        versions.append({**version, "version-id": version_id})
        draft.added_versions.add(version_id)
    else:
        version_id = same["version-id"]
    draft.last_added["version"] = version_id


def _meaning(version: Json) -> Json:
    return {key: value for key, value in version.items() if key not in ("version-id", "timestamp-ms")}


def _dialects(version: Json) -> set[str]:
    found: set[str] = set()
    for representation in objects(version, "representations"):
        if representation.get("type") != "sql":
            raise bad_request(f"view representation {representation.get('type')!r} is unknown; use sql")
        string(representation, "sql")
        dialect = string(representation, "dialect").lower()
        if dialect in found:
            raise CatalogError(
                400,
                "IllegalArgumentException",
                f"Invalid view version: Cannot add multiple queries for dialect {dialect}",
            )
        found.add(dialect)
    return found


def _set_current_version(draft: ViewDraft, update: Json) -> None:
    version_id = integer(update, "view-version-id")
    if version_id == LAST_ADDED:
        if "version" not in draft.last_added:
            raise invalid("Cannot set last version id: no current version id has been set")
        version_id = draft.last_added["version"]
    if draft.metadata["current-version-id"] == version_id:
        return
    version = by_id(draft.metadata["versions"], "version-id", version_id)
    if version is None:
        raise invalid(f"Cannot set current version to unknown version: {version_id}")
    time_ms = version["timestamp-ms"] if version_id in draft.added_versions else draft.now_ms
    draft.metadata["current-version-id"] = version_id
    draft.metadata["version-log"].append({"timestamp-ms": time_ms, "version-id": version_id})


def _finish(draft: ViewDraft, previous: Json | None) -> None:
    """Checks that no dialect is lost by accident and expires versions beyond the history's length."""
    metadata, given = draft.metadata, draft.metadata["properties"]
    current = by_id(metadata["versions"], "version-id", metadata["current-version-id"])
    if current is None:
        raise invalid("Invalid view: no versions were added")
    if previous is not None and given.get("replace.drop-dialect.allowed", "false").lower() != "true":
        _check_dialects(_dialects(previous), _dialects(current))
    text = given.get("version.history.num-entries", str(HISTORY_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise invalid(f"version.history.num-entries must be positive but was {text}")
    keep = max(len(draft.added_versions | {metadata["current-version-id"]}), int(text))
    if len(metadata["versions"]) > keep:
        _expire(metadata, current, keep)


def _check_dialects(before: set[str], after: set[str]) -> None:
    if not before <= after:
        raise CatalogError(
            400,
            "IllegalStateException",
            "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
            f"Previous dialects: {sorted(before)}\nNew dialects: {sorted(after)}",
        )


def _expire(metadata: Json, current: Json, keep: int) -> None:
    """Keeps so many versions: the current one, and the newest others. The log begins anew behind the last
    entry whose version is gone."""
    others = sorted(
        (v for v in metadata["versions"] if v is not current), key=lambda v: -int(v["version-id"])
    )
    metadata["versions"] = [current, *others[: keep - 1]]
    kept = {version["version-id"] for version in metadata["versions"]}
    log: list[Json] = []
    for entry in metadata["version-log"]:
        if entry["version-id"] in kept:
            log.append(entry)
        else:
            log.clear()
    metadata["version-log"] = log


_UPDATES: dict[str, Callable[[ViewDraft, Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-schema": _add_schema,
    "add-view-version": _add_version,
    "set-current-view-version": _set_current_version,
}
