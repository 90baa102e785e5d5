"""Retention: whole hour partitions past the table's property `firn.retention` go, by metadata alone; their files follow after the readers' grace."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lake.catalog_client import TableName
from lake.data_file import DataFile
from optimize.planner import MS_PER_HOUR
from optimize.table_view import Partition

PROPERTY = "firn.retention"
_FORM = re.compile(r"(\d{1,6})\s*(h|hours?|d|days?)$")


@dataclass(frozen=True, slots=True)
class Expired:
    """What retention takes from a table. `oldest_hour`: hours since 1970-01-01T00Z; None: nothing goes."""

    table: TableName
    files: tuple[DataFile, ...]
    first_hour_kept: int
    oldest_hour: int | None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def parse_retention(value: str | None) -> int | None:
    """Hours of a retention like `30d` or `720h`; None where there is none. Raises ValueError for anything else: what is unclear deletes nothing."""
    if value is None or not value.strip():
        return None
    match = _FORM.match(value.strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{PROPERTY} is {value!r}; write days or hours, like 30d or 720h")
    return int(match[1]) * (24 if match[2].startswith("d") else 1)


def first_hour_kept(retention_h: int, now_ms: int) -> int:
    """The first hour of which anything is younger than the retention. Hours are UTC, so neither zones nor months matter."""
    return (now_ms - retention_h * MS_PER_HOUR) // MS_PER_HOUR


def expired_files(table: TableName, partitions: Iterable[Partition], retention_h: int, now_ms: int) -> Expired:
    """The files of all hours that are past the retention to their last second."""
    first = first_hour_kept(retention_h, now_ms)
    gone = [partition for partition in partitions if partition.hour < first]
    files = tuple(file for partition in sorted(gone, key=lambda p: p.hour) for file in partition.files)
    return Expired(table, files, first, min((partition.hour for partition in gone), default=None))
