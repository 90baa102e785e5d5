"""JSON schemas of request bodies, for the OpenAPI document (Iceberg REST specification,
"components/schemas")."""

from typing import Any

from lake.holds import REQUIREMENT as HOLDS_REQUIREMENT

Json = dict[str, Any]

OBJECT: Json = {"type": "object"}
NAME: Json = {"type": "string", "minLength": 1}
TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
FLAG: Json = {"type": "boolean"}
NUMBERS: Json = {"type": "array", "items": NUMBER}
TEXTS: Json = {"type": "array", "items": TEXT}
LEVELS: Json = {"type": "array", "items": NAME, "minItems": 1}
PROPERTIES: Json = {"type": "object", "additionalProperties": TEXT}


def record(*required: str, **properties: Json) -> Json:
    """An object; in the names of its properties `_` stands for `-`."""
    spelled = {name.replace("_", "-"): schema for name, schema in properties.items()}
    return {
        "type": "object",
        "required": [name.replace("_", "-") for name in required],
        "properties": spelled,
    }


IDENTIFIER = record("namespace", "name", namespace=LEVELS, name=NAME)
FIELD = record(
    "id",
    "name",
    "type",
    "required",
    id=NUMBER,
    name=NAME,
    required=FLAG,
    doc=TEXT,
    type={"anyOf": [NAME, OBJECT]},
)
SCHEMA = record(
    "type",
    "fields",
    type={"const": "struct"},
    fields={"type": "array", "items": FIELD},
    schema_id=NUMBER,
    identifier_field_ids=NUMBERS,
)
_TRANSFORM: Json = {
    "type": "string",
    "examples": ["identity", "hour", "day", "month", "year", "bucket[16]", "truncate[8]", "void"],
}
_PART = record(
    "source_id", "transform", "name", source_id=NUMBER, transform=_TRANSFORM, name=NAME, field_id=NUMBER
)
SPEC = record("fields", spec_id=NUMBER, fields={"type": "array", "items": _PART})
_KEY = record(
    "source_id",
    "transform",
    "direction",
    "null_order",
    source_id=NUMBER,
    transform=_TRANSFORM,
    direction={"enum": ["asc", "desc"]},
    null_order={"enum": ["nulls-first", "nulls-last"]},
)
ORDER = record("order_id", "fields", order_id=NUMBER, fields={"type": "array", "items": _KEY})
SNAPSHOT = record(
    "snapshot_id",
    "timestamp_ms",
    "manifest_list",
    "summary",
    snapshot_id=NUMBER,
    parent_snapshot_id=NUMBER,
    sequence_number=NUMBER,
    timestamp_ms=NUMBER,
    manifest_list=NAME,
    summary=PROPERTIES,
    schema_id=NUMBER,
    first_row_id=NUMBER,
    added_rows=NUMBER,
)
_REPRESENTATION = record("type", "sql", "dialect", type={"const": "sql"}, sql=NAME, dialect=NAME)
VIEW_VERSION = record(
    "version_id",
    "timestamp_ms",
    "schema_id",
    "summary",
    "representations",
    "default_namespace",
    version_id=NUMBER,
    timestamp_ms=NUMBER,
    schema_id=NUMBER,
    summary=PROPERTIES,
    representations={"type": "array", "items": _REPRESENTATION},
    default_namespace=TEXTS,
    default_catalog=TEXT,
)
_REF = {"ref_name": NAME, "type": {"enum": ["branch", "tag"]}, "snapshot_id": NUMBER}
_AGES = {"min_snapshots_to_keep": NUMBER, "max_snapshot_age_ms": NUMBER, "max_ref_age_ms": NUMBER}
_FILE = {"snapshot_id": NUMBER, "statistics_path": NAME, "file_size_in_bytes": NUMBER}
_BLOB_PARTS = {
    "type": {"type": "string", "examples": ["apache-datasketches-theta-v1"]},
    "snapshot_id": NUMBER,
    "sequence_number": NUMBER,
    "fields": NUMBERS,
}
_BLOB = record(*_BLOB_PARTS, **_BLOB_PARTS, properties=PROPERTIES)
_STATISTICS_PARTS = {
    **_FILE,
    "file_footer_size_in_bytes": NUMBER,
    "blob_metadata": {"type": "array", "items": _BLOB},
}
_STATISTICS = record(*_STATISTICS_PARTS, **_STATISTICS_PARTS)
_PARTITION_STATISTICS = record(*_FILE, **_FILE)
_ENCRYPTION_KEY = record("key_id", "encrypted_key_metadata", key_id=NAME, encrypted_key_metadata=NAME)

_COMMON_UPDATES: dict[str, Json] = {
    "assign-uuid": {"uuid": NAME},
    "upgrade-format-version": {"format_version": NUMBER},
    "add-schema": {"schema": SCHEMA},
    "set-location": {"location": NAME},
    "set-properties": {"updates": PROPERTIES},
    "remove-properties": {"removals": TEXTS},
}
TABLE_UPDATES: dict[str, Json] = _COMMON_UPDATES | {
    "set-current-schema": {"schema_id": NUMBER},
    "add-spec": {"spec": SPEC},
    "set-default-spec": {"spec_id": NUMBER},
    "add-sort-order": {"sort_order": ORDER},
    "set-default-sort-order": {"sort_order_id": NUMBER},
    "add-snapshot": {"snapshot": SNAPSHOT},
    "set-snapshot-ref": _REF,
    "remove-snapshots": {"snapshot_ids": NUMBERS},
    "remove-snapshot-ref": {"ref_name": NAME},
    "set-statistics": {"statistics": _STATISTICS},
    "remove-statistics": {"snapshot_id": NUMBER},
    "set-partition-statistics": {"partition_statistics": _PARTITION_STATISTICS},
    "remove-partition-statistics": {"snapshot_id": NUMBER},
    "remove-partition-specs": {"spec_ids": NUMBERS},
    "remove-schemas": {"schema_ids": NUMBERS},
    "add-encryption-key": {"encryption_key": _ENCRYPTION_KEY},
    "remove-encryption-key": {"key_id": NAME},
}
VIEW_UPDATES: dict[str, Json] = _COMMON_UPDATES | {
    "add-view-version": {"view_version": VIEW_VERSION},
    "set-current-view-version": {"view_version_id": NUMBER},
}
_OPTIONAL: dict[str, Json] = {"set-snapshot-ref": _AGES}
TABLE_REQUIREMENTS: dict[str, Json] = {
    "assert-create": {},
    "assert-table-uuid": {"uuid": NAME},
    "assert-ref-snapshot-id": {"ref": NAME, "snapshot_id": {"anyOf": [NUMBER, {"type": "null"}]}},
    "assert-last-assigned-field-id": {"last_assigned_field_id": NUMBER},
    "assert-current-schema-id": {"current_schema_id": NUMBER},
    "assert-last-assigned-partition-id": {"last_assigned_partition_id": NUMBER},
    "assert-default-spec-id": {"default_spec_id": NUMBER},
    "assert-default-sort-order-id": {"default_sort_order_id": NUMBER},
    HOLDS_REQUIREMENT: {"holds": {"anyOf": [TEXT, {"type": "null"}]}},
}
VIEW_REQUIREMENTS: dict[str, Json] = {
    "assert-create": {},
    "assert-table-uuid": {"uuid": NAME},
    "assert-view-uuid": {"uuid": NAME},
}


def _one_of(key: str, kinds: dict[str, Json]) -> Json:
    """A list of objects of which each says its kind under `key`."""
    each = [
        record(key, *fields, **{key: {"const": kind}}, **fields, **_OPTIONAL.get(kind, {}))
        for kind, fields in kinds.items()
    ]
    return {"type": "array", "items": {"anyOf": each}}


def _commit(requirements: dict[str, Json], updates: dict[str, Json]) -> Json:
    # A snapshot ref has a `type` of its own, beside the `action` that says what kind of update it is.
    return record(
        "requirements",
        "updates",
        identifier=IDENTIFIER,
        requirements=_one_of("type", requirements),
        updates=_one_of("action", updates),
    )


COMMIT = _commit(TABLE_REQUIREMENTS, TABLE_UPDATES)
COMMIT_VIEW = _commit(VIEW_REQUIREMENTS, VIEW_UPDATES)
CREATE = record(
    "name",
    "schema",
    name=NAME,
    location=TEXT,
    schema=SCHEMA,
    partition_spec=SPEC,
    write_order=ORDER,
    stage_create=FLAG,
    properties=PROPERTIES,
    table_uuid=TEXT,
)
CREATE_VIEW = record(
    "name",
    "schema",
    "view_version",
    "properties",
    name=NAME,
    location=TEXT,
    schema=SCHEMA,
    view_version=VIEW_VERSION,
    properties=PROPERTIES,
)
RENAME = record("source", "destination", source=IDENTIFIER, destination=IDENTIFIER)
REGISTER = record("name", "metadata_location", name=NAME, metadata_location=NAME, overwrite=FLAG)
TRANSACTION = record(
    "table_changes",
    table_changes={
        "type": "array",
        "items": {**COMMIT, "required": ["identifier", "requirements", "updates"]},
    },
)
CREATE_NAMESPACE = record("namespace", namespace=LEVELS, properties=PROPERTIES)
UPDATE_NAMESPACE = record(removals={**TEXTS, "uniqueItems": True}, updates=PROPERTIES)
