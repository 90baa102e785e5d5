"""What rows are grouped by, as SQL that both engines read the same way, and the keys as they come back."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from lake.log_schema import TIMESTAMP, LogSchema
from query.model.problem import refuse
from query.model.table_view import EPOCH
from query.stats.values import Value, number_of, times_of, value_of

Calendar = Literal["day", "week", "month", "quarter", "year"]
_BIGINT = exp.DataType.Type.BIGINT


@dataclass(frozen=True, slots=True)
class ByTime:
    """Stretches of time: `width_s` seconds each, counted from 1970 (and `offset_s` later), or days, weeks
    (from Monday on), months, quarters or years of a time zone (an IANA name). A key is the start of its
    stretch, in UTC."""

    width_s: int | None = None
    calendar: Calendar | None = None
    zone: str = "UTC"
    offset_s: int = 0
    field: str = TIMESTAMP

    def expression(self, schema: LogSchema) -> Value:
        """Raises BadRequestError."""
        at = times_of(self.field, schema)
        if (self.width_s is None) == (self.calendar is None):
            raise refuse("stretches of time have either a width in seconds or a name: day, week, month")
        if self.calendar is not None:
            self._zone()
            local = exp.AtTimeZone(this=at.sql, zone=exp.Literal.string(self.zone))
            start = exp.Anonymous(this="DATE_TRUNC", expressions=[exp.Literal.string(self.calendar), local])
            return Value(exp.cast(start, exp.DataType.Type.DATE), at.warnings)
        if not self.width_s or self.width_s < 0:
            raise refuse("a stretch of time has a second or more")
        return Value(_steps(exp.TimeToUnix(this=at.sql), self.offset_s, self.width_s), at.warnings)

    def key(self, found: Any) -> datetime | None:
        """What an engine gave, as the key."""
        if found is None:
            return None
        if self.width_s is not None:
            return EPOCH + timedelta(seconds=int(found) * self.width_s + self.offset_s)
        assert isinstance(found, date)
        return datetime.combine(found, time(), self._zone()).astimezone(EPOCH.tzinfo)

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise refuse(
                f"there is no time zone {self.zone[:60]!r}", suggestion="write it as Europe/Berlin or UTC"
            ) from None


@dataclass(frozen=True, slots=True)
class ByValue:
    """The values of a field. Rows without one are a group of their own, whose key is `missing`."""

    field: str
    missing: Any = None

    def expression(self, schema: LogSchema) -> Value:
        """Raises BadRequestError for a field that holds lists."""
        return value_of(self.field, schema)

    def key(self, found: Any) -> Any:
        """What an engine gave, as the key."""
        return self.missing if found is None else found


@dataclass(frozen=True, slots=True)
class ByNumber:
    """Steps of `width` of a field's numbers, counted from `offset` on. A key is the start of its step."""

    field: str
    width: float
    offset: float = 0.0

    def expression(self, schema: LogSchema) -> Value:
        """Raises BadRequestError for a field that holds no numbers."""
        if not self.width > 0:
            raise refuse("a step is wider than nothing")
        number = number_of(self.field, schema)
        return Value(_steps(number.sql, self.offset, self.width), number.warnings)

    def key(self, found: Any) -> float | None:
        """What an engine gave, as the key."""
        return None if found is None else int(found) * self.width + self.offset


Group = ByTime | ByValue | ByNumber


def _steps(value: exp.Expression, offset: float, width: float) -> exp.Expression:
    """The number of the step that a value lies in."""
    shifted = value if not offset else exp.paren(exp.Sub(this=value, expression=_double(offset)))
    return exp.cast(exp.Floor(this=exp.Div(this=shifted, expression=_double(width), typed=True)), _BIGINT)


def _double(value: float) -> exp.Expression:
    return exp.cast(exp.Literal.string(repr(float(value))), exp.DataType.Type.DOUBLE)
