"""What is asked of a log store: how much comes, of how many tenants, how long it stays, how often it is
searched."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache

from lake.errors import SettingsError

GB = 1e9
DAY_S = 86_400.0
# Tenants by rank: the first ones each for itself, further ones in classes of so many more ranks each.
ALONE, GROWTH = 200, 1.05


@dataclass(frozen=True, slots=True)
class Tenants:
    """Tenants of like traffic: how many, and records a second of each."""

    count: int
    records_per_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """One load. `skew`: exponent of Zipf's law by which tenants share the records; 0: all alike.

    Raises SettingsError for a number that no load has.
    """

    records_per_second: float
    bytes_per_record: float
    tenants: int
    retention_days: float
    searches_per_day: float = 0.0
    skew: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, option = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            may_be_zero = field.name in ("searches_per_day", "skew")
            if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
                least = "0 or more" if may_be_zero else "more than 0"
                raise SettingsError(f"{option} {value:g}: give a number, {least}")
        if self.skew > 3:
            raise SettingsError(f"--skew {self.skew:g}: an exponent of Zipf's law, from 0 to 3")

    @property
    def bytes_per_s(self) -> float:
        return self.records_per_second * self.bytes_per_record

    @property
    def raw_gb_per_day(self) -> float:
        return self.bytes_per_s * DAY_S / GB

    @property
    def searched_share(self) -> float:
        """Share of all records that the table of a search has, on average, where tenants search as much as
        they send: the sum of the squares of their shares."""
        of_all = self.records_per_second
        return sum(each.count * (each.records_per_s / of_all) ** 2 for each in self.by_traffic())

    def by_traffic(self) -> Iterator[Tenants]:
        """All tenants, the busiest first; those of high ranks in classes, as many in each as make their
        traffic alike."""
        for count, share in _shares(self.tenants, self.skew):
            yield Tenants(count, self.records_per_second * share)


def _classes(tenants: int) -> Iterator[tuple[int, int]]:
    """Ranks from the first to before the last of each class."""
    first = 1
    while first <= tenants:
        last = first + 1 if first < ALONE else int(first * GROWTH) + 1
        last = min(last, tenants + 1)
        yield first, last
        first = last


@lru_cache
def _shares(tenants: int, skew: float) -> tuple[tuple[int, float], ...]:
    """Of each class how many tenants it has, and the share of all records that each of them sends."""
    classes = list(_classes(tenants))
    weights = [sum(rank**-skew for rank in range(first, last)) for first, last in classes]
    total = sum(weights)
    return tuple(
        (last - first, weight / total / (last - first))
        for (first, last), weight in zip(classes, weights, strict=True)
    )
