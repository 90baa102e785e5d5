"""Tables whose files are gone, as `optimize` notes them in the catalog's work list and `query` tells of them:
the catalog itself forgets a table with its purge. A note goes after 90 days."""

from collections.abc import Iterator
from dataclasses import dataclass

from lake.catalog_client import CatalogClient, TableName
from lake.extras_client import ExtrasClient, Task

KIND = "optimize.purged"
KEPT_MS = 90 * 86_400_000


@dataclass(frozen=True, slots=True)
class PurgedTable:
    """A table that was dropped, and whose files went. Times are ms since 1970; `purged_ms` is the
    catalog's."""

    table: TableName
    uuid: str
    dropped_ms: int
    files: int
    purged_ms: int = 0


def note_purged(catalog: CatalogClient, purged: PurgedTable, *, lease: str | None = None) -> None:
    """Notes a table whose files are gone; once, however often it is said. Raises what `ExtrasClient`
    raises."""
    record = {"table": purged.table.to_json(), "dropped-ms": purged.dropped_ms, "files": purged.files}
    task = Task(f"{KIND}:{purged.uuid}", KIND, "done", 0, record)
    ExtrasClient(catalog).save_tasks([task], lease=lease)


def purged_tables(catalog: CatalogClient) -> Iterator[PurgedTable]:
    """Returns what is noted. Raises what `ExtrasClient` raises."""
    for task in ExtrasClient(catalog).tasks(KIND):
        table, record = TableName.parse(task.record["table"]), task.record
        uuid = task.id.removeprefix(f"{KIND}:")
        yield PurgedTable(table, uuid, int(record["dropped-ms"]), int(record["files"]), task.changed_ms)


def forget_old(catalog: CatalogClient, now_ms: int) -> None:
    """Takes notes away that are old. Raises what `ExtrasClient` raises."""
    for each in list(purged_tables(catalog)):
        if each.purged_ms < now_ms - KEPT_MS:
            ExtrasClient(catalog).remove_task(f"{KIND}:{each.uuid}")
