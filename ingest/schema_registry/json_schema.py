"""Messages of JSON Schema: JSON that is compared with its schema, and stays as it is spelled."""

from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import SerializationError

from ingest.schema_registry.connect_form import (
    ANYTHING,
    ISO_DATE,
    UUID,
    ZONED_TIMESTAMP,
    Schema,
    message_text,
    schema_text,
    struct,
)
from ingest.schema_registry.wire_format import HEAD_BYTES
from lake.errors import Reason, Rejected

_TYPES = {"boolean": "boolean", "integer": "int64", "number": "double", "string": "string"}
_FORMATS = {"date": ISO_DATE, "date-time": ZONED_TIMESTAMP, "uuid": UUID}
_CONNECT_TYPES = {"float32": "float", "float64": "double"}


def to_connect(schema: Mapping[str, Any]) -> Schema:
    """The schema of Connect that says the same, as far as it can: what may be several things has no type."""
    return _convert(schema, schema, frozenset())


def _convert(schema: Any, root: Mapping[str, Any], inside: frozenset[str]) -> Schema:
    if not isinstance(schema, dict):
        return dict(ANYTHING)
    if isinstance(reference := schema.get("$ref"), str):
        found = None if reference in inside else _find(root, reference)
        return dict(ANYTHING) if found is None else _convert(found, root, inside | {reference})
    if (branches := schema.get("oneOf") or schema.get("anyOf")) is not None:
        others = [each for each in branches if each != {"type": "null"}]
        return _convert(others[0], root, inside) if len(others) == 1 else dict(ANYTHING)
    base = _single_type(schema.get("type"))
    if base == "object":
        return _object(schema, root, inside)
    if base == "array":
        return {"type": "array", "items": _convert(schema.get("items"), root, inside)}
    return _leaf(schema, base)


def _find(root: Any, reference: str) -> Any:
    """What a reference within the schema means; None where it leads elsewhere."""
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return root


def _single_type(named: Any) -> str | None:
    if isinstance(named, list):
        others = [each for each in named if each != "null"]
        named = others[0] if len(others) == 1 else None
    return named if isinstance(named, str) else None


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], inside: frozenset[str]) -> Schema:
    properties, more = schema.get("properties"), schema.get("additionalProperties")
    if not properties and isinstance(more, dict):
        return {"type": "map", "keys": {"type": "string"}, "values": _convert(more, root, inside)}
    fields = [{**_convert(of, root, inside), "field": name} for name, of in _ordered(properties or {})]
    return {**struct(fields, schema.get("title")), "open": more is not False}


def _ordered(properties: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Properties in the order that Connect gave them, if it did."""

    def place(item: tuple[str, Any]) -> int:
        index = item[1].get("connect.index") if isinstance(item[1], dict) else None
        return index if isinstance(index, int) else 0

    return sorted(properties.items(), key=place)


def _leaf(schema: Mapping[str, Any], base: str | None) -> Schema:
    """A type without parts: as Connect named it, else by its format."""
    named = schema.get("connect.type")
    kind = _CONNECT_TYPES.get(named, named) if isinstance(named, str) else _TYPES.get(base or "")
    if kind is None:
        return dict(ANYTHING)
    # Connect puts the name of a type where others write what a field is about.
    name = schema.get("title") if named is not None else _FORMATS.get(schema.get("format") or "")
    parameters = schema.get("connect.parameters")
    return {
        "type": kind,
        **({} if name is None else {"name": name}),
        **({} if parameters is None else {"parameters": parameters}),
    }


def _no_subject(*_: Any) -> None:
    """A schema is found by its id alone."""


class JsonSchemaMessages:
    """Makes the readers of JSON Schemas."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._deserializer = JSONDeserializer(
            None, schema_registry_client=client, conf={"subject.name.strategy": _no_subject}
        )

    def reader(self, schema: RegistrySchema) -> "JsonSchemaReader":
        """Raises ValueError for what is no JSON."""
        return JsonSchemaReader(self._deserializer, schema_text(to_connect(orjson.loads(schema.schema_str))))


class JsonSchemaReader:
    """Reads the messages of one schema."""

    def __init__(self, deserializer: JSONDeserializer, schema: bytes) -> None:
        self._deserializer, self._schema = deserializer, schema

    def read(self, message: bytes) -> bytes | Rejected:
        """The message in the form of Connect, its JSON as it is spelled."""
        try:
            self._deserializer(message)
        except (SerializationError, ValueError, RecursionError) as error:
            return Rejected(Reason.NOT_OF_SCHEMA, f"not JSON of its schema: {error}")
        return message_text(self._schema, message[HEAD_BYTES:])
