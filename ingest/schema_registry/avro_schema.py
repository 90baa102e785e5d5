"""Avro's schemas (https://avro.apache.org/docs/current/specification/) in the words of Kafka Connect."""

from collections.abc import Mapping
from typing import Any

from ingest.schema_registry.connect_form import (
    ANYTHING,
    DATE,
    INSTANT_MS,
    INSTANT_NS,
    INSTANT_US,
    LOCAL_MICRO_TIMESTAMP,
    LOCAL_NANO_TIMESTAMP,
    LOCAL_TIMESTAMP,
    MICRO_TIME,
    TIME,
    UUID,
    UUID_BYTES,
    Schema,
    decimal,
    struct,
)

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
# By logical type and the type beneath it.
_LOGICAL = {
    ("date", "int"): DATE,
    ("time-millis", "int"): TIME,
    ("time-micros", "long"): MICRO_TIME,
    ("timestamp-millis", "long"): INSTANT_MS,
    ("timestamp-micros", "long"): INSTANT_US,
    ("timestamp-nanos", "long"): INSTANT_NS,
    ("local-timestamp-millis", "long"): LOCAL_TIMESTAMP,
    ("local-timestamp-micros", "long"): LOCAL_MICRO_TIMESTAMP,
    ("local-timestamp-nanos", "long"): LOCAL_NANO_TIMESTAMP,
    ("uuid", "string"): UUID,
    ("uuid", "fixed"): UUID_BYTES,
}
_NAMED = frozenset(("record", "error", "enum", "fixed"))
_CHILDREN = ("type", "items", "values", "fields")


def without_logical_types(schema: Any) -> Any:
    """A schema by which values are decoded to what was sent: numbers and bytes.

    A moment that no calendar has would be an error of the whole message else.
    """
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    return plain | {name: without_logical_types(plain[name]) for name in _CHILDREN if name in plain}


def to_connect(schema: Any, referenced: list[Any]) -> Schema:
    """The schema of Connect that says the same. `referenced`: the schemas that it names types of.

    Raises KeyError, TypeError and ValueError where it is no schema of Avro.
    """
    types = _Types()
    for other in referenced:
        types.collect(other, "")
    types.collect(schema, "")
    return types.convert(schema, "")


class _Types:
    """The named types of a schema, and those that are being converted: a type may contain itself."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}
        self._open: set[str] = set()

    def collect(self, schema: Any, namespace: str) -> None:
        """Finds the named types in a schema."""
        if isinstance(schema, list):
            for each in schema:
                self.collect(each, namespace)
        if not isinstance(schema, dict):
            return
        base = schema.get("type")
        if isinstance(base, str) and base in _NAMED:
            full, namespace = _full_name(schema, namespace)
            self._named[full] = schema, namespace
        for child in _CHILDREN:
            if isinstance(schema.get(child), dict | list):
                self.collect(schema[child], namespace)

    def convert(self, schema: Any, namespace: str) -> Schema:
        """Converts a schema that stands in a namespace."""
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        base = schema["type"]
        if isinstance(base, dict | list):
            return self.convert(base, namespace)
        if base in ("record", "error"):
            return self._record(schema, namespace)
        if base == "array":
            return {"type": "array", "items": self.convert(schema["items"], namespace)}
        if base == "map":
            values = self.convert(schema["values"], namespace)
            return {"type": "map", "keys": {"type": "string"}, "values": values}
        return _leaf(schema) if base in _PRIMITIVES or base in _NAMED else self._by_name(base, namespace)

    def _union(self, branches: list[Any], namespace: str) -> Schema:
        """One type or null is that type; what may be one of several has none."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            return dict(ANYTHING)
        return self.convert(others[0], namespace)

    def _by_name(self, name: str, namespace: str) -> Schema:
        if name in _PRIMITIVES:
            return {"type": _PRIMITIVES[name]}
        if name == "null":
            return dict(ANYTHING)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self._named.get(full) or self._named[name]
        return self.convert(known[0], known[1])

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Schema:
        full, inside = _full_name(schema, namespace)
        if full in self._open:
            return dict(ANYTHING)
        self._open.add(full)
        fields = [
            {**self.convert(field["type"], inside), "field": field["name"]} for field in schema["fields"]
        ]
        self._open.remove(full)
        return struct(fields, schema.get("connect.name") or full)


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace of what stands in it."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    inside = schema.get("namespace", namespace)
    return (f"{inside}.{name}" if inside else name), inside


def _leaf(schema: Mapping[str, Any]) -> Schema:
    """A type without parts: by its name in Connect, else by its logical type."""
    base, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and base in ("bytes", "fixed"):
        return decimal(schema.get("scale", 0), schema["precision"])
    named = schema.get("connect.name") or _LOGICAL.get((str(logical), base)) or logical
    kind = "string" if base == "enum" else "bytes" if base == "fixed" else _PRIMITIVES[base]
    return {"type": kind} if named is None else {"type": kind, "name": named}
