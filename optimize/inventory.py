"""Which tables maintenance has to look at: from the catalog's index of changed partitions, or from all tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lake.catalog_client import NAMESPACE_SEPARATOR, CatalogClient, TableName
from lake.settings import OptimizeSettings
from lake.table_layout import parse_partition_path
from optimize.planner import MS_PER_HOUR

PATH = "/firn/v1/dirty-partitions"
PAGE_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A table to look at, and its hours that may have something to merge (None: nobody knows, all of them).

    `files`, `size_bytes`: what these hours hold, where it is known; only the order of work depends on them.
    """

    table: TableName
    hours: frozenset[int] | None = None
    files: int = 0
    size_bytes: int = 0


class Inventory(Protocol):
    """Where candidates come from."""

    def candidates(self) -> Iterator[Candidate]:
        """Tables that may have something to do, each once."""


@dataclass(frozen=True, slots=True)
class AllTables:
    """Every table of the catalog: right with any catalog, slow with many tables."""

    catalog: CatalogClient

    def candidates(self) -> Iterator[Candidate]:
        for namespace in self.catalog.namespaces():
            for table in self.catalog.tables(namespace):
                yield Candidate(table)


@dataclass(frozen=True, slots=True)
class NamedTables:
    """The tables somebody named."""

    tables: Sequence[TableName]

    def candidates(self) -> Iterator[Candidate]:
        return (Candidate(table) for table in dict.fromkeys(self.tables))


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition as the catalog's index has it. `path`: its name, `changed_ms`: its last change, ms since 1970."""

    table: TableName
    path: str
    data_files: int
    size_bytes: int
    changed_ms: int


def changed_partitions(catalog: CatalogClient, *, files_min: int, since_ms: int = 0) -> Iterator[PartitionRow]:
    """Partitions of at least so many files, data and delete files together, changed since then; the oldest change first."""
    query = {"min-files": str(files_min), "changed-since-ms": str(max(0, since_ms)), "pageSize": str(PAGE_PARTITIONS)}
    token: str | None = None
    while True:
        page = catalog.get(PATH, **query, pageToken=token)
        for row in page["partitions"]:
            table = TableName(NAMESPACE_SEPARATOR.join(row["identifier"]["namespace"]), row["identifier"]["name"])
            yield PartitionRow(table, row["partition"], row["data-files"], row["bytes"], row["changed-ms"])
        token = page.get("next-page-token")
        if not token:
            return


@dataclass(frozen=True, slots=True)
class DirtyPartitions:
    """The tables that Firn's catalog knows to have closed hours of two files or more.

    Tables that only have got many snapshots are found by `snapshot_watch`, and all others once a day.
    """

    catalog: CatalogClient
    settings: OptimizeSettings
    now_ms: Callable[[], int]

    def candidates(self) -> Iterator[Candidate]:
        closed: dict[TableName, dict[int, PartitionRow]] = {}
        open_from = (self.now_ms() - int(self.settings.closed_after_s * 1000)) // MS_PER_HOUR
        for row in changed_partitions(self.catalog, files_min=2):
            hour = parse_partition_path(row.path)
            if hour is not None and hour < open_from:
                closed.setdefault(row.table, {})[hour] = row
        for table, hours in sorted(closed.items()):
            rows = hours.values()
            yield Candidate(table, frozenset(hours), sum(row.data_files for row in rows), sum(row.size_bytes for row in rows))


def open_inventory(catalog: CatalogClient, settings: OptimizeSettings, now_ms: Callable[[], int], only: Sequence[TableName] = ()) -> Inventory:
    """The tables named by `only`, else the best inventory this catalog offers."""
    if only:
        return NamedTables(only)
    return DirtyPartitions(catalog, settings, now_ms) if catalog.has_extras else AllTables(catalog)
