"""What the fleet is: tenants with ten streams each, and one with very many; partitions by Zipf, as a lake has
them whose cold hours have become days and months.

A part of the tables is made by the catalog, with metadata and manifests of their own; the others are rows of
the database, which say of their metadata that it is where one file for all of them is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from lake.catalog_client import TableName
from lake.span import Span, Unit
from lake.table_layout import partition_path

STREAMS = 10
LARGE_TENANT_MAX = 10_000
PARTITIONS_MIN, PARTITIONS_MAX = 5, 150
HOURS_FIRST = 8
ROWS = 40
HOUR_MS, DAY_H = 3_600_000, 24
Partition = tuple[int, str, int, int, int, int, int]  # as the columns of the database's table


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many tables, of which about `own_max` are made by the catalog. `now_ms`: nothing has changed for
    two days."""

    tables: int
    own_max: int
    now_ms: int

    @property
    def of_large_tenant(self) -> int:
        return min(LARGE_TENANT_MAX, self.tables // STREAMS)

    @property
    def tenants(self) -> int:
        return 1 + -(-(self.tables - self.of_large_tenant) // STREAMS)

    @property
    def own_step(self) -> int:
        return max(1, self.tables // self.own_max)

    def own(self) -> range:
        """The numbers of the tables that the catalog makes, spread over all."""
        return range(self.own_step // 2, self.tables, self.own_step)

    def is_own(self, number: int) -> bool:
        return number % self.own_step == self.own_step // 2

    def tenant_of(self, number: int) -> str:
        left = number - self.of_large_tenant
        return tenant(0) if left < 0 else tenant(1 + left // STREAMS)

    def name(self, number: int) -> TableName:
        left = number - self.of_large_tenant
        return TableName(self.tenant_of(number), f"s{number if left < 0 else left % STREAMS}")

    def partitions(self, table_id: int, number: int) -> Iterator[Partition]:
        """Those of a table, of one file each, with which maintenance has nothing to do: hours of the last
        week, days of months that are not cold, and months; the more there are, the older they are."""
        rank, size = 1 + (number * 7_919) % self.tables, 2_000 + (number * 7_907) % 60_000
        count = int(PARTITIONS_MIN * (self.tables / rank) ** 0.5)
        for path, merged_ms in places(self.now_ms)[: max(PARTITIONS_MIN, min(count, PARTITIONS_MAX))]:
            yield table_id, path, 1, 0, size, ROWS, merged_ms + (number * 6_949) % HOUR_MS


@cache
def places(now_ms: int) -> tuple[tuple[str, int], ...]:
    """Partitions of a table, the most likely first, and when each was merged, ms since 1970."""
    now_h = now_ms // HOUR_MS
    warm = Span.holding(Unit.MONTH, now_h - 7 * DAY_H)  # the first month that is not cold
    hours = [(partition_path(now_h - at), now_h - at) for at in range(2 * DAY_H, 7 * DAY_H - 2)]
    days = [Span(Unit.DAY, now_h // DAY_H - at) for at in range(9, 40)]
    months = [Span(Unit.MONTH, warm.value - at) for at in range(1, 25)]
    spans = [each for each in days if Span.holding(Unit.MONTH, each.hours.start) == warm] + months
    spanned = [(each.path, each.hours.stop + 7 * DAY_H) for each in spans]
    found = (*hours[:HOURS_FIRST], *spanned, *hours[HOURS_FIRST:])
    return tuple((path, min(hour, now_h - 2 * DAY_H) * HOUR_MS) for path, hour in found)


def tenant(number: int) -> str:
    return f"t{number:07d}"
