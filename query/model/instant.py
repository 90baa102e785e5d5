"""Times as people write them: an instant, a period (a day, an hour), or an offset from now."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from sqlglot import exp

from query.model.problem import refuse

_PERIOD = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)(-(?P<day>\d\d)([T "
    r"](?P<hour>\d\d)(:(?P<minute>\d\d)(:(?P<second>\d\d)([.,](?P<fraction>\d{1,9}))?)?)?)?)?"
    r"(?P<zone>[Zz]|[+-]\d\d:?\d\d)?"
)
_RELATIVE = re.compile(r"now(\s*(?P<sign>[+-])\s*(?P<count>\d{1,6})\s*(?P<unit>[smhdw]))?")
_EPOCH = re.compile(r"-?\d{1,19}")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TIMESTAMP = exp.DataType.build("TIMESTAMPTZ(6)", dialect="trino")
_STEP = timedelta(microseconds=1)
# Partition arithmetic and both engines are safe within these.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """`[start, end)`, UTC; one microsecond long where an instant was written in full."""

    start: datetime
    end: datetime


def parse_period(text: str) -> Period | None:
    """Reads `2026`-`2026-11-21T10:30:00.123456Z` at any precision from the month down; UTC where no zone is
    given. None: it is no time."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        return None
    part = match.groupdict()
    micros = int((part["fraction"] or "0").ljust(6, "0")[:6])
    try:
        year, month, day = (int(part[name] or 1) for name in ("year", "month", "day"))
        hour, minute, second = (int(part[name] or 0) for name in ("hour", "minute", "second"))
        start = datetime(
            year, month, day, hour, minute, second, micros, tzinfo=_zone(part["zone"])
        ).astimezone(UTC)
        return Period(_bounded(start), _bounded(start + _length(part, start)))
    except (ValueError, OverflowError):
        return None


def parse_instant(text: str, now: datetime, *, what: str) -> datetime:
    """Reads a time, `now`, `now-15m` (s, m, h, d, w) or milliseconds since 1970. Raises BadRequestError."""
    written = text.strip()
    if match := _RELATIVE.fullmatch(written):
        delta = timedelta(seconds=int(match["count"] or 0) * _UNIT_S[match["unit"] or "s"])
        try:
            return _bounded(now - delta if match["sign"] == "-" else now + delta)
        except OverflowError:
            return EARLIEST if match["sign"] == "-" else LATEST
    if _EPOCH.fullmatch(written) and len(written) > 4:
        try:
            return _bounded(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(written)))
        except OverflowError:
            written = ""
    period = parse_period(written)
    if period is None:
        raise refuse(
            f"{what}: {text[:60]!r} is not a time; write 2026-11-21T10:30:00Z, 2026-11-21, now or now-15m"
        )
    return period.start


def timestamp_literal(moment: datetime) -> exp.Expression:
    """A timestamp with time zone, exact to the microsecond."""
    written = moment.astimezone(UTC).strftime("%m-%d %H:%M:%S.%f+00:00")
    return exp.Cast(
        this=exp.Literal.string(f"{moment.astimezone(UTC).year:04d}-{written}"), to=_TIMESTAMP.copy()
    )


def rfc3339(moment: datetime) -> str:
    """The text of an instant, UTC, microseconds where there are some."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    return timezone((1 if text[0] == "+" else -1) * timedelta(hours=hours, minutes=minutes))


def _length(part: dict[str, str | None], start: datetime) -> timedelta:
    if part["day"] is None:
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        return following - start
    if part["hour"] is None:
        return timedelta(days=1)
    if part["minute"] is None:
        return timedelta(hours=1)
    if part["second"] is None:
        return timedelta(minutes=1)
    return _STEP if part["fraction"] else timedelta(seconds=1)


def _bounded(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)
