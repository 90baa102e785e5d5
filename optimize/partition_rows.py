"""Rows of the catalog's index of changed partitions."""

from collections.abc import Iterator
from dataclasses import dataclass

from lake.catalog_client import NAMESPACE_SEPARATOR, CatalogClient, TableName

PATH = "/firn/v1/dirty-partitions"
PAGE_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition as the catalog's index has it. `path`: its name, `changed_ms`: its last change, ms since
    1970."""

    table: TableName
    path: str
    data_files: int
    size_bytes: int
    changed_ms: int


def changed_partitions(
    catalog: CatalogClient, *, files_min: int, since_ms: int = 0
) -> Iterator[PartitionRow]:
    """Partitions of at least so many files, data and delete files together, changed since then; the oldest
    change first."""
    query = {
        "min-files": str(files_min),
        "changed-since-ms": str(max(0, since_ms)),
        "pageSize": str(PAGE_PARTITIONS),
    }
    token: str | None = None
    while True:
        page = catalog.get(PATH, **query, pageToken=token)
        for row in page["partitions"]:
            table = TableName(
                NAMESPACE_SEPARATOR.join(row["identifier"]["namespace"]), row["identifier"]["name"]
            )
            yield PartitionRow(table, row["partition"], row["data-files"], row["bytes"], row["changed-ms"])
        token = page.get("next-page-token")
        if not token:
            return
