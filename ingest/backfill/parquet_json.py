"""Values of Parquet as JSON has them."""

import base64
import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import orjson


def json_value(value: Any) -> Any:
    """A value as JSON has it; numbers keep their digits, also those that JSON does not know."""
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else orjson.Fragment("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
        )
    if isinstance(value, Mapping):
        return {name: json_value(one) for name, one in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and all(
            isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in value
        )
        return (
            {name: json_value(one) for name, one in value} if is_map else [json_value(one) for one in value]
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return orjson.Fragment(str(value))
    return value


def json_default(value: Any) -> Any:
    """What orjson does not know."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)
