"""Messages of Protobuf in the words of Kafka Connect: their types, and their values as plain ones."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ingest.schema_registry.connect_form import (
    ANYTHING,
    ISO_DATE,
    ISO_TIME,
    VARIABLE_DECIMAL,
    ZONED_TIMESTAMP,
    Schema,
    decimal,
    struct,
)

_UNSIGNED_DIGITS = 20
_SCALARS: Mapping[int, Schema] = {
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "int32"},
    FieldDescriptor.CPPTYPE_INT64: {"type": "int64"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: decimal(0, _UNSIGNED_DIGITS),
    FieldDescriptor.CPPTYPE_FLOAT: {"type": "float"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "double"},
    FieldDescriptor.CPPTYPE_ENUM: {"type": "string"},
}


class _Known(NamedTuple):
    """A message type that stands for one value."""

    schema: Schema
    plain: Callable[[Any], Any]


def _moment(message: Any) -> Any:
    try:
        return message.ToJsonString()
    except ValueError:  # no calendar has it
        return str(message.seconds)


def _date(message: Any) -> str:
    return f"{message.year:04}-{message.month:02}-{message.day:02}"


def _time(message: Any) -> str:
    return f"{message.hours:02}:{message.minutes:02}:{message.seconds:02}.{message.nanos:09}"


def _value(message: Any) -> Any:
    return message.value


def _of_json(message: Any) -> Any:
    return json_format.MessageToDict(message)


_WRAPPED: Mapping[str, Schema] = {
    "BoolValue": {"type": "boolean"},
    "Int32Value": {"type": "int32"},
    "Int64Value": {"type": "int64"},
    "UInt32Value": {"type": "int64"},
    "UInt64Value": decimal(0, _UNSIGNED_DIGITS),
    "FloatValue": {"type": "float"},
    "DoubleValue": {"type": "double"},
    "StringValue": {"type": "string"},
    "BytesValue": {"type": "bytes"},
}
_FREE_JSON = ("Struct", "Value", "ListValue")
_KNOWN: Mapping[str, _Known] = {
    "google.protobuf.Timestamp": _Known({"type": "string", "name": ZONED_TIMESTAMP}, _moment),
    "google.protobuf.Duration": _Known({"type": "string"}, _moment),
    "google.type.Date": _Known({"type": "string", "name": ISO_DATE}, _date),
    "google.type.TimeOfDay": _Known({"type": "string", "name": ISO_TIME}, _time),
    "confluent.type.Decimal": _Known(
        {"type": "struct", "name": VARIABLE_DECIMAL},
        lambda message: {"scale": message.scale, "value": message.value},
    ),
    **{f"google.protobuf.{name}": _Known(schema, _value) for name, schema in _WRAPPED.items()},
    **{
        f"google.protobuf.{name}": _Known(dict(ANYTHING), _of_json)
        for name in ("Struct", "Value", "ListValue")
    },
}


def to_connect(message_type: Descriptor) -> Schema:
    """The schema of Connect for the messages of a type."""
    return _message_schema(message_type, frozenset())


def _message_schema(message_type: Descriptor, inside: frozenset[str]) -> Schema:
    name = message_type.full_name
    if (known := _KNOWN.get(name)) is not None:
        return dict(known.schema)
    if name in inside:
        return dict(ANYTHING)
    fields = [{**_field_schema(field, inside | {name}), "field": field.name} for field in message_type.fields]
    return struct(fields, name)


def _field_schema(field: FieldDescriptor, inside: frozenset[str]) -> Schema:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return {"type": "map", "keys": _single_schema(key, inside), "values": _single_schema(value, inside)}
    single = _single_schema(field, inside)
    return {"type": "array", "items": single} if field.is_repeated else single


def _single_schema(field: FieldDescriptor, inside: frozenset[str]) -> Schema:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message_schema(field.message_type, inside)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return {"type": "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "string"}
    return dict(_SCALARS[field.cpp_type])


def plain(message: Message) -> Any:
    """The values of a message by the names of its fields; None for one that is not there, where the field
    tells that from its default."""
    if (known := _KNOWN.get(message.DESCRIPTOR.full_name)) is not None:
        return known.plain(message)
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        # Keys that are no text come as pairs, as Connect writes them.
        return [[key, _plain_single(item, of)] for key, item in value.items()]
    if field.is_repeated:
        return [_plain_single(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain_single(value, field)


def _plain_single(value: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return plain(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _is_map(field: FieldDescriptor) -> bool:
    return bool(
        field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry
    )
