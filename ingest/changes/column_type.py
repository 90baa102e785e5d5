"""Types of columns, and the types that Kafka Connect's schemas name.

A type is the name of an Iceberg primitive, or a `ListType` or `MapType` of others. Field ids are not part of
it: the committer hands them out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from ingest.changes import column_value as values
from ingest.changes.column_value import Convert
from ingest.schema_registry.connect_form import INSTANT_MS, INSTANT_NS, INSTANT_US, UUID_BYTES
from lake.log_schema import arrow_type


@dataclass(frozen=True, slots=True)
class ListType:
    """A list; an element may be NULL."""

    element: "ColumnType"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; a value may be NULL."""

    key: "ColumnType"
    value: "ColumnType"


ColumnType = str | ListType | MapType

DECIMAL_PRECISION_MAX = 38


def to_iceberg(kind: ColumnType, next_id: Callable[[], int]) -> Any:
    """The JSON of a type (Iceberg specification, Appendix C). `next_id` gives a fresh field id at each
    call."""
    if isinstance(kind, ListType):
        return {
            "type": "list",
            "element-id": next_id(),
            "element-required": False,
            "element": to_iceberg(kind.element, next_id),
        }
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "key-id": next_id(),
            "key": to_iceberg(kind.key, next_id),
            "value-id": next_id(),
            "value-required": False,
            "value": to_iceberg(kind.value, next_id),
        }
    return kind


def from_iceberg(kind: Any) -> ColumnType:
    """The type that a column's JSON names; "struct" for a struct, which no change writes."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if kind["type"] == "list":
        return ListType(from_iceberg(kind["element"]))
    if kind["type"] == "map":
        return MapType(from_iceberg(kind["key"]), from_iceberg(kind["value"]))
    return "struct"


def to_arrow(kind: ColumnType) -> pa.DataType:
    """The Arrow type that takes a type's converted values."""
    return arrow_type(to_iceberg(kind, lambda: 0))


def decimal_type(precision: int, scale: int) -> str:
    """The name of a decimal type."""
    return f"decimal({precision},{scale})"


def parse_decimal(kind: ColumnType) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for another type."""
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind[8:-1].split(",")
    return int(precision), int(scale)


class Typed(NamedTuple):
    """A type, and how values of JSON become values of it."""

    kind: ColumnType
    convert: Convert


_TEXT = Typed("string", values.to_string)
# Whatever has a type that nothing is known of: its JSON text.
_ANYTHING = Typed("string", values.to_json_text)
_PRIMITIVES: Mapping[str, Typed] = {
    "boolean": Typed("boolean", values.to_boolean),
    "int8": Typed("int", values.to_int),
    "int16": Typed("int", values.to_int),
    "int32": Typed("int", values.to_int),
    "int64": Typed("long", values.to_long),
    "float": Typed("float", values.to_float),
    "float32": Typed("float", values.to_float),
    "double": Typed("double", values.to_double),
    "float64": Typed("double", values.to_double),
    "string": _TEXT,
    "bytes": Typed("binary", values.to_binary),
}
_DATE = Typed("date", values.to_date)
_TIME_MS = Typed("time", partial(values.to_time, numerator=1_000))
_TIME_US = Typed("time", values.to_time)
_TIME_NS = Typed("time", partial(values.to_time, denominator=1_000))
_TIMESTAMP_MS = Typed("timestamp", partial(values.to_timestamp, numerator=1_000))
_TIMESTAMP_US = Typed("timestamp", values.to_timestamp)
_TIMESTAMP_NS = Typed("timestamp", partial(values.to_timestamp, denominator=1_000))
# By the name of the schema and the type beneath it: a name above another type is an unknown one. Debezium's
# documentation of its connectors, "Data type mappings"; `org.apache.kafka.connect.data` of Kafka's Javadoc.
_LOGICAL: Mapping[tuple[str, str], Typed] = {
    ("org.apache.kafka.connect.data.Date", "int32"): _DATE,
    ("org.apache.kafka.connect.data.Time", "int32"): _TIME_MS,
    # Debezium uses it for timestamps without a zone; those with one are ZonedTimestamp.
    ("org.apache.kafka.connect.data.Timestamp", "int64"): _TIMESTAMP_MS,
    ("io.debezium.time.Date", "int32"): _DATE,
    ("io.debezium.time.Time", "int32"): _TIME_MS,
    ("io.debezium.time.MicroTime", "int64"): _TIME_US,
    ("io.debezium.time.NanoTime", "int64"): _TIME_NS,
    ("io.debezium.time.Timestamp", "int64"): _TIMESTAMP_MS,
    ("io.debezium.time.MicroTimestamp", "int64"): _TIMESTAMP_US,
    ("io.debezium.time.NanoTimestamp", "int64"): _TIMESTAMP_NS,
    ("io.debezium.time.ZonedTimestamp", "string"): Typed("timestamptz", values.to_zoned_timestamp),
    ("io.debezium.time.IsoDate", "string"): Typed("date", values.to_iso_date),
    ("io.debezium.time.IsoTime", "string"): Typed("time", values.to_iso_time),
    ("io.debezium.time.IsoTimestamp", "string"): Typed("timestamp", values.to_zoned_timestamp),
    # Names that `ingest.schema_registry` gives to what Connect has none for.
    (INSTANT_MS, "int64"): Typed("timestamptz", partial(values.to_timestamp, numerator=1_000)),
    (INSTANT_US, "int64"): Typed("timestamptz", values.to_timestamp),
    (INSTANT_NS, "int64"): Typed("timestamptz", partial(values.to_timestamp, denominator=1_000)),
    (UUID_BYTES, "bytes"): Typed("uuid", values.to_uuid_of_bytes),
    # Iceberg has no time with a zone.
    ("io.debezium.time.ZonedTime", "string"): _TEXT,
    ("io.debezium.time.Interval", "string"): _TEXT,
    ("io.debezium.time.MicroDuration", "int64"): _PRIMITIVES["int64"],
    ("io.debezium.time.NanoDuration", "int64"): _PRIMITIVES["int64"],
    ("io.debezium.time.Year", "int32"): _PRIMITIVES["int32"],
    ("io.debezium.data.Uuid", "string"): Typed("uuid", values.to_uuid),
    ("io.debezium.data.Bits", "bytes"): _PRIMITIVES["bytes"],
    ("io.debezium.data.VariableScaleDecimal", "struct"): Typed("string", values.to_variable_decimal),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
# Names of a list that say what it is for, not what it is made of.
_VECTORS = frozenset(("io.debezium.data.FloatVector", "io.debezium.data.DoubleVector"))


def typed(schema: Mapping[str, Any]) -> Typed:
    """The type of a field of a Connect schema, given as its JSON.

    A logical type that is not known, a struct, and whatever is no schema give a string: the value's text, or
    its JSON text where it is none.
    """
    base, name = schema.get("type"), schema.get("name")
    if not isinstance(base, str):
        return _ANYTHING
    if base == "array" and (name is None or name in _VECTORS):
        return _list(schema)
    if base == "map" and name is None:
        return _map(schema)
    if name is None:
        return _PRIMITIVES.get(base, _ANYTHING)
    if name == _DECIMAL and base == "bytes":
        return _decimal(schema)
    return _LOGICAL.get((str(name), base), _ANYTHING)


def _list(schema: Mapping[str, Any]) -> Typed:
    element = typed(_member(schema, "items"))
    return Typed(ListType(element.kind), partial(values.to_list, convert=element.convert))


def _map(schema: Mapping[str, Any]) -> Typed:
    key, value = typed(_member(schema, "keys")), typed(_member(schema, "values"))
    return Typed(
        MapType(key.kind, value.kind),
        partial(values.to_map, convert_key=key.convert, convert_value=value.convert),
    )


def _decimal(schema: Mapping[str, Any]) -> Typed:
    parameters = _member(schema, "parameters")
    scale = _integer(parameters.get("scale"))
    if scale is None:
        return _ANYTHING
    named = _integer(parameters.get("connect.decimal.precision"))
    # Oracle has scales below zero, and above the precision.
    stored_scale = max(scale, 0)
    precision = DECIMAL_PRECISION_MAX if named is None else max(named - min(scale, 0), stored_scale, 1)
    if precision > DECIMAL_PRECISION_MAX or stored_scale > DECIMAL_PRECISION_MAX:
        return Typed("string", partial(values.to_decimal_text, scale=scale))
    return Typed(
        decimal_type(precision, stored_scale),
        values.decimal_of(scale, precision, stored_scale),
    )


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    member = schema.get(name)
    return member if isinstance(member, dict) else {}


def _integer(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None
