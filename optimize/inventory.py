"""Which tables maintenance has to look at: from the catalog's index of changed partitions, or from all
tables."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ChangedPartition, ExtrasClient, PartitionGroup
from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from lake.span import Partition, parse_span_path
from lake.table_layout import parse_bucket_path, parse_partition_path
from optimize.cold_hours import ColdHours
from optimize.lone_files import LoneFiles

# A table that had nothing to do is looked at again after so long, whatever was foretold: a property of it may
# have changed since.
ASKED_AGAIN_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A table to look at, and its partitions (hours, buckets of a keyed table, spans) that may have something
    to merge (None: nobody knows, all of them).

    `files`, `size_bytes`: what these partitions hold, where it is known; only the order of work depends on
    them.
    """

    table: TableName
    partitions: frozenset[Partition] | None = None
    files: int = 0
    size_bytes: int = 0


class Inventory(Protocol):
    """Where candidates come from."""

    def candidates(self) -> Iterator[Candidate]:
        """Tables that may have something to do, each once."""

    def settle(self, unfinished: Collection[str], resting: Mapping[str, int | None]) -> None:
        """A round over the candidates has ended; `unfinished` are those that wait, fail or pause. The others
        are looked at again when they change. `resting`: those with nothing to do, and from when on (ms since
        1970) time alone may give them something."""


@dataclass(frozen=True, slots=True)
class AllTables:
    """Every table of the catalog: right with any catalog, slow with many tables."""

    catalog: CatalogClient

    def candidates(self) -> Iterator[Candidate]:
        for namespace in self.catalog.namespaces():
            for table in self.catalog.tables(namespace):
                yield Candidate(table)

    def settle(self, unfinished: Collection[str], resting: Mapping[str, int | None]) -> None:
        """All are looked at every time."""


@dataclass(frozen=True, slots=True)
class NamedTables:
    """The tables somebody named."""

    tables: Sequence[TableName]

    def candidates(self) -> Iterator[Candidate]:
        return (Candidate(table) for table in dict.fromkeys(self.tables))

    def settle(self, unfinished: Collection[str], resting: Mapping[str, int | None]) -> None:
        """All are looked at every time."""


@dataclass(slots=True)
class DirtyPartitions:
    """The tables that Firn's catalog knows to have closed hours, buckets or spans of two files or more
    (delete files among them), closed hours of one as ingestion wrote it, or hours and days that became cold.

    Tables that only have got many snapshots are found by `snapshot_watch`, and all others once a day.
    """

    catalog: CatalogClient
    settings: OptimizeSettings
    now_ms: Callable[[], int]
    lone_files: LoneFiles
    cold_hours: ColdHours
    _crowded: set[tuple[TableName, str]] = field(
        default_factory=set
    )  # as the last round had them: with one file they are merged
    _asked: dict[str, int] = field(default_factory=dict)  # what this round asks tables for, by its hash
    # Of tables that had nothing to do: what they were asked for, and until when that is not asked again.
    _resting: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def _open_from(self) -> int:
        return (self.now_ms() - int(self.settings.merge.closed_after_s * 1000)) // MS_PER_HOUR

    def candidates(self) -> Iterator[Candidate]:
        due: dict[TableName, dict[Partition, ChangedPartition | PartitionGroup]] = {}
        open_from, merged, self._crowded = self._open_from, self._crowded, set()
        for row in ExtrasClient(self.catalog).changed_partitions(files_min=2):
            self._crowded.add((row.table, row.path))
            _add(due, row, open_from)
        for row in self.lone_files.rows(self.now_ms(), merged):
            _add(due, row, open_from)
        for span, group in self.cold_hours.spans(self.now_ms()):
            due.setdefault(group.table, {})[span] = group
        self._asked.clear()
        for table, partitions in sorted(due.items()):
            rows = partitions.values()
            self._asked[str(table)] = asked = hash(frozenset(partitions.items()))
            if self._rests(str(table), asked):
                continue
            yield Candidate(
                table,
                frozenset(partitions),
                sum(row.data_files for row in rows),
                sum(row.size_bytes for row in rows),
            )

    def _rests(self, table: str, asked: int) -> bool:
        """Whether a table was asked for the same before, and had nothing to do: many have partitions of
        several files that stay as they are."""
        before, until_ms = self._resting.get(table, (0, 0))
        return before == asked and self.now_ms() < until_ms

    def settle(self, unfinished: Collection[str], resting: Mapping[str, int | None]) -> None:
        latest_ms = self.now_ms() + ASKED_AGAIN_MS
        for table, until_ms in resting.items():
            if table in self._asked and table not in unfinished:
                self._resting[table] = self._asked[table], min(until_ms or latest_ms, latest_ms)
        self._resting = {name: each for name, each in self._resting.items() if name in self._asked}
        self.lone_files.settle(unfinished, self._open_from)
        self.cold_hours.settle(unfinished)


def _add(
    due: dict[TableName, dict[Partition, ChangedPartition | PartitionGroup]],
    row: ChangedPartition,
    open_from: int,
) -> None:
    hour = parse_partition_path(row.path)
    closed: Partition | None = hour if hour is not None and hour < open_from else None
    for found in (closed, parse_bucket_path(row.path), parse_span_path(row.path)):
        if found is not None:
            due.setdefault(row.table, {})[found] = row


def open_inventory(
    catalog: CatalogClient,
    settings: OptimizeSettings,
    now_ms: Callable[[], int],
    only: Sequence[TableName] = (),
    lease: str | None = None,
) -> Inventory:
    """The tables named by `only`, else the best inventory this catalog offers. `lease`: the leader's, by
    which it may write."""
    if only:
        return NamedTables(only)
    if not catalog.has_extras:
        return AllTables(catalog)
    return DirtyPartitions(
        catalog,
        settings,
        now_ms,
        LoneFiles(catalog, settings.merge.lone_file_bytes_min, lease),
        ColdHours(catalog, settings),
    )
