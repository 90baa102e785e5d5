"""Schemas, partition specs and sort orders as JSON: checked once when they come in, so that every engine can
read what we store.

Iceberg table specification, appendix C (JSON serialization) and "Schemas and data types".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from catalog.model.error_response import bad_request, invalid
from catalog.model.json_fields import integers, mapping, objects, small_integer, string

Json = dict[str, Any]
COLUMNS_MAX = 20_000
DEPTH_MAX = 64
PARTITION_FIELD_START = 1_000
# Tables of one shipper begin with one schema, and grow by the same columns: what was found out about the last
# ones is kept, unless they are large.
KEPT_SCHEMAS, KEPT_SCHEMA_BYTES_MAX = 64, 16 * 1024

_PRIMITIVES = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "string",
        "uuid",
        "binary",
    }
)
_SIZED = re.compile(r"decimal\(\s*\d+\s*,\s*\d+\s*\)|fixed\[\s*\d+\s*\]")
_SINCE_V3 = frozenset({"timestamp_ns", "timestamptz_ns", "unknown", "variant"})
_SINCE_V3_SIZED = re.compile(r"(geometry|geography)(\(.*\))?")
_TRANSFORM = re.compile(r"identity|year|month|day|hour|void|(bucket|truncate)\[\d+\]")


@dataclass(frozen=True, slots=True)
class Field:
    """One column or nested field: its dotted name and its type."""

    name: str
    type: Any


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema as it is stored, without nulls, its fields by id, and the id that each field came with -> the
    one it has. It may be part of the metadata of many tables: nobody changes it."""

    json: Json
    fields: Mapping[int, Field]
    mapped: Mapping[int, int]

    @property
    def last_id(self) -> int:
        """The highest field id."""
        return max(self.fields, default=0)


def checked_schema(raw: Json, format_version: int) -> CheckedSchema:
    """A schema that comes in, checked. Raises CatalogError 400."""
    data = orjson.dumps(raw)
    known = len(data) <= KEPT_SCHEMA_BYTES_MAX
    return (_checked_before if known else _checked)(data, format_version)


def first_schema(raw: Json, format_version: int, *, keeps_ids: bool) -> CheckedSchema:
    """The same as the first of a table: with fresh ids, unless it keeps those that it has. Raises
    CatalogError 400."""
    data = orjson.dumps(raw)
    known = len(data) <= KEPT_SCHEMA_BYTES_MAX
    return (_first_before if known else _first)(data, format_version, keeps_ids)


def _checked(data: bytes, format_version: int) -> CheckedSchema:
    schema = without_nulls(orjson.loads(data))
    fields = check_schema(schema, format_version)
    return CheckedSchema(schema, fields, {field_id: field_id for field_id in fields})


def _first(data: bytes, format_version: int, keeps_ids: bool) -> CheckedSchema:
    schema = _checked(data, format_version).json
    fresh, mapped = keep_ids(schema) if keeps_ids else assign_fresh_ids(schema)
    return CheckedSchema(fresh, check_schema(fresh, format_version), mapped)


_checked_before = lru_cache(maxsize=KEPT_SCHEMAS)(_checked)
_first_before = lru_cache(maxsize=KEPT_SCHEMAS)(_first)


def check_schema(raw: Json, format_version: int) -> dict[int, Field]:
    """Checks a schema and returns its fields by id, nested ones included. Raises CatalogError 400 with the
    field's name."""
    fields: dict[int, Field] = {}
    names: set[str] = set()

    def add(field_id: int, name: str, kind: Any) -> None:
        if field_id in fields:
            raise invalid(
                f"Multiple entries with same field id {field_id}: {fields[field_id].name} and {name}"
            )
        if name in names:
            raise invalid(f"Invalid schema: multiple fields for name {name}")
        fields[field_id] = Field(name, kind)
        names.add(name)
        if len(fields) > COLUMNS_MAX:
            raise invalid(
                f"the schema has more than {COLUMNS_MAX} fields; put rarely used ones into a string column"
            )

    if raw.get("type", "struct") != "struct":
        raise bad_request("a schema's 'type' must be 'struct'")
    _walk_struct(raw, "", add, format_version, 0)
    _check_identifiers(raw, fields)
    return fields


def _check_identifiers(raw: Json, fields: Mapping[int, Field]) -> None:
    """Refuses a schema that other clients could not read any more (Iceberg spec, "Identifier Field IDs")."""
    if raw.get("identifier-field-ids") is None:
        return
    allowed = frozenset(_identifying(raw))
    for identifier_id in integers(raw, "identifier-field-ids"):
        if identifier_id not in fields:
            raise invalid(f"identifier field {identifier_id} is not in the schema")
        if identifier_id not in allowed:
            raise invalid(
                f"{fields[identifier_id].name} cannot be an identifier field: it must be required and of a "
                "primitive type other than float and double, and lie in required structs alone"
            )


def _identifying(struct: Json) -> Iterator[int]:
    """Ids of the fields that may identify a row."""
    for field in struct["fields"]:
        kind = field["type"]
        if not field.get("required", False) or kind in ("float", "double"):
            continue
        if isinstance(kind, str):
            yield field["id"]
        elif kind["type"] == "struct":
            yield from _identifying(kind)


def _walk_struct(
    struct: Json, prefix: str, add: Callable[[int, str, Any], None], format_version: int, depth: int
) -> None:
    if depth > DEPTH_MAX:
        raise invalid(f"the schema nests deeper than {DEPTH_MAX} levels")
    for field in objects(struct, "fields"):
        name = prefix + string(field, "name")
        if not isinstance(field.get("required", False), bool):
            raise bad_request(f"'required' of field {name} must be true or false")
        add(small_integer(field, "id"), name, field.get("type"))
        _walk_type(field.get("type"), name, add, format_version, depth)


def _walk_type(
    kind: Any, name: str, add: Callable[[int, str, Any], None], format_version: int, depth: int
) -> None:
    if isinstance(kind, str):
        _check_primitive(kind, name, format_version)
        return
    if not isinstance(kind, dict) or depth > DEPTH_MAX:
        raise bad_request(
            f"the type of field {name} must be a text or an object nested at most {DEPTH_MAX} levels"
        )
    match kind.get("type"):
        case "struct":
            _walk_struct(kind, f"{name}.", add, format_version, depth + 1)
        case "list":
            add(small_integer(kind, "element-id"), f"{name}.element", kind.get("element"))
            _walk_type(kind.get("element"), f"{name}.element", add, format_version, depth + 1)
        case "map":
            add(small_integer(kind, "key-id"), f"{name}.key", kind.get("key"))
            add(small_integer(kind, "value-id"), f"{name}.value", kind.get("value"))
            _walk_type(kind.get("key"), f"{name}.key", add, format_version, depth + 1)
            _walk_type(kind.get("value"), f"{name}.value", add, format_version, depth + 1)
        case other:
            raise bad_request(f"field {name} has the unknown type {other!r}")


def _check_primitive(kind: str, name: str, format_version: int) -> None:
    if kind in _PRIMITIVES or _SIZED.fullmatch(kind):
        return
    if kind in _SINCE_V3 or _SINCE_V3_SIZED.fullmatch(kind):
        if format_version < 3:
            raise invalid(
                f"Invalid schema for v{format_version}:\n- Invalid type for {name}: {kind} is not supported "
                "until v3"
            )
        return
    raise bad_request(f"field {name} has the unknown type {kind!r}")


def check_spec(fields: list[Json], schema: Mapping[int, Field], *, dropped_sources_ok: bool = False) -> None:
    """Checks a partition spec's fields against a schema's fields by id. Raises CatalogError 400."""
    by_name = {field.name: field_id for field_id, field in schema.items()}
    names: set[str] = set()
    for field in fields:
        name, transform, source_id = (
            string(field, "name"),
            string(field, "transform"),
            small_integer(field, "source-id"),
        )
        if not _TRANSFORM.fullmatch(transform):
            raise bad_request(f"partition field {name} has the unknown transform {transform!r}")
        if name in names:
            raise invalid(f"Cannot use partition name more than once: {name}")
        names.add(name)
        source = schema.get(source_id)
        if source is None:
            if transform == "void" or dropped_sources_ok:
                continue
            raise invalid(f"Cannot find source column for partition field: {name} (source id {source_id})")
        if not isinstance(source.type, str) or source.type == "variant":
            raise invalid(f"Cannot partition by non-primitive source field: {source.name}")
        if name in by_name and transform not in ("identity", "void"):
            raise invalid(f"Cannot create partition from name that exists in schema: {name}")
        if name in by_name and by_name[name] != source_id and transform == "identity":
            raise invalid(f"Cannot create identity partition sourced from different field in schema: {name}")


def check_order(fields: list[Json], schema: Mapping[int, Field]) -> None:
    """Checks a sort order's fields against a schema's fields by id. Raises CatalogError 400."""
    for field in fields:
        transform, source_id = string(field, "transform"), small_integer(field, "source-id")
        if not _TRANSFORM.fullmatch(transform):
            raise bad_request(f"a sort field has the unknown transform {transform!r}")
        source = schema.get(source_id)
        if source is None:
            raise invalid(f"Cannot find source column for sort field with source id {source_id}")
        if not isinstance(source.type, str):
            raise invalid(f"Cannot sort by non-primitive source field: {source.name}")
        if field.get("direction") not in ("asc", "desc") or field.get("null-order") not in (
            "nulls-first",
            "nulls-last",
        ):
            raise bad_request(
                "a sort field needs 'direction' asc or desc and 'null-order' nulls-first or nulls-last"
            )


def assign_fresh_ids(schema: Json) -> tuple[Json, dict[int, int]]:
    """The schema with ids from 1 on, and old id -> new id. All fields of a struct get theirs before anything
    nested in them does, then depth first: Iceberg's `TypeUtil.assignFreshIds`. A schema that already has
    these ids comes back unchanged."""
    mapped: dict[int, int] = {}

    def next_id(old: int) -> int:
        mapped[old] = len(mapped) + 1
        return mapped[old]

    def struct(fields: list[Json]) -> list[Json]:
        ids = [next_id(field["id"]) for field in fields]
        return [
            {**field, "id": new, "type": of(field["type"])} for field, new in zip(fields, ids, strict=True)
        ]

    def of(kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": struct(kind["fields"])}
        if kind["type"] == "list":
            return {**kind, "element-id": next_id(kind["element-id"]), "element": of(kind["element"])}
        ids = {"key-id": next_id(kind["key-id"]), "value-id": next_id(kind["value-id"])}
        return {**kind, **ids, "key": of(kind["key"]), "value": of(kind["value"])}

    fresh = {**schema, "type": "struct", "schema-id": 0, "fields": struct(schema["fields"])}
    if schema.get("identifier-field-ids"):
        fresh["identifier-field-ids"] = [mapped[old] for old in schema["identifier-field-ids"]]
    return fresh, mapped


def keep_ids(schema: Json) -> tuple[Json, dict[int, int]]:
    """The schema as the first of its table, and each of its ids by itself."""
    _, mapped = assign_fresh_ids(schema)
    return {**schema, "type": "struct", "schema-id": 0}, {old: old for old in mapped}


def without_nulls(value: Any) -> Any:
    """The same JSON without fields that are null, so that two spellings of one schema are equal."""
    if isinstance(value, dict):
        return {
            key: item if isinstance(item, str) else without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def same_schema(one: Json, other: Json) -> bool:
    """Whether two schemas differ in nothing but their schema id."""
    return bool(one["fields"] == other["fields"]) and sorted(one.get("identifier-field-ids") or []) == sorted(
        other.get("identifier-field-ids") or []
    )


def by_id(items: list[Json], key: str, wanted: int) -> Json | None:
    """The schema, spec or order of a list that carries the id."""
    return next((item for item in items if item[key] == wanted), None)


def spec_fields(raw: Json, key: str) -> list[Json]:
    """The fields of a spec or order given under a key; an absent or null one has none. Raises CatalogError
    400."""
    return [] if raw.get(key) is None else objects(mapping(raw, key), "fields", optional=True)
