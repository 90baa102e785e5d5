"""How many rows a table has taken on which day, and from how many bytes: a table property that each commit of
rows sets together with them, so that a row counts exactly once, whoever is killed when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import islice

import orjson

DAYS_PROPERTY = "firn.days"
# Whoever adds the days up has this long to come by.
DAYS_KEPT = 8
COUNT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DayCount:
    """Rows that were committed on one day (UTC), and bytes of the values of the messages that came for them,
    also of those that became dead letters."""

    records: int = 0
    size_bytes: int = 0


def day_counts(properties: Mapping[str, str]) -> dict[str, DayCount]:
    """Returns the counts of the last days, by day. What is none is left out: anybody who may write to the
    table may write its properties."""
    try:
        told = orjson.loads(properties.get(DAYS_PROPERTY, "{}"))
    except orjson.JSONDecodeError:
        return {}
    found = {}
    for day, counts in islice(told.items() if isinstance(told, dict) else (), DAYS_KEPT):
        if _is_day(day) and isinstance(counts, list) and len(counts) == 2 and all(map(_is_count, counts)):
            found[day] = DayCount(*counts)
    return found


def counted_day(properties: Mapping[str, str], day: date, more: DayCount) -> dict[str, str]:
    """Returns the property after a commit of more on a day."""
    counts = day_counts(properties)
    before = counts.get(day.isoformat(), DayCount())
    counts[day.isoformat()] = DayCount(
        min(COUNT_MAX, before.records + more.records), min(COUNT_MAX, before.size_bytes + more.size_bytes)
    )
    newest = sorted(counts)[-DAYS_KEPT:]
    told = {each: [counts[each].records, counts[each].size_bytes] for each in newest}
    return {DAYS_PROPERTY: orjson.dumps(told).decode()}


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= COUNT_MAX
