"""Streams that were deleted: how long they can be brought back, and when their files go.

A delete asks our catalog for the purge, which maintenance does when the time for undo is over. A catalog
without undo would delete the files at once, so there the purge is not asked for and the answer says that the
files stay.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.tenant import TableId, TenantId, from_identifier
from query.model.catalog_lists import entries
from query.model.table_view import EPOCH

PATH = "/firn/v1/dropped-tables"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A deleted stream. `purge_due`: from then on maintenance removes its files, None: they stay.
    `restorable`: its purge has not begun."""

    id: int
    tenant: str
    stream: str
    dropped_at: datetime
    purge_due: datetime | None
    restorable: bool


def undo_window(own: CatalogClient) -> timedelta | None:
    """How long a stream that is deleted now can be brought back; None where the catalog has no undo. `own`: a
    client with the room's key."""
    try:
        window_ms = own.get(PATH, pageSize=1).get("undo-window-ms")
    except NotFoundError:
        return None
    return None if window_ms is None else timedelta(milliseconds=int(window_ms))


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
            _dropped(entry)
            for entry in entries(own, PATH, "dropped-tables")
            if entry["identifier"]["namespace"] == [tenant.namespace]
        ]
    except NotFoundError:
        return []
    return [each for each in found if each is not None]


def _dropped(entry: dict[str, Any]) -> Dropped | None:
    tenant, stream = (
        from_identifier(entry["identifier"]["namespace"][0]),
        from_identifier(entry["identifier"]["name"]),
    )
    if tenant is None or stream is None:
        return None
    due = entry.get("purge-due-ms")
    at, purge_due = _moment(int(entry["dropped-ms"])), None if due is None else _moment(int(due))
    return Dropped(
        int(entry["id"]), tenant, stream, at, purge_due, restorable=not entry.get("purge-started-ms")
    )


def _moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)
