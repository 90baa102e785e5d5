"""Which days and months the cold hours of a table become: a tenant with little traffic would leave 8,760
files a year.

A span is cold `cold.after_s` after its end. Its hours become one file of it where that stays below the target
file size, so a table with enough traffic keeps its hours. No span is longer than `cold.span_share_max` of the
table's retention, because retention writes the oldest one anew whenever rows of it are past (`retention.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from lake.span import Partition, Span, Unit, hours_of
from lake.table_layout import KEY_PROPERTY, days_since_epoch

LONGEST_H = {Unit.MONTH: 31 * 24, Unit.DAY: 24}
# The years that dates have in Python, which other programs read manifests with.
_CALENDAR_H = range(days_since_epoch(1, 1, 1) * 24, days_since_epoch(9999, 12, 1) * 24)


@dataclass(frozen=True, slots=True)
class ColdSpans:
    """Those of one table. `units`: which it may have, the longest first; `ended_h`: the hour (since
    1970-01-01T00Z) that what is cold has ended before."""

    units: tuple[Unit, ...] = ()
    ended_h: int = 0

    @classmethod
    def of(
        cls, properties: Mapping[str, str], kept_h: int | None, settings: OptimizeSettings, now_ms: int
    ) -> "ColdSpans":
        """By the properties of a table and the hours that its rows are kept, None: for ever. One with a key
        has no hours."""
        if KEY_PROPERTY in properties:
            return cls()
        units = tuple(
            unit
            for unit, longest_h in LONGEST_H.items()
            if kept_h is None or longest_h <= settings.cold.span_share_max * kept_h
        )
        return cls(units, (now_ms - int(settings.cold.after_s * 1000)) // MS_PER_HOUR)

    def span_of(self, unit: Unit, partition: Partition) -> Span | None:
        """The cold span of this unit that a partition is, or is a part of; None where there is none."""
        hours = hours_of(partition)
        if hours.start not in _CALENDAR_H:
            return None
        span = Span.holding(unit, hours.start)
        return span if span.hours.stop <= self.ended_h and hours.stop <= span.hours.stop else None

    def reach(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """These partitions, and all whose files may go into one file with theirs."""
        found = set[Partition]()
        for each in partitions:
            found.add(each)
            for unit in Unit:
                span = self.span_of(unit, each)
                if span is not None:
                    found |= set(span.parts()) if unit in self.units else {span}
        return frozenset(found)


NO_SPANS = ColdSpans()
