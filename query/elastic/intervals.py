"""Widths of time as aggregations write them: `30s`, `1h`, `month`, `+6h`."""

import re
from typing import Any, Literal

from query.elastic.elastic_error import malformed, unsupported

Calendar = Literal["minute", "hour", "day", "week", "month", "quarter", "year"]
_FIXED = re.compile(r"(?P<count>\d{1,12})(?P<unit>ms|s|m|h|d|w)")
_OFFSET = re.compile(r"(?P<sign>[+-]?)(?P<rest>\d{1,9}(?:ms|s|m|h|d))")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_CALENDAR: dict[str, Calendar] = {
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "M": "month",
    "q": "quarter",
    "y": "year",
}
WIDTH_S_MAX = 10**9


def calendar_of(written: Any, *, is_strict: bool) -> Calendar | None:
    """The unit of a calendar, as `1d` or `day`; None: it is none, and may be a fixed width unless
    `is_strict`. Raises ElasticError."""
    text = str(written)
    unit = text.removeprefix("1") if text[:1] == "1" else text
    for short, name in _CALENDAR.items():
        if unit in (short, name):
            return name
    if is_strict:
        raise malformed(f"The supplied interval [{text[:60]}] could not be parsed as a calendar interval.")
    return None


def fixed_s(written: Any) -> int:
    """A fixed width in seconds. Raises ElasticError, also for parts of a second."""
    found = _FIXED.fullmatch(str(written))
    if found is None:
        raise malformed(
            f"failed to parse setting [fixed_interval] with value [{str(written)[:60]}] as a time value"
        )
    width_ms = int(found["count"]) * _UNIT_MS[found["unit"]]
    if width_ms % 1_000 or not 0 < width_ms // 1_000 <= WIDTH_S_MAX:
        raise unsupported(
            f"date_histogram.fixed_interval: {str(written)[:60]}", f"whole seconds up to {WIDTH_S_MAX:,} are"
        )
    return width_ms // 1_000


def offset_s(written: Any) -> int:
    """By how many seconds buckets are moved. Raises ElasticError."""
    if written in (None, "", 0):
        return 0
    found = _OFFSET.fullmatch(str(written))
    if found is None:
        raise malformed(f"[offset] is written as +6h, not [{str(written)[:60]}]")
    return fixed_s(found["rest"]) * (-1 if found["sign"] == "-" else 1)
