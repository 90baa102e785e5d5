"""Times as Elasticsearch's requests write them: numbers since 1970, dates of any precision, `now`, and math:
`now-1d/d`, `2026-03-01||+1M/M`. Each is a period, as a bound of a range reaches over all of it or none."""

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from query.elastic.elastic_error import ElasticError, malformed
from query.model.instant import EARLIEST, LATEST, Period, parse_period
from query.model.table_view import EPOCH

_STEP = re.compile(r"(?P<sign>[+-])(?P<count>\d{1,6})(?P<unit>[yMwdhHms])|/(?P<round>[yMwdhHms])")
_MATH = re.compile(r"([+-]\d{1,6}[yMwdhHms]|/[yMwdhHms])*")
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?")
_HAS_ZONE = re.compile(r"([Zz]|T.*[+-]\d\d:?\d\d)$")
_WHOLE = re.compile(r"-?\d{5,19}")
_US, _MS = timedelta(microseconds=1), timedelta(milliseconds=1)
_UNITS = {"w": timedelta(weeks=1), "d": timedelta(days=1), "h": timedelta(hours=1), "H": timedelta(hours=1)}
_UNITS |= {"m": timedelta(minutes=1), "s": timedelta(seconds=1)}


def zone_of(name: Any) -> tzinfo:
    """A time zone by its IANA name or its distance from UTC. Raises ElasticError."""
    text = str(name)
    if text.upper() in ("Z", "UTC"):
        return UTC
    if found := _OFFSET.fullmatch(text):
        distance = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
        if distance < timedelta(hours=24):
            return timezone(-distance if found["sign"] == "-" else distance)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ElasticError(
            f"there is no time zone [{text[:60]}]; write it as Europe/Berlin, +02:00 or UTC"
        ) from None


def period_of(value: Any, now: datetime, zone: tzinfo = UTC, form: str = "") -> Period:
    """The time that a request means, UTC. `form`: how it is written, where it says so. Raises
    ElasticError."""
    try:
        found = _period(value, now, zone, form)
    except (OverflowError, ValueError):
        found = None
    if found is None:
        raise malformed(
            f"failed to parse date [{str(value)[:60]}]; write it as 2026-03-04T10:00:00Z or now-1h"
        )
    return Period(*(min(max(each, EARLIEST), LATEST) for each in (found.start, found.end)))


def _period(value: Any, now: datetime, zone: tzinfo, form: str) -> Period | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str) or _WHOLE.fullmatch(value):
        step = timedelta(seconds=1) if "epoch_second" in form.split("||") else _MS
        start = EPOCH + (value if isinstance(value, float) else int(value)) * step
        return Period(start, start + step)
    if value.startswith("now"):
        return _calculated(Period(now, now + _US), value[3:], zone)
    written, bars, math = value.partition("||")
    at = _written(written, zone)
    return at if at is None or not bars else _calculated(at, math, zone)


def _written(text: str, zone: tzinfo) -> Period | None:
    """A date without math; one without a zone is of the request's."""
    if re.fullmatch(r"\d{4}", text):
        year = int(text)
        bounds = (datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC))
        found: Period | None = Period(*bounds)
    else:
        found = parse_period(text)
    if found is None or zone is UTC or _HAS_ZONE.search(text):
        return found
    start, end = (each.replace(tzinfo=zone).astimezone(UTC) for each in (found.start, found.end))
    return Period(start, end)


def _calculated(at: Period, math: str, zone: tzinfo) -> Period | None:
    if not _MATH.fullmatch(math):
        return None
    start, end = (each.astimezone(zone).replace(tzinfo=None) for each in (at.start, at.end))
    for step in _STEP.finditer(math):
        if unit := step["round"]:
            start = floor_to(start, unit)
            end = added(start, 1, unit)
            continue
        count = int(step["count"]) * (-1 if step["sign"] == "-" else 1)
        start, end = added(start, count, step["unit"]), added(end, count, step["unit"])
    return Period(*(each.replace(tzinfo=zone).astimezone(UTC) for each in (start, end)))


def floor_to(at: datetime, unit: str) -> datetime:
    """The beginning of the unit (`y`, `M`, `w`, `d`, `h`, `m`, `s`) that a local time is in; weeks begin on
    Mondays."""
    if unit == "w":
        return floor_to(at - timedelta(days=at.weekday()), "d")
    rank = "smhdMy".index("h" if unit == "H" else unit)
    begins = at.replace(
        microsecond=0, second=0 if rank > 0 else at.second, minute=0 if rank > 1 else at.minute
    )
    begins = begins.replace(hour=0) if rank > 2 else begins
    begins = begins.replace(day=1) if rank > 3 else begins
    return begins.replace(month=1) if rank > 4 else begins


def added(at: datetime, count: int, unit: str) -> datetime:
    """A local time so many units later; the last of a month stays one."""
    if unit not in "yM":
        return at + count * _UNITS[unit]
    months = at.year * 12 + at.month - 1 + count * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    return at.replace(year=year, month=month + 1, day=min(at.day, monthrange(year, month + 1)[1]))


def to_us_text(at: datetime) -> str:
    """A time as the search language reads it, exact to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
