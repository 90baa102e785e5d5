"""Dropped tables: they can come back for a while, then their files may be purged, bound to the uuid in their
location.

A drop that asked for a purge is purgeable after `undo_window_s`; one that did not is kept until somebody
decides. Whoever may ask for it does not wait for that (`AT_ONCE`). Once a purge has begun, there is no way
back.
"""

from typing import Any

from sqlalchemy import Connection, Row, text

from catalog.model.error_response import CatalogError, no_such_namespace
from catalog.model.identifier import Identifier, dotted, levels, parse_identifier
from catalog.store.database import Database, dropped_tables, partitions, tables
from catalog.store.holds import check_kept, check_not_held, holds_of
from catalog.store.name_journal import note_dropped, note_purged
from catalog.store.namespaces import namespace_exists
from catalog.store.tables import find, lives_already, living_with_uuid, taken, uuids_in_use

Json = dict[str, Any]
# Values of `purge_requested`.
LATER, AT_ONCE = 1, 2
_IS_DUE = f"(purge_requested = {AT_ONCE} OR (purge_requested = {LATER} AND dropped_ms <= :due))"
_COLUMNS = (
    "id, namespace, name, uuid, location, metadata_location, dropped_ms, purge_requested, purge_started_ms"
)


def list_dropped(
    connection: Connection, *, purgeable_before_ms: int | None, after_id: int, limit: int
) -> list[Json]:
    """Dropped tables in the order of their ids; only those dropped before a time and to be purged, where one
    is given."""
    due = "" if purgeable_before_ms is None else f" AND {_IS_DUE}"
    statement = text(f"SELECT {_COLUMNS} FROM dropped_tables WHERE id > :after{due} ORDER BY id LIMIT :limit")
    rows = connection.execute(
        statement,
        {"after": after_id, "limit": limit}
        | ({} if purgeable_before_ms is None else {"due": purgeable_before_ms}),
    )
    return [_json(tuple(row)) for row in rows]


def _json(row: tuple[Any, ...]) -> Json:
    return {
        "id": row[0],
        "identifier": {"namespace": levels(row[1]), "name": row[2]},
        "table-uuid": row[3],
        "location": row[4],
        "metadata-location": row[5],
        "dropped-ms": row[6],
        "purge-requested": bool(row[7]),
        "purge-at-once": row[7] == AT_ONCE,
        "purge-started-ms": row[8],
    }


def mark_held(connection: Connection, entries: list[Json]) -> None:
    """Says of each entry which legal hold is on it: such a table is not purged."""
    for entry in entries:
        holds = holds_of(connection, parse_identifier(entry["identifier"])).holds
        entry["held-by"] = str(holds[0]) if holds else None


def mark_shared(connection: Connection, entries: list[Json]) -> None:
    """Says of each entry whether a living table lies at, below or above its location: such a prefix must not
    be deleted."""
    statement = text(
        "SELECT 1 FROM tables WHERE location = :at OR (location >= :below AND location < :end) "
        "OR (:at LIKE location || '/%' AND SUBSTR(:at, 1, LENGTH(location) + 1) = location || '/') LIMIT 1"
    )
    for entry in entries:
        at = entry["location"]
        found = connection.execute(statement, {"at": at, "below": f"{at}/", "end": f"{at}0"}).scalar()
        entry["location-shared"] = found is not None


def undo_drop(
    connection: Connection,
    database: Database,
    *,
    identifier: Identifier | None,
    dropped_id: int | None,
    new_name: Identifier | None,
) -> Identifier:
    """Brings a dropped table back, under its old name or another; returns its name. Raises CatalogError 404,
    409 where the name is taken, its purge has begun, or it was registered again and lives, or 403 where a
    legal hold would not be on it any more."""
    row = _find_dropped(connection, database, identifier, dropped_id)
    target = new_name or Identifier(row.namespace, row.name)
    if row.purge_started_ms is not None:
        raise CatalogError(
            409, "PurgeStartedException", f"the purge of {target} has begun; the table cannot come back"
        )
    if not namespace_exists(connection, target.namespace, locking=database.locking()):
        raise no_such_namespace(dotted(target.namespace))
    old_name = Identifier(row.namespace, row.name)
    if target != old_name:
        check_kept(connection, database, old_name, target)
    other = find(connection, target)
    if other is not None:
        raise taken(target, other.kind, row.kind)
    living = living_with_uuid(connection, row.uuid)
    if living is not None:
        raise lives_already(living)
    values = {
        "id": row.id,
        "ident": target.key,
        "namespace": target.namespace,
        "name": target.name,
        "kind": row.kind,
        "uuid": row.uuid,
        "location": row.location,
        "metadata_location": row.metadata_location,
        "created_ms": row.created_ms,
        "changed_ms": row.dropped_ms,
    }
    connection.execute(tables.insert(), values)
    connection.execute(dropped_tables.delete().where(dropped_tables.c.id == row.id))
    return target


def _find_dropped(
    connection: Connection, database: Database, identifier: Identifier | None, dropped_id: int | None
) -> Row[Any]:
    """The dropped table of this id, else the one that had this name last. Raises CatalogError 404."""
    condition, value = (
        ("id = :value", dropped_id)
        if dropped_id is not None
        else ("ident = :value", identifier.key if identifier else "")
    )
    statement = (
        f"SELECT {_COLUMNS}, kind, created_ms FROM dropped_tables WHERE {condition} ORDER BY "
        f"dropped_ms DESC, id DESC LIMIT 1{database.locking()}"
    )
    row = connection.execute(text(statement), {"value": value}).one_or_none()
    if row is None:
        raise CatalogError(
            404,
            "NoSuchTableException",
            f"no dropped table {identifier or dropped_id} is kept; list the dropped ones",
        )
    return row


def start_purge(
    connection: Connection, database: Database, dropped_id: int, *, purgeable_before_ms: int, now_ms: int
) -> Json:
    """Closes the way back, so that files may be deleted. Raises CatalogError 404, 409 where it is too early
    or nobody asked for it, or 403 where a legal hold is on the table."""
    statement = f"SELECT {_COLUMNS} FROM dropped_tables WHERE id = :id{database.locking()}"
    row = connection.execute(text(statement), {"id": dropped_id}).one_or_none()
    if row is None:
        raise CatalogError(
            404, "NoSuchTableException", f"no dropped table has id {dropped_id}; it came back or is purged"
        )
    check_not_held(connection, database, Identifier(row.namespace, row.name), "is not purged")
    entry = _json(tuple(row))
    is_over = entry["purge-at-once"] or entry["dropped-ms"] <= purgeable_before_ms
    if not entry["purge-requested"] or not is_over:
        raise CatalogError(
            409,
            "NotPurgeableException",
            f"dropped table {dropped_id} may not be purged yet; see the list of purgeable ones",
        )
    mark_shared(connection, [entry])
    connection.execute(
        dropped_tables.update()
        .where(dropped_tables.c.id == dropped_id)
        .where(dropped_tables.c.purge_started_ms.is_(None))
        .values(purge_started_ms=now_ms)
    )
    _note(connection, dropped_id)
    return entry


def _note(connection: Connection, dropped_id: int) -> None:
    """Tells the journal of names how a dropped table stands."""
    statement = text(
        "SELECT ident, uuid, purge_requested, dropped_ms, purge_started_ms FROM dropped_tables WHERE id = :id"
    )
    ident, uuid, purge, dropped_ms, purge_started_ms = connection.execute(statement, {"id": dropped_id}).one()
    note_dropped(
        connection, ident, uuid, purge=bool(purge), dropped_ms=dropped_ms, purge_started_ms=purge_started_ms
    )


def finish_purge(connection: Connection, database: Database, dropped_id: int) -> None:
    """Forgets a dropped table whose files are gone; its name is free. Raises CatalogError 409 where the purge
    was never begun."""
    found = connection.execute(
        text("SELECT uuid, purge_started_ms FROM dropped_tables WHERE id = :id"), {"id": dropped_id}
    ).one_or_none()
    if found is None:
        return
    if found[1] is None:
        raise CatalogError(
            409,
            "NotPurgeableException",
            f"the purge of dropped table {dropped_id} was not begun; begin it first",
        )
    connection.execute(dropped_tables.delete().where(dropped_tables.c.id == dropped_id))
    connection.execute(partitions.delete().where(partitions.c.table_id == dropped_id))
    connection.execute(text("DELETE FROM uncounted_tables WHERE table_id = :id"), {"id": dropped_id})
    if not uuids_in_use(connection, database, [found[0]]):  # registered again meanwhile, it lives
        note_purged(connection, found[0])


def request_purge(connection: Connection, database: Database, dropped_id: int, *, at_once: bool) -> None:
    """Asks for the purge of a table that was dropped without, or for one that does not wait for the time for
    undo. Raises CatalogError 404, or 403 where a legal hold is on the table."""
    statement = (
        f"SELECT namespace, name, purge_requested FROM dropped_tables WHERE id = :id{database.locking()}"
    )
    found = connection.execute(text(statement), {"id": dropped_id}).one_or_none()
    if found is None:
        raise CatalogError(
            404, "NoSuchTableException", f"no dropped table has id {dropped_id}; it came back or is purged"
        )
    namespace, name, before = found
    check_not_held(connection, database, Identifier(namespace, name), "is not purged")
    wanted = max(before, AT_ONCE if at_once else LATER)
    connection.execute(
        dropped_tables.update().where(dropped_tables.c.id == dropped_id).values(purge_requested=wanted)
    )
    _note(connection, dropped_id)
