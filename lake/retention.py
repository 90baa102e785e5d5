"""How long rows of logs are kept: as the table says, else as its tenant's namespace says, else as the lake
says.

Table and namespace say it by the property `firn.retention`; for the lake the catalog does, by the setting
`catalog.retention`, which it tells with its configuration under the same name. What nobody can read deletes
nothing, whatever the more general ones say.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

PROPERTY = "firn.retention"
SET_BY_PROPERTY = "firn.retention-set"  # who set it, and when, beside it
FOREVER = "forever"
MS_PER_HOUR = 3_600_000
_FORM = re.compile(r"(\d{1,6})\s*(h|hours?|d|days?)$")


class Level(StrEnum):
    """Who says how long."""

    STREAM = "stream"
    TENANT = "tenant"
    LAKE = "lake"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows are kept. `hours`: None is for ever. `level`: who says so; None: nobody does."""

    hours: int | None = None
    level: Level | None = None


def parse_retention(text: str) -> int | None:
    """Returns the hours of `30d` or `720h`, None of `forever`. Raises ValueError."""
    spelled = text.strip().lower()
    if spelled == FOREVER:
        return None
    match = _FORM.match(spelled)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text[:40]!r} is none; write days or hours, like 30d or 720h, or {FOREVER}")
    return int(match[1]) * (24 if match[2].startswith("d") else 1)


def first_hour_kept(retention_h: int, now_ms: int) -> int:
    """Returns the first hour (since 1970-01-01T00Z) of which anything is younger than the retention; those
    before go. Hours are UTC, so neither zones nor months matter."""
    return (now_ms - retention_h * MS_PER_HOUR) // MS_PER_HOUR


def spell_retention(hours: int | None) -> str:
    """Returns a retention as it is written into properties."""
    if hours is None:
        return FOREVER
    return f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"


def retention_of(*said: tuple[Level, str | None]) -> Retention:
    """Returns what the first one says that says anything. Raises ValueError, with who said it, where that is
    no retention."""
    for level, text in said:
        if text is None or not text.strip():
            continue
        try:
            return Retention(parse_retention(text), level)
        except ValueError as error:
            raise ValueError(f"{PROPERTY} of the {level}: {error}") from error
    return Retention()
