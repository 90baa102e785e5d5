"""Retention: whole hour partitions past the table's property `firn.retention` go, by metadata alone; their
files follow after the readers' grace."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lake.catalog_client import TableName
from lake.data_file import DATA, DataFile
from lake.table_layout import US_PER_HOUR
from optimize.planner import MS_PER_HOUR, first_event_us
from optimize.table_view import Partition

PROPERTY = "firn.retention"
# A keyed table has a row as long as its source has it, and no partition of rows of one time.
KEYED = (
    f"a table that follows a database has no {PROPERTY}: its rows go when their source deletes them; take "
    "the property away"
)
_FORM = re.compile(r"(\d{1,6})\s*(h|hours?|d|days?)$")


@dataclass(frozen=True, slots=True)
class Expired:
    """What retention takes from a table: data files and the delete files that belong to them.

    `oldest_us`: the event time of the oldest row that goes, µs since 1970 (None: no row goes). `reason`: why
    nothing went, where it should have.
    """

    table: TableName
    files: tuple[DataFile, ...] = ()
    first_hour_kept: int = 0
    oldest_us: int | None = None
    reason: str = ""

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        return tuple(file for file in self.files if file.content == DATA)

    @property
    def rows(self) -> int:
        """Rows in the data files; those that delete files hide are counted as well."""
        return sum(file.rows for file in self.data_files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def parse_retention(value: str | None) -> int | None:
    """Hours of a retention like `30d` or `720h`; None where there is none. Raises ValueError for anything
    else: what is unclear deletes nothing."""
    if value is None or not value.strip():
        return None
    match = _FORM.match(value.strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{PROPERTY} is {value!r}; write days or hours, like 30d or 720h")
    return int(match[1]) * (24 if match[2].startswith("d") else 1)


def first_hour_kept(retention_h: int, now_ms: int) -> int:
    """The first hour of which anything is younger than the retention. Hours are UTC, so neither zones nor
    months matter."""
    return (now_ms - retention_h * MS_PER_HOUR) // MS_PER_HOUR


def expired_files(
    table: TableName,
    partitions: Iterable[Partition],
    deletes: Sequence[DataFile],
    retention_h: int,
    now_ms: int,
    *,
    time_id: int,
) -> Expired:
    """The files of all hours that are past the retention to their last second. `deletes`: the table's delete
    files that belong to one hour."""
    first = first_hour_kept(retention_h, now_ms)
    data = [
        file
        for partition in sorted(partitions, key=lambda p: p.value)
        if partition.value < first and not partition.by_bucket
        for file in partition.files
    ]
    gone = [*data, *(file for file in deletes if file.hour is not None and file.hour < first)]
    times = (first_event_us(file, time_id) for file in data)
    oldest = min(
        (
            at if at is not None else (file.hour or 0) * US_PER_HOUR
            for at, file in zip(times, data, strict=True)
        ),
        default=None,
    )
    return Expired(table, tuple(gone), first, oldest)
