"""Rows of a Parquet file as messages of changes: JSON with the schema part of Kafka Connect's converter, so
that columns have the types that the file names."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import IO, Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.backfill.parquet_json import json_default, json_value
from ingest.changes.column_type import DECIMAL_PRECISION_MAX
from ingest.keys.key_hash import plain
from ingest.schema_registry.connect_form import (
    DATE,
    INSTANT_MS,
    INSTANT_NS,
    INSTANT_US,
    LOCAL_MICRO_TIMESTAMP,
    LOCAL_NANO_TIMESTAMP,
    LOCAL_TIMESTAMP,
    MICRO_TIME,
    UUID_BYTES,
    Schema,
    decimal,
    message_text,
    payload_text,
    schema_text,
    struct,
)

PARQUET_ROWS = 4_096
_UINT64_DIGITS = 20
_TIMESTAMPS = {
    ("s", False): LOCAL_TIMESTAMP,
    ("ms", False): LOCAL_TIMESTAMP,
    ("us", False): LOCAL_MICRO_TIMESTAMP,
    ("ns", False): LOCAL_NANO_TIMESTAMP,
    ("s", True): INSTANT_MS,
    ("ms", True): INSTANT_MS,
    ("us", True): INSTANT_US,
    ("ns", True): INSTANT_NS,
}


class _Column(NamedTuple):
    """The schema of a column, and its values as the JSON of that schema."""

    schema: Schema
    values: Callable[[pa.Array], list[Any]]


def read_rows(stored: IO[bytes]) -> Iterator[bytes]:
    """All rows. Raises ArrowInvalid where two columns have the same name, and what reading Parquet raises."""
    parquet = pq.ParquetFile(pa.PythonFile(stored, mode="r"), pre_buffer=False)
    arrow = parquet.schema_arrow
    if len(set(arrow.names)) < len(arrow.names):
        raise pa.ArrowInvalid("two columns have the same name")
    columns = [_column(field.type) for field in arrow]
    fields = [{**column.schema, "field": name} for column, name in zip(columns, arrow.names, strict=True)]
    schema = schema_text(struct(fields))
    has_floats = any(column.schema.get("type") in ("float", "double", "array") for column in columns)
    for batch in parquet.iter_batches(batch_size=PARQUET_ROWS):
        values = [column.values(batch.column(at)) for at, column in enumerate(columns)]
        for row in zip(*values, strict=True):
            payload = dict(zip(arrow.names, row, strict=True))
            yield message_text(schema, payload_text(payload, has_floats=has_floats))


def _column(kind: pa.DataType) -> _Column:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        storage = _column(kind.storage_type)
        schema = {"type": "bytes", "name": UUID_BYTES} if _is_uuid(kind) else storage.schema
        return _Column(schema, lambda column: storage.values(column.storage))
    if types.is_dictionary(kind):
        value = _column(kind.value_type)
        return _Column(value.schema, lambda column: value.values(column.dictionary_decode()))
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return _moment(kind)
    if types.is_decimal(kind) and kind.precision <= DECIMAL_PRECISION_MAX:
        return _Column(decimal(kind.scale, kind.precision), lambda column: _unscaled(column, kind.scale))
    if types.is_uint64(kind):
        return _Column(decimal(0, _UINT64_DIGITS), lambda column: _unscaled(column, 0))
    if types.is_list(kind) and (element := _simple(kind.value_type)) is not None:
        return _Column({"type": "array", "items": {"type": element}}, _listed)
    name = _simple(kind)
    return _Column({"type": "string"}, _texts) if name is None else _Column({"type": name}, _listed)


def _is_uuid(kind: pa.BaseExtensionType) -> bool:
    return bool(kind.extension_name == "arrow.uuid")


def _moment(kind: pa.DataType) -> _Column:
    """A date, a time of day, a moment: a number."""
    if pa.types.is_date(kind):
        schema = {"type": "int32", "name": DATE}
        return _Column(schema, lambda column: column.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if pa.types.is_time(kind):
        schema = {"type": "int64", "name": MICRO_TIME}
        return _Column(schema, lambda column: _numbers(column, pa.time64("us")))
    unit = pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz)
    schema = {"type": "int64", "name": _TIMESTAMPS[kind.unit, kind.tz is not None]}
    return _Column(schema, lambda column: _numbers(column, unit))


def _simple(kind: pa.DataType) -> str | None:
    """The name of a type whose values JSON has as they are; None for others."""
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) and not types.is_uint64(kind):
        return "int64" if types.is_int64(kind) or types.is_uint32(kind) else "int32"
    if types.is_floating(kind):
        return "double" if types.is_float64(kind) else "float"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return "bytes" if is_bytes or types.is_fixed_size_binary(kind) else None


def _listed(column: pa.Array) -> list[Any]:
    values: list[Any] = plain(column).to_pylist()
    return values


def _numbers(column: pa.Array, unit: pa.DataType) -> list[Any]:
    numbers: list[Any] = column.cast(unit, safe=False).cast(pa.int64()).to_pylist()
    return numbers


def _unscaled(column: pa.Array, scale: int) -> list[bytes | None]:
    return [None if value is None else _digits(value, scale) for value in column.to_pylist()]


def _digits(value: Decimal | int, scale: int) -> bytes:
    """The digits without their point as a two's complement, the most significant byte first."""
    number = value if isinstance(value, int) else int(value.scaleb(scale))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _texts(column: pa.Array) -> list[str | None]:
    """Values of a type that no column of ours has, as JSON."""
    return [
        None if value is None else orjson.dumps(json_value(value), default=json_default).decode()
        for value in column.to_pylist()
    ]
