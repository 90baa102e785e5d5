"""Retention: hours, days and months past it (`lake/retention.py`) go, by metadata alone; of a day or month
that is past it in part, those hours go: its file is written anew without them. Files that nobody reaches any
more follow after the readers' grace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lake.catalog_client import TableName
from lake.data_file import DATA, DataFile
from lake.retention import PROPERTY
from lake.span import in_order
from lake.table_layout import US_PER_HOUR
from optimize.table_view import Partition

MS_PER_HOUR = 3_600_000
# A keyed table has a row as long as its source has it, and no partition of rows of one time.
KEYED = (
    f"a table that follows a database has no {PROPERTY}: its rows go when their source deletes them; take "
    "the property away"
)


@dataclass(frozen=True, slots=True)
class Expired:
    """What retention takes from a table: data files and the delete files that belong to them.

    `oldest_us`: the event time of the oldest row that goes, µs since 1970 (None: no row goes). `reason`: why
    nothing went, where it should have. `cut`: files of a day or month, of which the rows before
    `first_hour_kept` go; `cut_rows`: how many did.
    """

    table: TableName
    files: tuple[DataFile, ...] = ()
    first_hour_kept: int = 0
    oldest_us: int | None = None
    reason: str = ""
    cut: tuple[DataFile, ...] = ()
    cut_rows: int = 0

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        return tuple(file for file in self.files if file.content == DATA)

    @property
    def rows(self) -> int:
        """Rows that go; those that delete files hide are counted as well."""
        return sum(file.rows for file in self.data_files) + self.cut_rows

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def first_event_us(file: DataFile, time_id: int) -> int | None:
    """The event time of a file's first row, µs since 1970; None where its bounds do not tell."""
    bound = (file.lower_bounds or {}).get(time_id)
    return None if bound is None else int.from_bytes(bound, "little", signed=True)


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
    """The files of all hours, days and months that are past the retention to their last second, and those of
    the span that is past it in part. `deletes`: the table's delete files that belong to one partition."""
    first = first_hour_kept(retention_h, now_ms)
    files = [file for partition in partitions for file in partition.files if file.hours is not None]
    files.sort(key=lambda file: (in_order(file.partition), file.uri))
    data = [file for file in files if _stop(file) <= first]
    gone = [*data, *(file for file in deletes if file.hours is not None and _stop(file) <= first)]
    staying = [file for file in files if file.span is not None and _stop(file) > first]
    cut = [file for file in staying if _begin_us(file, time_id) < first * US_PER_HOUR]
    oldest = min((_begin_us(file, time_id) for file in (*data, *cut)), default=None)
    return Expired(table, tuple(gone), first, oldest, cut=tuple(cut))


def _stop(file: DataFile) -> int:
    """The hour after those of its partition."""
    return (file.hours or range(0)).stop


def _begin_us(file: DataFile, time_id: int) -> int:
    """The time of its first row, or when its partition begins."""
    at = first_event_us(file, time_id)
    return (file.hours or range(0)).start * US_PER_HOUR if at is None else at
