"""Streams that were deleted: how long they can be brought back, when their files go, and when they went.

A delete says what becomes of the files: they go when the time for undo is over, by maintenance's purge, or
they are kept. An administrator may ask for the purge later, or that it does not wait. A catalog without undo
would delete the files at once, so there the purge is not asked for and the answer says that the files stay.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.extras_client import DroppedTable, ExtrasClient
from lake.purged_tables import purged_tables
from lake.tenant import TableId, TenantId, from_identifier
from query.model.deleted_files import Files
from query.model.table_view import EPOCH


@dataclass(frozen=True, slots=True)
class Dropped:
    """A deleted stream. `purge_due`: from then on maintenance removes its files, None: they stay.
    `restorable`: its purge has not begun; `held_by`: the legal hold that keeps its files; `at_once`: they do
    not wait for the time for undo."""

    id: int
    tenant: str
    stream: str
    dropped_at: datetime
    purge_due: datetime | None
    restorable: bool
    held_by: str | None = None
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Purged:
    """A deleted stream whose files went."""

    stream: str
    dropped_at: datetime
    purged_at: datetime
    files: int


def undo_window(own: CatalogClient) -> timedelta | None:
    """How long a stream that is deleted now can be brought back; None where the catalog has no undo. `own`: a
    client with the room's key."""
    try:
        return ExtrasClient(own).undo_window()
    except NotFoundError:
        return None


def drop(caller: CatalogClient, own: CatalogClient, table: TableId, files: Files) -> Dropped | None:
    """Deletes a stream with the caller's key. None where the catalog has no undo: its files stay. Raises
    NotFoundError."""
    has_undo = undo_window(own) is not None
    purge = has_undo and files is Files.AFTER_UNDO
    caller.drop_table(TableName(table.tenant.namespace, table.table), purge=purge)
    found = (
        [each for each in dropped_streams(own, table.tenant) if each.stream == table.stream]
        if has_undo
        else []
    )
    return max(found, key=lambda each: (each.dropped_at, each.id), default=None)


def dropped_streams(own: CatalogClient, tenant: TenantId) -> list[Dropped]:
    """The tenant's deleted streams that can still be brought back, or wait for their purge; none beside a
    catalog without undo."""
    try:
        found = [
            _dropped(table)
            for table in ExtrasClient(own).dropped_tables()
            if table.table.namespace == tenant.namespace
        ]
    except NotFoundError:
        return []
    return [each for each in found if each is not None]


def _dropped(table: DroppedTable) -> Dropped | None:
    tenant, stream = from_identifier(table.table.namespace), from_identifier(table.table.name)
    if tenant is None or stream is None:
        return None
    due = None if table.purge_due_ms is None else _moment(table.purge_due_ms)
    return Dropped(
        table.id,
        tenant,
        stream,
        _moment(table.dropped_ms),
        due,
        restorable=table.purge_started_ms is None,
        held_by=table.held_by,
        at_once=table.at_once,
    )


def purge(
    caller: CatalogClient, own: CatalogClient, tenant: TenantId, dropped_id: int, *, at_once: bool
) -> Dropped:
    """Asks with the caller's key for the purge of a deleted stream of the tenant; it as it is then. Raises
    NotFoundError, RefusedError."""
    if all(each.id != dropped_id for each in dropped_streams(own, tenant)):
        raise NotFoundError(f"the tenant has no deleted stream {dropped_id}; the list tells which there are")
    ExtrasClient(caller).request_purge(dropped_id, at_once=at_once)
    found = next((each for each in dropped_streams(own, tenant) if each.id == dropped_id), None)
    if found is None:
        raise NotFoundError(f"the deleted stream {dropped_id} came back or is purged")
    return found


def purged_streams(own: CatalogClient, tenant: TenantId) -> list[Purged]:
    """The tenant's deleted streams whose files went in the last 90 days; none beside a catalog without
    undo."""
    try:
        found = [each for each in purged_tables(own) if each.table.namespace == tenant.namespace]
    except NotFoundError:
        return []
    named = [(from_identifier(each.table.name), each) for each in found]
    return [
        Purged(stream, _moment(each.dropped_ms), _moment(each.purged_ms), each.files)
        for stream, each in named
        if stream is not None
    ]


def _moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)
