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
    """A table to look at, and its hours that may have something to merge (None: nobody knows, all of them)."""

    table: TableName
    hours: frozenset[int] | None = None


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
class DirtyPartitions:
    """The tables that Firn's catalog knows to have partitions of two files or more.

    A table whose only such partitions are open hours is looked at for its snapshots alone, and only when it can have too many.
    """

    catalog: CatalogClient
    settings: OptimizeSettings
    now_ms: Callable[[], int]

    def candidates(self) -> Iterator[Candidate]:
        closed: dict[TableName, set[int]] = {}
        growing: set[TableName] = set()
        open_from = (self.now_ms() - int(self.settings.closed_after_s * 1000)) // MS_PER_HOUR
        token: str | None = None
        while True:
            page = self.catalog.get(PATH, **{"min-files": "2", "pageSize": str(PAGE_PARTITIONS), "pageToken": token})
            for row in page["partitions"]:
                table = TableName(NAMESPACE_SEPARATOR.join(row["identifier"]["namespace"]), row["identifier"]["name"])
                hour = parse_partition_path(row["partition"])
                if hour is not None and hour < open_from:
                    closed.setdefault(table, set()).add(hour)
                elif row["data-files"] > self.settings.snapshots_max:
                    growing.add(table)
            token = page.get("next-page-token")
            if not token:
                break
        for table in sorted({*closed, *growing}):
            yield Candidate(table, frozenset(closed.get(table, ())))


def open_inventory(catalog: CatalogClient, settings: OptimizeSettings, now_ms: Callable[[], int], only: Sequence[TableName] = ()) -> Inventory:
    """The tables named by `only`, else the best inventory this catalog offers."""
    if only:
        return NamedTables(only)
    return DirtyPartitions(catalog, settings, now_ms) if catalog.has_extras else AllTables(catalog)
