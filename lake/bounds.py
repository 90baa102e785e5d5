"""Bounds of a column in a data file, from Parquet's statistics to Iceberg's single-value encoding (spec,
appendix D), for every type.

A bound may lie beyond the values, never within them: engines skip a file whose bounds say that it cannot hold
what they look for.

    decimal                        statistics are big-endian two's complement, or plain integers: numbers,
                                   compared as numbers; as few bytes as hold them
    time, timestamp (any zone)     µs, also where the file has ms; where it has ns so has the column
    float, double                  NaN is no bound; 0.0 and -0.0 are equal for those who ask and two for those
                                   who compare bounds: lower -0.0, upper 0.0
    string, binary, fixed          cut to 16 characters or bytes; an upper one that was cut is raised at the
                                   last place that can be, or left out
    uuid, boolean, int, long, date as they are
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# Iceberg's default metrics mode is truncate(16).
BOUND_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Encoding:
    """`value` reads a statistic as something that orders as its column does (None: it bounds nothing);
    `lower` and `upper` encode such a value."""

    value: Callable[[Any], Any]
    lower: Callable[[Any], bytes]
    upper: Callable[[Any], bytes | None]


@lru_cache(maxsize=256)
def encoding_of(physical: str, logical: str) -> Encoding | None:
    """By Parquet's physical type and its logical type as JSON; None where such statistics bound no type of
    Iceberg."""
    if '"Decimal"' in logical:
        return _DECIMAL_NUMBERS if physical in ("INT32", "INT64") else _DECIMAL_BYTES
    if '"milliseconds"' in logical:
        return _MILLISECONDS
    if '"isSigned":false' in logical or '"Float16"' in logical or '"Interval"' in logical:
        return None
    return _PLAIN.get(physical)


def _same(value: Any) -> Any:
    return value


def _packed(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(layout).pack


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _real(layout: str) -> Encoding:
    pack = struct.Struct(layout).pack
    return Encoding(_number, lambda value: pack(value or -0.0), lambda value: pack(value or 0.0))


def _unscaled(value: int) -> bytes:
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _from_bytes(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _lower(raw: bytes) -> bytes:
    return raw if len(raw) <= BOUND_CHARACTERS else _truncated(raw)[0]


def _upper(raw: bytes) -> bytes | None:
    """Raised by one where it was cut; None where nothing above it can be written."""
    if len(raw) <= BOUND_CHARACTERS:
        return raw
    cut, is_text = _truncated(raw)
    if cut == raw:
        return cut
    return _raised_text(cut.decode()) if is_text else _raised_bytes(cut)


def _truncated(raw: bytes) -> tuple[bytes, bool]:
    try:
        return raw.decode()[:BOUND_CHARACTERS].encode(), True
    except UnicodeDecodeError:
        return raw[:BOUND_CHARACTERS], False


def _raised_text(text: str) -> bytes | None:
    for at in range(len(text) - 1, -1, -1):
        following = ord(text[at]) + 1
        following = 0xE000 if 0xD800 <= following <= 0xDFFF else following
        if following <= 0x10FFFF:
            return (text[:at] + chr(following)).encode()
    return None


def _raised_bytes(raw: bytes) -> bytes | None:
    for at in range(len(raw) - 1, -1, -1):
        if raw[at] < 0xFF:
            return raw[:at] + bytes([raw[at] + 1])
    return None


_int, _long = _packed("<i"), _packed("<q")
_BYTES = Encoding(bytes, _lower, _upper)
_DECIMAL_NUMBERS = Encoding(_same, _unscaled, _unscaled)
_DECIMAL_BYTES = Encoding(_from_bytes, _unscaled, _unscaled)
_MILLISECONDS = Encoding(lambda value: value * 1000, _long, _long)
_PLAIN = {
    "BOOLEAN": Encoding(bool, _packed("<?"), _packed("<?")),
    "INT32": Encoding(_same, _int, _int),
    "INT64": Encoding(_same, _long, _long),
    "FLOAT": _real("<f"),
    "DOUBLE": _real("<d"),
    "BYTE_ARRAY": _BYTES,
    "FIXED_LEN_BYTE_ARRAY": _BYTES,
}
