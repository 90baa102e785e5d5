"""Rows of tables and views: where each one's current metadata file is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, TextClause, text

from catalog.model.error_response import (
    CatalogError,
    already_exists,
    no_such_namespace,
    no_such_table,
    no_such_view,
)
from catalog.model.identifier import Identifier, dotted
from catalog.store import name_journal
from catalog.store.database import Database, by_bytes, dropped_tables, look_up, tables
from catalog.store.holds import check_kept, check_not_held
from catalog.store.namespaces import namespace_exists

TABLE = "table"
VIEW = "view"
_COLUMNS = "id, ident, kind, uuid, location, metadata_location"
_FIND = text(f"SELECT {_COLUMNS} FROM tables WHERE ident = :ident")


@dataclass(frozen=True, slots=True)
class Head:
    """A table's or view's current state as the database knows it."""

    id: int
    ident: str
    kind: str
    uuid: str
    location: str
    metadata_location: str


def missing(identifier: Identifier, kind: str) -> CatalogError:
    """The 404 for a table or view."""
    return no_such_view(str(identifier)) if kind == VIEW else no_such_table(str(identifier))


def taken(identifier: Identifier, kind: str, wanted: str) -> CatalogError:
    """The 409 for a name that a table or view of `kind` has already."""
    what = "View" if kind == VIEW else "Table"
    return already_exists(what if kind == wanted else f"{what} with same name", str(identifier))


def find(connection: Connection, identifier: Identifier, kind: str | None = None) -> Head | None:
    """The row of one identifier, of one kind where given."""
    row = look_up(connection, _FIND, {"ident": identifier.key})
    return None if row is None or (kind is not None and row[2] != kind) else Head(*row)


def require(connection: Connection, identifier: Identifier, kind: str) -> Head:
    """The row of one identifier. Raises CatalogError 404."""
    head = find(connection, identifier, kind)
    if head is None:
        raise missing(identifier, kind)
    return head


def find_many(
    connection: Connection, database: Database, keys: Iterable[str], *, lock: bool = False
) -> dict[str, Head]:
    """The rows of many identifiers by their key, locked until the transaction ends where asked."""
    statement = _find_many(database.among("ident"), f" ORDER BY ident{database.locking()}" if lock else "")
    rows = connection.execute(statement, {"keys": database.many(sorted(set(keys)))}).all()
    return {row[1]: Head(*row) for row in rows}


@cache
def _find_many(condition: str, locking: str) -> TextClause:
    # Two of these run in every commit, and making one costs half as much as running it.
    return text(f"SELECT {_COLUMNS} FROM tables WHERE {condition}{locking}")


def uuids_in_use(connection: Connection, database: Database, uuids: Sequence[str]) -> set[str]:
    """Which of these table uuids belong to a table, living or dropped."""
    condition = database.among("uuid")
    statement = (
        f"SELECT uuid FROM tables WHERE {condition} UNION SELECT uuid FROM dropped_tables WHERE {condition}"
    )
    return {str(row[0]) for row in connection.execute(text(statement), {"keys": database.many(uuids)})}


def living_with_uuid(connection: Connection, table_uuid: str) -> str | None:
    """The key of the living table that has a uuid, None where there is none."""
    return connection.execute(
        text("SELECT ident FROM tables WHERE uuid = :uuid"), {"uuid": table_uuid}
    ).scalar()


def lives_already(key: str) -> CatalogError:
    """The 409 for a second name of the same table: what one of them no longer needs would be deleted under
    the other."""
    return already_exists(
        "Table with the same uuid", f"{dotted(key)}; rename it, or drop it without purge first"
    )


def reserved_names(
    connection: Connection, database: Database, keys: Iterable[str], *, kept_since_ms: int
) -> set[str]:
    """Which of these identifiers belong to a table that was dropped and may still come back: until its purge
    is done, or, where nobody asked for one, until the time for undo is over."""
    condition = database.among("ident")
    statement = (
        f"SELECT DISTINCT ident FROM dropped_tables WHERE {condition} AND (purge_requested > 0 OR "
        "dropped_ms > :since)"
    )
    values = {"keys": database.many(sorted(set(keys))), "since": kept_since_ms}
    return {str(row[0]) for row in connection.execute(text(statement), values)}


def is_shared(connection: Connection, database: Database, location: str) -> bool:
    """Whether a table or view, living or dropped, lies at, above or below a canonical location."""
    parts = location.split("/")
    above = ["/".join(parts[:end]) for end in range(4, len(parts) + 1)]  # below `scheme://host/first`
    at = by_bytes("location", is_sqlite=database.is_sqlite)
    condition = database.among(at)
    for name in ("tables", "dropped_tables"):
        statement = text(
            f"SELECT 1 FROM {name} WHERE {condition} OR ({at} >= :below AND {at} < :end) LIMIT 1"
        )
        if (
            connection.execute(
                statement, {"keys": database.many(above), "below": f"{location}/", "end": f"{location}0"}
            ).scalar()
            is not None
        ):
            return True
    return False


def list_names(
    connection: Connection, namespace: str, kind: str, *, after: str, limit: int | None
) -> list[str]:
    """Names in a namespace in their order, from the one after `after` on. Raises CatalogError 404."""
    if not namespace_exists(connection, namespace):
        raise no_such_namespace(dotted(namespace))
    statement = (
        "SELECT name FROM tables WHERE namespace = :namespace AND kind = :kind AND name > :after "
        "ORDER BY name"
    )
    values: dict[str, Any] = {"namespace": namespace, "kind": kind, "after": after}
    if limit is not None:
        statement, values = f"{statement} LIMIT :limit", values | {"limit": limit}
    return [str(row[0]) for row in connection.execute(text(statement), values)]


def list_all(connection: Connection, *, after: str, limit: int) -> list[tuple[str, str, str]]:
    """Key, namespace and name of tables of all namespaces in the order of their keys, from the one after
    `after` on."""
    statement = text(
        "SELECT ident, namespace, name FROM tables WHERE ident > :after AND kind = 'table' ORDER BY ident "
        "LIMIT :limit"
    )
    rows = connection.execute(statement, {"after": after, "limit": limit})
    return [(row[0], row[1], row[2]) for row in rows]


def drop(
    connection: Connection, database: Database, identifier: Identifier, kind: str, *, purge: bool, now_ms: int
) -> Head:
    """Takes a table or view out of sight; a table's row moves to the dropped ones, from where undo takes it
    back. Raises CatalogError 404, or 403 where a legal hold is on the table."""
    head = find_many(connection, database, [identifier.key], lock=True).get(identifier.key)
    if head is None or head.kind != kind:
        raise missing(identifier, kind)
    if kind == TABLE:
        check_not_held(connection, database, identifier, "is not dropped")
        columns = "id, ident, namespace, name, kind, uuid, location, metadata_location, created_ms"
        statement = (
            f"INSERT INTO {dropped_tables.name} ({columns}, dropped_ms, purge_requested) SELECT "
            f"{columns}, :now, :purge FROM tables WHERE id = :id"
        )
        connection.execute(text(statement), {"now": now_ms, "purge": int(purge), "id": head.id})
    connection.execute(tables.delete().where(tables.c.id == head.id))
    name_journal.note_dropped(connection, identifier.key, head.uuid, purge=purge, dropped_ms=now_ms)
    return head


def rename(
    connection: Connection, database: Database, source: Identifier, destination: Identifier, kind: str
) -> None:
    """Gives a table or view another name, in another namespace too; its location stays. Raises CatalogError
    404 or 409, or 403 where a legal hold would not be on it any more."""
    heads = find_many(connection, database, [source.key, destination.key], lock=True)
    head = heads.get(source.key)
    if head is None or head.kind != kind:
        raise missing(source, kind)
    if not namespace_exists(connection, destination.namespace, locking=database.locking()):
        raise no_such_namespace(dotted(destination.namespace))
    other = heads.get(destination.key)
    if other is not None:
        what = "View" if other.kind == VIEW else "Table"
        raise CatalogError(
            409, "AlreadyExistsException", f"Cannot rename {source} to {destination}. {what} already exists"
        )
    if kind == TABLE:
        check_kept(connection, database, source, destination)
    values = {"ident": destination.key, "namespace": destination.namespace, "name": destination.name}
    connection.execute(tables.update().where(tables.c.id == head.id).values(values))
    name_journal.note_living(connection, destination)
