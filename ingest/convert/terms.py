"""By what the records of a table are laid out: the columns it has or may still get, how far a record's time
may lie from Kafka's, and the zone of times that name none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from ingest.convert.kept_times import KeptTimes
from lake.log_schema import LogSchema
from lake.settings import IngestSettings


@dataclass
class Columns:
    """What a batch knows of the table's columns: those of its schema, and the new ones it has met so far,
    with their original paths."""

    schema: LogSchema
    columns_max: int
    new: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str | None:
        """The original path of a column, None where the column does not exist."""
        if (column := self.schema.by_name.get(name)) is not None:
            return column.doc or ""
        return self.new.get(name)

    def path_before(self, name: str) -> str | None:
        """The original path of a column that the table had before this flush, None for any other."""
        return self.path(name) if name in self.schema.by_name else None

    def kind(self, name: str) -> Any:
        column = self.schema.by_name.get(name)
        return "string" if column is None else column.kind

    def admits(self, name: str, path: str) -> bool:
        """Whether the table has or may still get this column."""
        if name in self.schema.by_name or name in self.new:
            return True
        if len(self.schema.columns) + len(self.new) >= self.columns_max:
            return False
        self.new[name] = path
        return True

    def admits_all(self, new: Mapping[str, str]) -> bool:
        """Whether the table has or may still get all of these columns; else it gets none of them."""
        missing = {name: path for name, path in new.items() if self.path(name) is None}
        if missing and len(self.schema.columns) + len(self.new) + len(missing) > self.columns_max:
            return False
        self.new.update(missing)
        return True


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How far a record's time may lie from its Kafka timestamp, in microseconds, None: accept any; and which
    times the table keeps, None: all."""

    late_us: int | None
    ahead_us: int | None
    kept: KeptTimes | None = None

    @classmethod
    def of(cls, settings: IngestSettings) -> "TimeLimits":
        """The limits that the settings name."""
        if isinstance(settings.limits.late, str):
            return cls(None, None)
        return cls(int(settings.limits.late * 1_000_000), int(settings.limits.ahead_s * 1_000_000))


@dataclass(frozen=True, slots=True)
class Terms:
    """What records are laid out by. `local`: the zone of times that name none."""

    columns: Columns
    time: TimeLimits
    local: tzinfo = UTC
