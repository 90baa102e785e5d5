"""Declared types: a field gets a typed column by a change of metadata alone; no data file is touched.

Iceberg cannot turn a string into a number, so the column that bears the field's name steps aside as
`<name>__<its type>` with all it holds, and the name goes to a column of the wanted type: a new one, or the
one that stepped aside when it was of that type before. Searches look into all of them. Where Iceberg can
widen a type (int to long, float to double) the column stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.errors import ConflictError, NotFoundError, RefusedError
from lake.log_schema import NAME_BYTES_MAX, RESERVED_NAMES, SYSTEM_COLUMNS, LogSchema, fold
from lake.table_layout import DECLARED_TYPES_PROPERTY as PROPERTY
from lake.tenant import TableId
from query.language.search_sql import similar_field, stepped_aside
from query.model.problem import refuse

TYPES = ("string", "boolean", "int", "long", "double", "timestamptz", "date")
_WIDER = {("int", "long"), ("float", "double")}
ATTEMPTS = 10
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a declaration did. `older`: the column that holds what was stored before; None: there was nothing,
    or it stays where it is."""

    field: str
    kind: str
    older: str | None
    changed: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """A schema's fields after a declaration."""

    fields: list[Json]
    last_column_id: int
    older: str | None


def declared_types(properties: Mapping[str, str]) -> dict[str, str]:
    """Field -> type, as declared. Something else's text under the property's name counts as none."""
    try:
        found = orjson.loads(properties.get(PROPERTY, "{}"))
    except orjson.JSONDecodeError:
        return {}
    return {str(name): str(kind) for name, kind in found.items()} if isinstance(found, dict) else {}


def declare(catalog: CatalogClient, table: TableId, field: str, kind: str) -> Declared:
    """Declares a field's type; the table's next rows are held to it. Raises BadRequestError, NotFoundError,
    ConflictError."""
    name = _checked_name(field)
    identifier = TableName(table.tenant.namespace, table.table)
    for _ in range(ATTEMPTS):
        try:
            metadata = catalog.load_table(identifier)["metadata"]
        except NotFoundError as error:
            raise NotFoundError(
                f"tenant {table.tenant.name!r} has no stream {table.stream!r}: its table comes with its "
                "first record"
            ) from error
        request, older = _request(identifier, metadata, name, kind)
        if request is None:
            return Declared(name, kind, None, changed=False)
        result = catalog.commit_all([request])[0]
        if result.status is CommitStatus.COMMITTED:
            return Declared(name, kind, older, changed=True)
        if result.status in (CommitStatus.INVALID, CommitStatus.DELETED, CommitStatus.NOT_FOUND):
            raise RefusedError(result.message)
        # Somebody was faster, or nobody knows: what the table is now decides.
    raise ConflictError(f"{identifier} changes faster than a type can be declared; try again")


def _request(identifier: TableName, metadata: Json, name: str, kind: str) -> tuple[Json | None, str | None]:
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    declared = declared_types(metadata.get("properties", {}))
    change = changed_fields(
        schema, int(metadata["last-column-id"]), name, kind, was_declared=name in declared
    )
    if change is None and declared.get(name) == kind:
        return None, None
    updates: list[Json] = [
        {"action": "set-properties", "updates": {PROPERTY: orjson.dumps({**declared, name: kind}).decode()}}
    ]
    requirements: list[Json] = [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
        {"type": "assert-current-schema-id", "current-schema-id": metadata["current-schema-id"]},
    ]
    if change is not None:
        requirements.append(
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata["last-column-id"]}
        )
        grown = {**schema, "fields": change.fields}
        updates = [
            {"action": "add-schema", "schema": grown, "last-column-id": change.last_column_id},
            {"action": "set-current-schema", "schema-id": -1},
            *updates,
        ]
    return {
        "identifier": identifier.to_json(),
        "requirements": requirements,
        "updates": updates,
    }, change.older if change else None


def changed_fields(
    schema: Mapping[str, Any], last_column_id: int, name: str, kind: str, *, was_declared: bool
) -> _Change | None:
    """The fields with `name` bearing `kind`; None where it does already. Raises BadRequestError where a
    column is in the way."""
    fields: list[Json] = list(schema["fields"])
    places = {fold(field["name"]): at for at, field in enumerate(fields)}
    at = places.get(name)
    if at is None:
        new = {"id": last_column_id + 1, "name": name, "required": False, "type": kind}
        return _Change([*fields, new], last_column_id + 1, None)
    now = fields[at]
    if now["type"] == kind:
        return None
    if not isinstance(now["type"], str):
        raise refuse(f"the field {name!r} holds lists or structures; such a column has no declared type")
    if (now["type"], kind) in _WIDER and stepped_aside(name, kind) not in places:
        fields[at] = {**now, "type": kind}
        return _Change(fields, last_column_id, None)
    older, earlier = stepped_aside(name, now["type"]), places.get(stepped_aside(name, kind))
    if older in places:
        raise refuse(f"the field {name!r} cannot step aside: there is a field {older!r} already")
    fields[at] = {**now, "name": older}
    if was_declared and earlier is not None and fields[earlier]["type"] == kind:
        fields[earlier] = {**fields[earlier], "name": name}
        return _Change(fields, last_column_id, older)
    new = {"id": last_column_id + 1, "name": name, "required": False, "type": kind} | (
        {"doc": now["doc"]} if "doc" in now else {}
    )
    return _Change([*fields, new], last_column_id + 1, older)


def _checked_name(field: str) -> str:
    name = fold(field.strip()).replace(".", "_")
    if not name or len(name.encode()) > NAME_BYTES_MAX - 20 or not name.isprintable():
        raise refuse(
            f"{field[:60]!r} cannot be a field's name", suggestion="write it as the list of fields shows it"
        )
    if name in SYSTEM_COLUMNS or name in RESERVED_NAMES:
        raise refuse(f"the type of the system column {name!r} is fixed")
    return name


def suggestion(field: str, schema: LogSchema) -> str | None:
    """What was perhaps meant, where a field is declared that no record has shown yet."""
    return None if fold(field) in schema.by_name else similar_field(field, schema)
