"""Purge of dropped tables: once the time for undo is over, their whole prefix goes, and then their name is
free.

The prefix must be the table's own: bound to its uuid, below our warehouse, with no living table at, above or
below it. Any other table keeps its files; what is dropped there is forgotten only when a person has looked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import structlog

from lake.catalog_client import CatalogClient
from lake.errors import FirnError, NotFoundError
from lake.extras_client import DroppedTable, ExtrasClient
from lake.purged_tables import PurgedTable, note_purged
from lake.storage import AnyStorage, canonical
from optimize.deletions import Throttle

DELETE_FILES = 200
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped table whose purge is due. `refusal`: why its files must stay, empty where they may go;
    `entry`: as the catalog has it."""

    id: int
    name: str
    uuid: str
    location: str
    refusal: str
    entry: DroppedTable


def own_prefix(location: str, table_uuid: str, warehouse: str) -> str:
    """The prefix that holds a table's files and no others, with its trailing slash. Raises ValueError where
    it is not certainly this table's alone."""
    prefix, root = canonical(location).rstrip("/") + "/", canonical(warehouse).rstrip("/") + "/"
    if not root.removesuffix("/") or not prefix.startswith(root) or prefix == root:
        raise ValueError(
            f"{location} is not below the warehouse {warehouse}: somebody else's files may lie there"
        )
    parts = prefix[len(root) :].rstrip("/").split("/")
    if any(part in ("", ".", "..") or unquote(part) != part for part in parts):
        raise ValueError(f"{location} is not a plain path")
    if parts[-1].lower() != table_uuid.lower():
        raise ValueError(f"{location} does not end with the table's uuid {table_uuid}: it may be shared")
    return prefix


def purgeable(
    catalog: CatalogClient, dropped_before_ms: int, *, only_at_once: bool = False
) -> Iterator[Dropped]:
    """Tables dropped before then whose purge was asked for and whose time for undo, which the catalog knows,
    is over; and those that were asked for without waiting for either, or only these."""
    warehouse = catalog.warehouse or ""
    try:
        for table in ExtrasClient(catalog).dropped_tables(purgeable=True):
            if table.at_once or (table.dropped_ms <= dropped_before_ms and not only_at_once):
                yield _dropped(table, warehouse)
    except NotFoundError:  # a catalog that keeps no such list
        return


def _dropped(table: DroppedTable, warehouse: str) -> Dropped:
    refusal = "a living table shares its location" if table.shares_location else ""
    refusal = f"{table.held_by} is on it" if table.held_by else refusal
    try:
        own_prefix(table.location, table.uuid, warehouse)
    except (ValueError, FirnError) as error:
        refusal = refusal or str(error)
    return Dropped(table.id, table.table.dotted, table.uuid, table.location, refusal, table)


def purge(catalog: CatalogClient, storage: AnyStorage, dropped: Dropped, throttle: Throttle) -> int:
    """Purges one table, and notes that its files are gone; returns the number of files deleted. A crash in
    between is made up for by the next purge of the same table."""
    if dropped.refusal:
        log.warning(
            "optimize.purge_refused", table=dropped.name, location=dropped.location, reason=dropped.refusal
        )
        return 0
    begun = ExtrasClient(catalog).start_purge(dropped.id)
    if begun.shares_location or begun.uuid != dropped.uuid or begun.location != dropped.location:
        log.warning(
            "optimize.purge_refused",
            table=dropped.name,
            location=dropped.location,
            reason="its location is shared or has changed",
        )
        return 0
    prefix = own_prefix(dropped.location, dropped.uuid, catalog.warehouse or "")
    deleted, page = 0, list[str]()
    for stored in storage.list(prefix):
        if not stored.uri.startswith(prefix):
            raise ValueError(f"the listing of {prefix} holds {stored.uri}; nothing more is deleted")
        page.append(stored.uri)
        if len(page) >= DELETE_FILES:
            deleted += _delete(storage, page, prefix, throttle)
    deleted += _delete(storage, page, prefix, throttle)
    storage.prune(prefix, lambda _: True)
    note_purged(catalog, PurgedTable(dropped.entry.table, dropped.uuid, dropped.entry.dropped_ms, deleted))
    ExtrasClient(catalog).finish_purge(dropped.id)
    log.info("optimize.purged", table=dropped.name, files=deleted)
    return deleted


def _delete(storage: AnyStorage, page: list[str], prefix: str, throttle: Throttle) -> int:
    throttle.take(len(page))
    storage.delete(page, root=prefix)
    count = len(page)
    page.clear()
    return count
