"""The form of Kafka Connect's JSON converter: the names of its types, and values as it spells them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from lake.errors import Rejected

Schema = dict[str, Any]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
MICRO_TIME = "io.debezium.time.MicroTime"
LOCAL_TIMESTAMP = "io.debezium.time.Timestamp"
LOCAL_MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"
LOCAL_NANO_TIMESTAMP = "io.debezium.time.NanoTimestamp"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
ISO_DATE = "io.debezium.time.IsoDate"
ISO_TIME = "io.debezium.time.IsoTime"
UUID = "io.debezium.data.Uuid"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
# Numbers since 1970 in UTC, for which Connect and Debezium have no name of their own.
INSTANT_MS, INSTANT_US, INSTANT_NS = "firn.InstantMillis", "firn.InstantMicros", "firn.InstantNanos"
# The 16 bytes of one.
UUID_BYTES = "firn.UuidBytes"

# Of what no type can be told: values become their JSON text.
ANYTHING: Mapping[str, Any] = {"type": "any"}


class Reader(Protocol):
    """Reads the messages of one schema."""

    def read(self, message: bytes) -> bytes | Rejected:
        """The message in the form of Connect; NOT_OF_SCHEMA where its bytes are not of its schema."""


def struct(fields: Iterable[Schema], name: str | None = None) -> Schema:
    """The schema of a row; each field's schema says its name as `field`."""
    return {"type": "struct", "fields": list(fields), **({} if name is None else {"name": name})}


def decimal(scale: int, precision: int) -> Schema:
    """The schema of a decimal."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": DECIMAL, "parameters": parameters}


def schema_text(schema: Mapping[str, Any]) -> bytes:
    """A schema as the bytes by which it is kept."""
    return orjson.dumps(schema)


def message_text(schema: bytes, payload: bytes) -> bytes:
    """A message of both."""
    return b'{"schema":' + schema + b',"payload":' + payload + b"}"


def payload_text(value: Any, *, has_floats: bool) -> bytes:
    """A decoded value as JSON: bytes as base64, NaN and the infinities by name.

    `has_floats`: whether there may be any; to look at each value costs as much as the rest.
    """
    return msgspec.json.encode(_spelled(value) if has_floats else value)


def _spelled(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else _name(value)
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list) else value


def _name(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
