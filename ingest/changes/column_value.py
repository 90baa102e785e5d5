"""Values of Kafka Connect's JSON to what pyarrow takes, exactly, or a `Misfit`.

A value is what a JSON decoder gives: str, int, bool, list, dict, and `Json` for a number with a fraction or
an exponent, as it is spelled. Dates become days, times and timestamps microseconds, uuids bytes.
"""

import json
import math
import re
import uuid
from binascii import a2b_base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple

from ingest.decode.event_time import parse_instant
from ingest.decode.formats.json_object import Json, is_text
from lake.log_schema import ValueReason


class Misfit(NamedTuple):
    """A value that does not fit its type. `nearest`: what the column holds instead, where that says nothing
    wrong (a time cut to microseconds); else NULL."""

    reason: ValueReason
    nearest: Any = None


Convert = Callable[[Any], Any]  # a value to what pyarrow takes, or a `Misfit`

_WRONG_TYPE = Misfit(ValueReason.WRONG_TYPE)
_OUT_OF_RANGE = Misfit(ValueReason.OUT_OF_RANGE)
_INVALID_TEXT = Misfit(ValueReason.INVALID_TEXT)

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_FLOAT_MAX = 3.4028234663852886e38
DAY_US = 86_400_000_000
# The years 1 to 9999, which the calendars of all engines have. Infinite dates of PostgreSQL lie outside.
_EPOCH_DAY = date(1970, 1, 1).toordinal()
DAY_FIRST, DAY_LAST = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
US_FIRST, US_LAST = DAY_FIRST * DAY_US, (DAY_LAST + 1) * DAY_US - 1
# Neither Connect's converter nor Debezium writes these numbers as JSON numbers.
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INFINITE_TIMES = frozenset(("infinity", "-infinity"))
# A moment as most connectors write it.
_UTC_MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_START, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
# ISO 8601 puts a sign before a year that has not four digits, or lies before the year 0.
_YEAR_BEYOND = re.compile(r"[+-]\d{4,}-", re.ASCII)
# PostgreSQL's numeric has at most 131,072 digits before the point and 16,383 after it.
_DECIMAL_BYTES_MAX = 65_536
_SCALE_MAX = 131_072
_EXACT = Context(prec=400_000)


def to_boolean(value: Any) -> Any:
    """A boolean."""
    return value if value is True or value is False else _WRONG_TYPE


def to_int(value: Any) -> Any:
    """An integer of 32 bits."""
    if type(value) is not int:
        return _WRONG_TYPE
    return value if -INT_MAX - 1 <= value <= INT_MAX else _OUT_OF_RANGE


def to_long(value: Any) -> Any:
    """An integer of 64 bits."""
    if type(value) is not int:
        return _WRONG_TYPE
    return value if -LONG_MAX - 1 <= value <= LONG_MAX else _OUT_OF_RANGE


def to_double(value: Any) -> Any:
    """A number of 64 bits; NaN and the infinities are such numbers."""
    if isinstance(value, str):
        return _float_of_text(value)
    if type(value) is not int:
        return _WRONG_TYPE
    try:
        number = float(value)
    except OverflowError:
        return _OUT_OF_RANGE
    return number if int(number) == value else _OUT_OF_RANGE


def _float_of_text(value: str) -> Any:
    if (special := _SPECIAL.get(value)) is not None:
        return special
    if type(value) is not Json:
        return _WRONG_TYPE
    number = float(value)
    return _OUT_OF_RANGE if math.isinf(number) else number


def to_float(value: Any) -> Any:
    """A number of 32 bits, spelled with as many digits as tell it from its neighbours."""
    number = to_double(value)
    if type(number) is float and math.isfinite(number) and abs(number) > _FLOAT_MAX:
        return _OUT_OF_RANGE
    return number


def to_string(value: Any) -> Any:
    """Text."""
    if type(value) is not str:
        return _WRONG_TYPE
    return value if value.isascii() or is_text(value) else _INVALID_TEXT


def to_json_text(value: Any) -> Any:
    """Text as it is, anything else as its JSON text."""
    text = value_text(value)
    return text if text.isascii() or is_text(text) else _INVALID_TEXT


def to_binary(value: Any) -> Any:
    """Bytes, from base64."""
    if type(value) is not str:
        return _WRONG_TYPE
    try:
        return a2b_base64(value, strict_mode=True)
    except ValueError:
        return _WRONG_TYPE


def to_uuid(value: Any) -> Any:
    """The 16 bytes of a uuid, from its text."""
    if type(value) is not str or len(value) != 36:
        return _WRONG_TYPE
    try:
        return uuid.UUID(value).bytes
    except ValueError:
        return _WRONG_TYPE


def to_uuid_of_bytes(value: Any) -> Any:
    """The same from base64 of the 16 bytes."""
    stored = to_binary(value)
    return stored if isinstance(stored, bytes) and len(stored) == 16 else _WRONG_TYPE


def to_date(value: Any) -> Any:
    """Days since 1970-01-01."""
    if type(value) is not int:
        return _WRONG_TYPE
    return value if DAY_FIRST <= value <= DAY_LAST else _OUT_OF_RANGE


def to_time(value: Any, *, numerator: int = 1, denominator: int = 1) -> Any:
    """Microseconds of a day, from a number of `numerator / denominator` microseconds each."""
    if type(value) is not int:
        return _WRONG_TYPE
    us, rest = divmod(value * numerator, denominator)
    return _in_range(us, not rest, 0, DAY_US - 1)


def to_timestamp(value: Any, *, numerator: int = 1, denominator: int = 1) -> Any:
    """Microseconds since 1970-01-01T00:00, from a number of `numerator / denominator` microseconds each."""
    if type(value) is not int:
        return _WRONG_TYPE
    us, rest = divmod(value * numerator, denominator)
    return _in_range(us, not rest, US_FIRST, US_LAST)


def _in_range(us: int, is_exact: bool, first: int, last: int) -> Any:
    if not first <= us <= last:
        return _OUT_OF_RANGE
    return us if is_exact else Misfit(ValueReason.OUT_OF_RANGE, us)


def to_zoned_timestamp(value: Any) -> Any:
    """Microseconds since 1970-01-01T00:00Z, from ISO 8601."""
    if type(value) is not str:
        return _WRONG_TYPE
    if _UTC_MICROSECONDS.fullmatch(value):
        try:
            return (datetime.fromisoformat(value) - _START) // _MICROSECOND
        except ValueError:
            return _any_zoned(value)
    return _any_zoned(value)


def _any_zoned(value: str) -> Any:
    if value in _INFINITE_TIMES or _YEAR_BEYOND.match(value):
        return _OUT_OF_RANGE
    instant = parse_instant(value) if value[4:5] == "-" else None
    if instant is None:
        return _WRONG_TYPE
    return _in_range(instant.us, instant.exact, US_FIRST, US_LAST)


def to_iso_date(value: Any) -> Any:
    """Days since 1970-01-01, from ISO 8601 with or without a `Z`."""
    if type(value) is not str:
        return _WRONG_TYPE
    try:
        return date.fromisoformat(value.removesuffix("Z")).toordinal() - _EPOCH_DAY
    except ValueError:
        return _WRONG_TYPE


def to_iso_time(value: Any) -> Any:
    """Microseconds of a day, from ISO 8601 with or without a `Z`."""
    if type(value) is not str:
        return _WRONG_TYPE
    text = value.removesuffix("Z")
    try:
        moment = time.fromisoformat(text)
    except ValueError:
        return _WRONG_TYPE
    if moment.tzinfo is not None:
        return _WRONG_TYPE
    us = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond
    return _in_range(us, not text.partition(".")[2][6:].strip("0"), 0, DAY_US - 1)


def decimal_of(scale: int, precision: int, scale_max: int) -> Convert:
    """What makes decimals of at most `precision` digits, `scale_max` of them after the point, of values that
    have `scale` of them there."""
    if scale != scale_max:
        return partial(_to_decimal, scale=scale, precision=precision, scale_max=scale_max)
    beyond = 10**precision

    def convert(value: Any) -> Any:
        if type(value) is str and value:  # as nearly all are; it has no other digits after the point
            try:
                unscaled = int.from_bytes(a2b_base64(value, strict_mode=True), "big", signed=True)
            except ValueError:
                return _WRONG_TYPE
            return Decimal(unscaled).scaleb(-scale, _EXACT) if -beyond < unscaled < beyond else _OUT_OF_RANGE
        return _to_decimal(value, scale=scale, precision=precision, scale_max=scale_max)

    return convert


def _to_decimal(value: Any, *, scale: int, precision: int, scale_max: int) -> Any:
    number = _decimal(value, scale)
    if not isinstance(number, Decimal):
        return number
    scaled = number.scaleb(scale_max, _EXACT)
    # `abs` would round to the digits of the default context.
    if scaled != scaled.to_integral_value() or scaled.copy_abs() >= 10**precision:
        return _OUT_OF_RANGE
    return number


def to_decimal_text(value: Any, *, scale: int) -> Any:
    """A decimal that no column holds, as its digits."""
    number = _decimal(value, scale)
    return format(number, "f") if isinstance(number, Decimal) else number


def to_variable_decimal(value: Any) -> Any:
    """A decimal that brings its scale along, as its digits."""
    if not isinstance(value, dict):
        return _WRONG_TYPE
    scale = value.get("scale")
    return to_decimal_text(value.get("value"), scale=scale) if type(scale) is int else _WRONG_TYPE


def _decimal(value: Any, scale: int) -> Any:
    """A decimal, from base64 of the two's complement of its digits; or, as a converter may be set to, from a
    JSON number."""
    if abs(scale) > _SCALE_MAX:
        return _OUT_OF_RANGE
    if type(value) is str:
        unscaled = to_binary(value)
        if not isinstance(unscaled, bytes) or not unscaled:
            return _WRONG_TYPE
        if len(unscaled) > _DECIMAL_BYTES_MAX:
            return _OUT_OF_RANGE
        return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)
    if type(value) is int:
        return Decimal(value)
    return _decimal_of_number(value) if type(value) is Json else _WRONG_TYPE


def _decimal_of_number(value: Json) -> Any:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return _WRONG_TYPE
    return number if number.is_finite() and abs(number.adjusted()) <= _SCALE_MAX else _OUT_OF_RANGE


def to_list(value: Any, *, convert: Convert) -> Any:
    """A list, each of whose items fits; an item may be NULL."""
    if type(value) is not list:
        return _WRONG_TYPE
    items = []
    for item in value:
        stored = None if item is None else convert(item)
        if type(stored) is Misfit:
            return Misfit(stored.reason)
        items.append(stored)
    return items


def to_map(value: Any, *, convert_key: Convert, convert_value: Convert) -> Any:
    """A map as a list of pairs, from an object, or from a list of pairs as keys that are no text come."""
    pairs = value.items() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return _WRONG_TYPE
    stored = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] is None:
            return _WRONG_TYPE
        key, item = convert_key(pair[0]), None if pair[1] is None else convert_value(pair[1])
        for part in (key, item):
            if type(part) is Misfit:
                return Misfit(part.reason)
        stored.append((key, item))
    return stored


def value_text(value: Any) -> str:
    """Text as it is, anything else as its JSON text; numbers keep their spelling."""
    return value if isinstance(value, str) else _json_text(value)


def _json_text(value: Any) -> str:
    if isinstance(value, Json):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(key)}:{_json_text(item)}" for key, item in value.items()) + "}"
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or is_text(text) else json.dumps(value)
