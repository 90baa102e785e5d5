"""When something happened: the spellings of time that log records use, to microseconds since
1970-01-01T00:00Z.

RFC 3339 with 0 to 9 digits of a second (a blank for the `T` and a comma for the point are let pass; a missing
zone is that of the topic); seconds, milliseconds, microseconds or nanoseconds since the epoch, told apart by
their size; the time of an access log (`17/May/2015:10:05:03 +0000`); and that of syslog (RFC 3164, `Nov 20
21:14:19`), which knows no year: the one nearest to the Kafka timestamp.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from lake.short_texts import kept_of_short_texts

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d(?::\d\d(?::\d\d)?)?)(?:[.,](\d{1,9}))? ?(Z|z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_EPOCH = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_SYSLOG = re.compile(rf"([A-Z][a-z]{{2}} [ \d]\d) ({_CLOCK})", re.ASCII)
_CLF = re.compile(rf"(\d\d/[A-Z][a-z]{{2}}/\d{{4}}):({_CLOCK}) ([+-](?:[01]\d|2[0-3]))([0-5]\d)", re.ASCII)
_MONTHS = {
    name: at
    for at, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
_START = datetime(1970, 1, 1, tzinfo=UTC)
_START_DAY = _START.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
# Exponent of a second's unit by the number's size: the year 5138 in one unit is 1973 in the next.
_UNITS = ((11, 6), (14, 3), (17, 0), (20, -3))
# More digits than `_EPOCH` lets pass.
_EXACT = Context(prec=64)


class Instant(NamedTuple):
    """Microseconds since the epoch; `exact` is False where the text says more than microseconds can hold."""

    us: int
    exact: bool


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """A time zone by its IANA name. Raises KeyError (ZoneInfoNotFoundError) or ValueError where there is
    none."""
    return UTC if name == "UTC" else ZoneInfo(name)


def parse_instant(text: str, near_us: int | None = None, local: tzinfo = UTC) -> Instant | None:
    """Reads a moment, or None where the text is none.

    `near_us`: the Kafka timestamp, by which a time without a year gets one; without it such a time is none.
    `local`: the zone of times that name none.
    """
    if match := _ISO.fullmatch(text):
        date, time, fraction, offset = match.groups(default="")
        return _from_iso(date, time, fraction, offset, local)
    if _EPOCH.fullmatch(text):
        return _from_epoch(text)
    if (iso := clf_to_iso(text)) is not None:
        return parse_instant(iso)
    if near_us is not None and (iso := syslog_to_iso(text, near_us, local)) is not None:
        return parse_instant(iso)
    return None


def _from_iso(date: str, time: str, fraction: str, offset: str, local: tzinfo) -> Instant | None:
    if fraction and time.count(":") < 2:
        return None
    try:
        moment = datetime.fromisoformat(f"{date}T{time}{offset.upper()}")
        us = ((moment if offset else moment.replace(tzinfo=local)) - _START) // _MICROSECOND
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
            scaled = number.scaleb(exponent, _EXACT)
            us = int(scaled.to_integral_value(rounding="ROUND_FLOOR"))
            return Instant(us, us == scaled)
    return None


@kept_of_short_texts(65_536)
def clf_to_iso(text: str) -> str | None:
    """The time of an access log (Common Log Format) as RFC 3339; None where the text is none, or no calendar
    has it."""
    match = _CLF.fullmatch(text)
    date = None if match is None else _clf_date(match[1])
    if match is None or date is None:
        return None
    iso = f"{date}T{match[2]}{match[3]}:{match[4]}"
    # Only in the first and the last year can a zone lead out of the calendar.
    return iso if date[:4] not in ("0001", "9999") or parse_instant(iso) else None


@lru_cache(maxsize=4_096)
def _clf_date(text: str) -> str | None:
    """`17/May/2015` as `2015-05-17`; None where no calendar has it."""
    try:
        return date(int(text[7:]), _MONTHS[text[3:6]], int(text[:2])).isoformat()
    except (KeyError, ValueError):
        return None


def syslog_to_iso(text: str, near_us: int, local: tzinfo) -> str | None:
    """A time of RFC 3164 as RFC 3339 in UTC, in the year that brings it nearest to `near_us`; None where the
    text is none, or no year near has it."""
    at_dawn, at_night = _on_day(text, near_us // _DAY_US, local)
    return at_dawn if at_dawn is at_night else _nearest(text, near_us, local)


@kept_of_short_texts(65_536, lambda arguments: len(arguments[0]))
def _on_day(text: str, day: int, local: tzinfo) -> tuple[str | None, str | None]:
    """What a text means to a day's first and last microsecond, which is nearly always the same."""
    if (
        local is UTC
        and (match := _SYSLOG.fullmatch(text))
        and (known := _utc_date(match[1], day)) is not None
    ):
        iso = f"{known}T{match[2]}+00:00"
        return iso, iso
    first, last = (_nearest(text, near_us, local) for near_us in (day * _DAY_US, (day + 1) * _DAY_US - 1))
    return first, first if first == last else last


@lru_cache(maxsize=4_096)
def _utc_date(text: str, day: int) -> str | None:
    """The date of `Nov 20` in the year that is nearest to a day, whatever the time; None where the time would
    matter, or nothing near has it."""
    try:
        year = (_START + timedelta(days=day)).year
    except OverflowError:
        return None
    distances = []
    for near in (year - 1, year, year + 1):
        try:
            found = date(near, _MONTHS[text[:3]], int(text[4:]))
        except (KeyError, ValueError):
            continue
        distances.append((abs(found.toordinal() - _START_DAY - day), found.isoformat()))
    distances.sort()
    return (
        distances[0][1]
        if distances and (len(distances) == 1 or distances[1][0] - distances[0][0] > 2)
        else None
    )


def _nearest(text: str, near_us: int, local: tzinfo) -> str | None:
    try:
        year = (_START + near_us * _MICROSECOND).year
    except OverflowError:
        return None
    candidates = _in_years(text, year, local)
    return min(candidates, key=lambda candidate: abs(candidate[0] - near_us))[1] if candidates else None


def _in_years(text: str, year: int, local: tzinfo) -> tuple[tuple[int, str], ...]:
    """The moments that a text without a year means in the years around one, as microseconds and as RFC
    3339."""
    match = _SYSLOG.fullmatch(text)
    if match is None or match[1][:3] not in _MONTHS:
        return ()
    found = []
    for near in (year - 1, year, year + 1):
        try:
            day = f"{near:04}-{_MONTHS[match[1][:3]]:02}-{int(match[1][4:]):02}"
            moment = datetime.fromisoformat(f"{day}T{match[2]}").replace(tzinfo=local).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        found.append(((moment - _START) // _MICROSECOND, moment.isoformat()))
    return tuple(found)


def instant_text(us: int) -> str:
    """RFC 3339 with microseconds, for messages; the number itself where no calendar has the date."""
    try:
        return (_START + timedelta(microseconds=us)).isoformat()
    except OverflowError:
        return f"{us} us"
