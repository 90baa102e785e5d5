"""Legal holds: rows of a tenant that nobody takes away while the hold is in force, of one stream or of all,
of a range of event time or of all times.

They stand in the property `firn.holds` of the tenant's namespace, as JSON. Firn's catalog writes it, for keys
that are bound to no namespace, and refuses what would take away what is held; maintenance and the search API
read it. What nobody can read holds everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from lake.clock import epoch_us
from lake.table_layout import US_PER_HOUR
from lake.tenant import to_identifier

PROPERTY = "firn.holds"
# Of a commit to Firn's catalog: the namespace's holds are still these.
REQUIREMENT = "assert-firn-holds"


@dataclass(frozen=True, slots=True)
class Hold:
    """What may not go. `stream`: None for all of the tenant; `start`, `end`: of event time, `end` itself not
    in it, None for open. `set_by`: the id of the key that set it."""

    id: str
    stream: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    reason: str = ""
    set_by: str = ""
    set_at: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Hold":
        """The hold that `to_json` told. Raises KeyError, TypeError, ValueError."""
        stream = told["stream"]
        if not (stream is None or isinstance(stream, str)):
            raise TypeError(stream)
        start, end = moment_of(told["from"]), moment_of(told["until"])
        texts = (str(told[name]) for name in ("reason", "set-by", "set-at"))
        return cls(str(told["id"]), stream, start, end, *texts)

    def is_about(self, table: str) -> bool:
        """Whether it is about the table of this name in its namespace."""
        return self.stream is None or to_identifier(self.stream) == table

    def overlaps(self, start: datetime | None, end: datetime | None) -> bool:
        """Whether it holds anything of `[start, end)`, either None for open."""
        return (self.start is None or end is None or self.start < end) and (
            self.end is None or start is None or start < self.end
        )

    def has_hours(self, hours: range) -> bool:
        """Whether it holds anything of these hours (since 1970-01-01T00Z)."""
        return (self.start is None or epoch_us(self.start) < hours.stop * US_PER_HOUR) and (
            self.end is None or hours.start * US_PER_HOUR < epoch_us(self.end)
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the property."""
        return {
            "id": self.id,
            "stream": self.stream,
            "from": None if self.start is None else self.start.isoformat(),
            "until": None if self.end is None else self.end.isoformat(),
            "reason": self.reason,
            "set-by": self.set_by,
            "set-at": self.set_at,
        }

    def __str__(self) -> str:
        """As refusals and reports name it."""
        by = f", set by {self.set_by} at {self.set_at}" if self.set_by else ""
        return f"legal hold {self.id} ({self.reason}{by})"


EVERYTHING = Hold("unreadable", reason=f"the property {PROPERTY} cannot be read")


def parse_holds(text: str | None) -> tuple[Hold, ...]:
    """Returns the holds that a property tells; `EVERYTHING` where it cannot be read."""
    if not text:
        return ()
    try:
        return tuple(map(Hold.of, orjson.loads(text)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return (EVERYTHING,)


def spell_holds(holds: Iterable[Hold]) -> str:
    """Returns holds as they are written into the property."""
    return orjson.dumps([hold.to_json() for hold in holds]).decode()


def moment_of(value: object) -> datetime | None:
    """Returns the moment that a text in ISO 8601 with a zone names, None of None. Raises ValueError."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(str(value))
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{str(value)[:40]!r} is no time with a zone; write one like 2026-11-21T10:00:00Z")


@dataclass(frozen=True, slots=True)
class TableHolds:
    """The holds that are about one table, and the text of the property that told them."""

    holds: tuple[Hold, ...] = ()
    text: str | None = None

    @classmethod
    def of(cls, table: str, properties: Mapping[str, str]) -> "TableHolds":
        """Those about the table of this name, by the properties of its namespace."""
        text = properties.get(PROPERTY)
        return cls(tuple(hold for hold in parse_holds(text) if hold.is_about(table)), text)

    def on_hours(self, hours: range) -> Hold | None:
        """A hold on anything of these hours, None where there is none."""
        return next((hold for hold in self.holds if hold.has_hours(hours)), None)

    def on_range(self, start: datetime | None, end: datetime | None) -> Hold | None:
        """A hold on anything of `[start, end)`, None where there is none."""
        return next((hold for hold in self.holds if hold.overlaps(start, end)), None)

    def requirement(self) -> dict[str, Any]:
        """What a commit to Firn's catalog asserts that relies on them."""
        return {"type": REQUIREMENT, "holds": self.text}


NO_HOLDS = TableHolds()
