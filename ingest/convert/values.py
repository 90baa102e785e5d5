"""One decoded value to what its column stores, exactly, or the reason why it cannot be."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from ingest.decode.decoder import is_text, json_text
from ingest.decode.event_time import parse_instant
from lake.log_schema import ValueReason

_LONG = 1 << 63
_INT = 1 << 31


def as_text(value: Any) -> str:
    """What a string column holds: text as it is, anything else as its JSON text."""
    return str(value) if isinstance(value, str) else json_text(value)


def to_column(kind: Any, value: Any) -> Any | ValueReason:
    """Converts a decoded value (str, Json or Pairs; never None) to a column's Iceberg type, without rounding
    or truncation."""
    if kind == "string":
        text = as_text(value)
        return text if is_text(text) else ValueReason.INVALID_TEXT
    convert = _CONVERTERS.get(kind) if isinstance(kind, str) else None
    return convert(value) if convert else ValueReason.WRONG_TYPE


def _integer(limit: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> int | ValueReason:
        number = _decimal(value)
        if number is None or number != number.to_integral_value():
            return ValueReason.WRONG_TYPE
        return int(number) if -limit <= number < limit else ValueReason.OUT_OF_RANGE

    return convert


def _double(value: Any) -> float | ValueReason:
    number = _decimal(value)
    if number is None:
        return ValueReason.WRONG_TYPE
    double = float(number)
    return ValueReason.OUT_OF_RANGE if abs(double) == float("inf") or (not double and number) else double


def _boolean(value: Any) -> bool | ValueReason:
    return (
        {"true": True, "false": False}.get(value, ValueReason.WRONG_TYPE)
        if isinstance(value, str)
        else ValueReason.WRONG_TYPE
    )


def _timestamptz(value: Any) -> int | ValueReason:
    instant = parse_instant(value) if isinstance(value, str) else None
    if instant is None:
        return ValueReason.WRONG_TYPE
    return instant.us if instant.exact else ValueReason.OUT_OF_RANGE


def _date(value: Any) -> date | ValueReason:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return ValueReason.WRONG_TYPE


def _decimal(value: Any) -> Decimal | None:
    """A finite number of a size that arithmetic can stand, from a JSON number or its text."""
    if not isinstance(value, str) or "_" in value or value.strip() != value:
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _integer(_INT),
    "long": _integer(_LONG),
    "double": _double,
    "boolean": _boolean,
    "timestamptz": _timestamptz,
    "date": _date,
}
