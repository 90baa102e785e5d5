"""What a part of a log store takes, and what that costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from lake.errors import SettingsError

MONTH_H = 730.0


@dataclass(frozen=True, slots=True)
class Resources:
    """What is taken of each resource. Sizes are GB (1e9 bytes) but for memory (GiB); traffic `network` is
    between machines, `storage` to and from the object store."""

    cores: float = 0.0
    memory_gib: float = 0.0
    ssd_gb: float = 0.0
    hdd_gb: float = 0.0
    object_gb: float = 0.0
    put_per_hour: float = 0.0
    get_per_hour: float = 0.0
    list_per_hour: float = 0.0
    network_gb_per_hour: float = 0.0
    storage_gb_per_hour: float = 0.0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(*(getattr(self, name) + getattr(other, name) for name in NAMES))


NAMES = tuple(field.name for field in fields(Resources))


def total(parts: Iterable[Resources]) -> Resources:
    """The sum of parts."""
    return sum(parts, Resources())


@dataclass(frozen=True, slots=True)
class Prices:
    """What one unit costs, in `currency`: an hour of a core or a GiB, a month of a GB, 1,000 requests, a GB
    moved."""

    currency: str
    core_hour: float
    memory_gib_hour: float
    ssd_gb_month: float
    hdd_gb_month: float
    object_gb_month: float
    put_per_thousand: float
    get_per_thousand: float
    list_per_thousand: float
    network_gb: float
    storage_gb: float

    @classmethod
    def of(cls, found: Mapping[str, Any], where: str) -> "Prices":
        """Prices of a file's table, each a value with its source. Raises SettingsError."""
        values = dict[str, Any]()
        for name in (field.name for field in fields(cls)):
            entry = found.get(name)
            value: Any = entry.get("value") if isinstance(entry, Mapping) else entry
            if name == "currency" and not isinstance(value, str):
                raise SettingsError(f"{where}: [prices] {name} has to be a text")
            if name != "currency" and (not isinstance(value, int | float) or value < 0):
                raise SettingsError(f"{where}: [prices] {name} has to be a number, 0 or more")
            values[name] = value
        return cls(**values)

    def month(self, taken: Resources) -> dict[str, float]:
        """What a month costs, by kind."""
        return {
            "cores": taken.cores * self.core_hour * MONTH_H,
            "memory": taken.memory_gib * self.memory_gib_hour * MONTH_H,
            "storage": taken.ssd_gb * self.ssd_gb_month
            + taken.hdd_gb * self.hdd_gb_month
            + taken.object_gb * self.object_gb_month,
            "requests": (
                taken.put_per_hour * self.put_per_thousand
                + taken.get_per_hour * self.get_per_thousand
                + taken.list_per_hour * self.list_per_thousand
            )
            * MONTH_H
            / 1_000,
            "network": (
                taken.network_gb_per_hour * self.network_gb + taken.storage_gb_per_hour * self.storage_gb
            )
            * MONTH_H,
        }

    def month_sum(self, taken: Resources) -> float:
        """What a month costs in all."""
        return sum(self.month(taken).values())
