"""Rows of namespaces: nested levels, properties, and the rule that a namespace with anything in it cannot be
dropped."""

from collections.abc import Collection, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, text

from catalog.model.error_response import (
    CatalogError,
    already_exists,
    bad_request,
    invalid,
    no_such_namespace,
)
from catalog.model.identifier import SEPARATOR, dotted
from catalog.store import name_journal
from catalog.store.database import Database, namespaces
from lake.limits import check_limits

_EXISTS = "SELECT 1 FROM namespaces WHERE path = :path"


def namespace_exists(connection: Connection, path: str, *, locking: str = "") -> bool:
    """Whether a namespace exists, kept from being dropped until the transaction ends where `locking` says
    so."""
    return connection.execute(text(_EXISTS + locking), {"path": path}).scalar() is not None


def existing_namespaces(connection: Connection, database: Database, paths: Sequence[str]) -> set[str]:
    """Which of these namespaces exist; they stay until the transaction ends."""
    statement = (
        f"SELECT path FROM namespaces WHERE {database.among('path')} ORDER BY path{database.locking()}"
    )
    return {
        str(row[0])
        for row in connection.execute(text(statement), {"keys": database.many(sorted(set(paths)))})
    }


def load_properties(connection: Connection, path: str, *, locking: str = "") -> dict[str, str]:
    """A namespace's properties. Raises CatalogError 404."""
    found = connection.execute(
        text(f"SELECT properties FROM namespaces WHERE path = :path{locking}"),
        {"path": path},
    ).scalar()
    if found is None:
        raise no_such_namespace(dotted(path))
    properties: dict[str, str] = orjson.loads(found)
    return properties


def create(
    connection: Connection, database: Database, path: str, properties: dict[str, str], now_ms: int
) -> None:
    """Creates a namespace, and the levels above it that are missing. Raises CatalogError 409."""
    if namespace_exists(connection, path):
        raise already_exists("Namespace", dotted(path))
    create_missing(connection, database, {path: properties}, now_ms)


def create_missing(
    connection: Connection, database: Database, wanted: dict[str, dict[str, str]], now_ms: int
) -> None:
    """Creates those of the namespaces that do not exist, and the levels above them."""
    complete: dict[str, dict[str, str]] = {}
    for path, properties in wanted.items():
        for above in _above(path):
            complete.setdefault(above, {})
        complete[path] = complete.get(path) or properties
    missing = complete.keys() - existing_namespaces(connection, database, list(complete))
    rows = [
        {
            "path": path,
            "parent": parent_of(path),
            "properties": orjson.dumps(complete[path]).decode(),
            "created_ms": now_ms,
        }
        for path in sorted(missing)
    ]
    if rows:
        connection.execute(namespaces.insert(), rows)
        name_journal.note(
            connection,
            [{"event": "namespace", "path": path, "properties": complete[path]} for path in sorted(missing)],
        )


def parent_of(path: str) -> str:
    """The namespace above, empty for one at the root."""
    return path.rpartition(SEPARATOR)[0]


def _above(path: str) -> list[str]:
    parts = path.split(SEPARATOR)
    return [SEPARATOR.join(parts[:count]) for count in range(1, len(parts))]


def children(connection: Connection, parent: str, *, after: str, limit: int | None) -> list[str]:
    """Direct children of a namespace (empty: the root) in their order, as joined paths, from the one after
    `after` on. Raises CatalogError 404."""
    if parent and not namespace_exists(connection, parent):
        raise no_such_namespace(dotted(parent))
    statement = "SELECT path FROM namespaces WHERE parent = :parent AND path > :after ORDER BY path"
    values: dict[str, Any] = {"parent": parent, "after": after}
    if limit is not None:
        statement, values = f"{statement} LIMIT :limit", values | {"limit": limit}
    return [str(row[0]) for row in connection.execute(text(statement), values)]


def drop(connection: Connection, path: str, *, locking: str) -> None:
    """Drops an empty namespace. Raises CatalogError 404, or 409 where it holds anything."""
    load_properties(connection, path, locking=locking)
    if _holds_anything(connection, path):
        raise CatalogError(
            409,
            "NamespaceNotEmptyException",
            f"Namespace {dotted(path)} is not empty; drop its tables, views and namespaces first",
        )
    connection.execute(namespaces.delete().where(namespaces.c.path == path))
    name_journal.note_namespace_dropped(connection, path)


def _holds_anything(connection: Connection, path: str) -> bool:
    inside = text(
        "SELECT 1 FROM tables WHERE namespace = :path UNION ALL SELECT 1 FROM namespaces WHERE parent = "
        ":path LIMIT 1"
    )
    return connection.execute(inside, {"path": path}).scalar() is not None


def drop_empty(connection: Connection, keep: Collection[str]) -> None:
    """Drops the namespaces that are not to be kept and hold nothing, the deepest first."""
    paths = [str(row[0]) for row in connection.execute(text("SELECT path FROM namespaces"))]
    for path in sorted((path for path in paths if path not in keep), key=lambda path: -path.count(SEPARATOR)):
        if not _holds_anything(connection, path):
            connection.execute(namespaces.delete().where(namespaces.c.path == path))


def update_properties(
    connection: Connection, path: str, removals: Sequence[str], updates: dict[str, str], *, locking: str
) -> dict[str, Any]:
    """Changes properties; returns {"updated", "removed", "missing"}. Raises CatalogError 404, or 422 where a
    key is in both lists."""
    both = sorted(set(removals) & set(updates))
    if both:
        raise CatalogError(
            422,
            "UnprocessableEntityException",
            f"properties are both removed and updated: {', '.join(both)}; name each once",
        )
    properties = load_properties(connection, path, locking=locking)
    gone = [key for key in removals if key in properties]
    kept = {key: value for key, value in properties.items() if key not in gone} | updates
    connection.execute(
        namespaces.update().where(namespaces.c.path == path).values(properties=orjson.dumps(kept).decode())
    )
    name_journal.note_namespace(connection, path, kept)
    return {
        "updated": list(updates),
        "removed": gone,
        "missing": [key for key in removals if key not in properties],
    }


def check_properties(properties: dict[str, str]) -> dict[str, str]:
    """Bounds what one namespace may carry. Raises CatalogError 400, also for a limit that nobody can read."""
    try:
        check_limits(properties)
    except ValueError as error:
        raise bad_request(str(error)) from error
    if sum(len(key) + len(value) for key, value in properties.items()) > 1_000_000:
        raise invalid("the properties of one namespace are larger than 1 MB; keep such data in a table")
    return properties
