"""Days and months as partitions of a log table: what its cold hours become (Iceberg spec, "Partition
Evolution").

An hour's files lie in a partition of `hour(timestamp)`, by which rows are ingested. Maintenance alone writes
files of the two other specs, `day(timestamp)` and `month(timestamp)`, which a table gets when it first needs
them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from lake.table_layout import civil_date, days_since_epoch

_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Unit(StrEnum):
    """The length of a span; also the name of Iceberg's transform."""

    DAY = "day"
    MONTH = "month"

    @property
    def field(self) -> str:
        """The partition field's name."""
        return f"timestamp_{self.value}"


_ORDER = {Unit.DAY: 1, Unit.MONTH: 2}


@dataclass(frozen=True, slots=True)
class Span:
    """One day or month (UTC). `value`: days or months since 1970-01-01, as the partition has it."""

    unit: Unit
    value: int

    @classmethod
    def holding(cls, unit: Unit, hour: int) -> "Span":
        """The day or month that an hour (since 1970-01-01T00Z) is of."""
        if unit is Unit.DAY:
            return cls(unit, hour // 24)
        year, month, _ = civil_date(hour // 24)
        return cls(unit, (year - 1970) * 12 + month - 1)

    @property
    def hours(self) -> range:
        """Its hours since 1970-01-01T00Z."""
        if self.unit is Unit.DAY:
            return range(self.value * 24, self.value * 24 + 24)
        return range(_month_begins(self.value) * 24, _month_begins(self.value + 1) * 24)

    def parts(self) -> "list[Partition]":
        """The partitions whose rows it can take in: its hours, its days, and itself."""
        days = [Span(Unit.DAY, hour // 24) for hour in self.hours[::24]] if self.unit is Unit.MONTH else []
        return [*self.hours, *days, self]

    def __str__(self) -> str:
        """As the calendar writes it: `2026-11-21`, `2026-11`."""
        year, month, day = civil_date(self.hours.start // 24)
        return f"{year:04d}-{month:02d}" + (f"-{day:02d}" if self.unit is Unit.DAY else "")

    @property
    def path(self) -> str:
        """The partition's name in snapshot summaries and listings: `timestamp_day=2026-11-21`."""
        return f"{self.unit.field}={self}"


# What a file of Firn's is in: an hour since 1970-01-01T00Z, a bucket of a keyed table, or a span.
Partition = int | Span


def hours_of(partition: Partition) -> range:
    """The hours of a partition that is no bucket."""
    return partition.hours if isinstance(partition, Span) else range(partition, partition + 1)


def in_order(partition: Partition | None) -> tuple[int, int]:
    """By which partitions of all kinds are ordered: hours or buckets, days, months."""
    if isinstance(partition, Span):
        return _ORDER[partition.unit], partition.value
    return 0, partition or 0


def parse_span_path(path: str) -> Span | None:
    """The span that a name of `Span.path` stands for; None where it is no name of a span."""
    field, _, value = path.partition("=")
    sign, numbers = (-1, value[1:]) if value.startswith("-") else (1, value)
    for unit in Unit:
        parts, wanted = numbers.split("-"), 3 if unit is Unit.DAY else 2
        if field == unit.field and len(parts) == wanted and all(map(_is_number, parts)):
            year, month = sign * int(parts[0]), int(parts[1])
            days = days_since_epoch(year, month, int(parts[2]) if unit is Unit.DAY else 1)
            return Span.holding(unit, days * 24)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6


def _month_begins(month: int) -> int:
    return days_since_epoch(1970 + month // 12, month % 12 + 1, 1)


def span_in(partition: Mapping[str, Any]) -> Span | None:
    """The span that a manifest entry's partition is; None where it is by another spec."""
    if len(partition) != 1:
        return None
    ((name, value),) = partition.items()
    unit = next((unit for unit in Unit if unit.field == name), None)
    if unit is None:
        return None
    if isinstance(value, date):  # as Iceberg's Java library writes days
        return Span(unit, value.toordinal() - _EPOCH_DAY)
    # Somebody's own column may have the name, and texts.
    return Span(unit, value) if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class SpanSpecs:
    """The specs of days and months that a table has, by unit (Iceberg's JSON), and what a further one is
    numbered after: the largest id of its specs, and of their fields."""

    known: Mapping[Unit, Mapping[str, Any]]
    spec_id_max: int
    field_id_max: int

    @classmethod
    def of(cls, specs: Iterable[Mapping[str, Any]], timestamp_id: int, field_id_max: int) -> "SpanSpecs":
        """Those among the partition specs of a table. Of two alike, which no catalog makes, the first."""
        specs, known = list(specs), dict[Unit, Mapping[str, Any]]()
        for unit in Unit:
            wanted = [(timestamp_id, unit.value, unit.field)]
            for spec in specs:
                if [(f["source-id"], f["transform"], f["name"]) for f in spec["fields"]] == wanted:
                    known.setdefault(unit, spec)
        ids = [int(f["field-id"]) for spec in specs for f in spec["fields"] if "field-id" in f]
        return cls(known, max(int(spec["spec-id"]) for spec in specs), max([field_id_max, *ids]))

    def having(self, unit: Unit, timestamp_id: int) -> "SpanSpecs":
        """With a spec of this unit, new where there is none."""
        if unit in self.known:
            return self
        spec_id, field_id = self.spec_id_max + 1, self.field_id_max + 1
        field = {
            "source-id": timestamp_id,
            "field-id": field_id,
            "name": unit.field,
            "transform": unit.value,
        }
        spec = {"spec-id": spec_id, "fields": [field]}
        return SpanSpecs({**self.known, unit: spec}, spec_id, field_id)

    def unit_of(self, spec_id: int) -> Unit | None:
        """The unit of the spec with this id; None where it is none of these."""
        return next((unit for unit, spec in self.known.items() if spec["spec-id"] == spec_id), None)
