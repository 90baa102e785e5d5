"""Streams that were deleted: how long they can be brought back, and when their files go.

A delete asks our catalog for the purge, which maintenance does when the time for undo is over. A catalog
without undo would delete the files at once, so there the purge is not asked for and the answer says that the
files stay.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.extras_client import DroppedTable, ExtrasClient
from lake.tenant import TableId, TenantId, from_identifier
from query.model.table_view import EPOCH


@dataclass(frozen=True, slots=True)
class Dropped:
    """A deleted stream. `purge_due`: from then on maintenance removes its files, None: they stay.
    `restorable`: its purge has not begun; `held_by`: the legal hold that keeps its files."""

    id: int
    tenant: str
    stream: str
    dropped_at: datetime
    purge_due: datetime | None
    restorable: bool
    held_by: str | None = None


def undo_window(own: CatalogClient) -> timedelta | None:
    """How long a stream that is deleted now can be brought back; None where the catalog has no undo. `own`: a
    client with the room's key."""
    try:
        return ExtrasClient(own).undo_window()
    except NotFoundError:
        return None


def drop(caller: CatalogClient, own: CatalogClient, table: TableId) -> Dropped | None:
    """Deletes a stream with the caller's key. None where the catalog has no undo: its files stay. Raises
    NotFoundError."""
    has_undo = undo_window(own) is not None
    caller.drop_table(TableName(table.tenant.namespace, table.table), purge=has_undo)
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
    )


def _moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)
