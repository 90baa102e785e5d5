"""Retention: hours, days and months past it (`lake/retention.py`) go, by metadata alone; of a day or month
that is past it in part, those hours go: its file is written anew without them. What a legal hold is on stays.
Files that nobody reaches any more follow after the readers' grace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lake.catalog_client import TableName
from lake.data_file import DATA, DataFile
from lake.holds import NO_HOLDS, TableHolds
from lake.retention import PROPERTY, first_hour_kept
from lake.span import in_order
from lake.table_layout import US_PER_HOUR
from optimize.table_view import Partition

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
    `first_hour_kept` go; `cut_rows`: how many did. `held`: files that stay although they are past it, because
    of `holds`, which were those in force.
    """

    table: TableName
    files: tuple[DataFile, ...] = ()
    first_hour_kept: int = 0
    oldest_us: int | None = None
    reason: str = ""
    cut: tuple[DataFile, ...] = ()
    cut_rows: int = 0
    held: tuple[DataFile, ...] = ()
    holds: TableHolds = NO_HOLDS

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


def expired_files(
    table: TableName,
    partitions: Iterable[Partition],
    deletes: Sequence[DataFile],
    retention_h: int,
    now_ms: int,
    *,
    time_id: int,
    holds: TableHolds = NO_HOLDS,
) -> Expired:
    """The files of all hours, days and months that are past the retention to their last second, and those of
    the span that is past it in part. `deletes`: the table's delete files that belong to one partition. A
    partition of which a hold is on anything that would go stays whole."""
    first = first_hour_kept(retention_h, now_ms)
    files = [file for partition in partitions for file in partition.files if file.hours is not None]
    files.sort(key=lambda file: (in_order(file.partition), file.uri))

    def is_held(file: DataFile) -> bool:
        return holds.on_hours(_hours(file, first)) is not None

    past = [file for file in files if _stop(file) <= first]
    staying = [file for file in files if file.span is not None and _stop(file) > first]
    past_in_part = [file for file in staying if _begin_us(file, time_id) < first * US_PER_HOUR]
    data, cut = ([file for file in each if not is_held(file)] for each in (past, past_in_part))
    held = tuple(file for file in (*past, *past_in_part) if is_held(file))
    gone = [file for file in deletes if file.hours is not None and _stop(file) <= first and not is_held(file)]
    oldest = min((_begin_us(file, time_id) for file in (*data, *cut)), default=None)
    return Expired(table, (*data, *gone), first, oldest, cut=tuple(cut), held=held, holds=holds)


def _hours(file: DataFile, first: int) -> range:
    """Those of its partition that are past the retention."""
    hours = file.hours or range(0)
    return range(hours.start, min(hours.stop, first))


def _stop(file: DataFile) -> int:
    """The hour after those of its partition."""
    return (file.hours or range(0)).stop


def _begin_us(file: DataFile, time_id: int) -> int:
    """The time of its first row, or when its partition begins."""
    at = first_event_us(file, time_id)
    return (file.hours or range(0)).start * US_PER_HOUR if at is None else at
