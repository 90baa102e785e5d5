"""When something happened: the spellings of time that log records use, to microseconds since 1970-01-01T00:00Z.

RFC 3339 with 0 to 9 digits of a second (a blank for the `T`, a comma for the point and a missing zone, taken as UTC, are let pass), and
seconds, milliseconds, microseconds or nanoseconds since the epoch, told apart by their size.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))? ?(Z|z|[+-]\d\d(?::?\d\d)?)?")
_EPOCH = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Exponent of a second's unit by the number's size: the year 5138 in one unit is 1973 in the next.
_UNITS = ((11, 6), (14, 3), (17, 0), (20, -3))


class Instant(NamedTuple):
    """Microseconds since the epoch; `exact` is False where the text says more than microseconds can hold."""

    us: int
    exact: bool


def parse_instant(text: str) -> Instant | None:
    """Reads a moment, or None where the text is none: RFC 3339, or a number of seconds, ms, us or ns since the epoch."""
    if match := _ISO.fullmatch(text):
        return _from_iso(*match.groups(default=""))
    if _EPOCH.fullmatch(text):
        return _from_epoch(text)
    return None


def _from_iso(date: str, time: str, fraction: str, zone: str) -> Instant | None:
    try:
        moment = datetime.fromisoformat(f"{date}T{time}{zone.upper() or 'Z'}")
        us = (moment - _START) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
    return Instant(us + int(fraction[:6].ljust(6, "0") or 0), not fraction[6:].strip("0"))


def _from_epoch(text: str) -> Instant | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    for digits, exponent in _UNITS:
        if number.adjusted() < digits:
            scaled = number.scaleb(exponent)
            us = int(scaled.to_integral_value(rounding="ROUND_FLOOR"))
            return Instant(us, us == scaled)
    return None


def instant_text(us: int) -> str:
    """RFC 3339 with microseconds, for messages; the number itself where no calendar has the date."""
    try:
        return (_START + timedelta(microseconds=us)).isoformat()
    except OverflowError:
        return f"{us} us"
