"""Parked records: what ingest must know about a table before it routes anything to it. Changed only by
compare-and-set.

A change names the version last read (0: there was none) and comes under a lease; an older token cannot change
anything. The catalog itself parks a table whose head went back to something that is no descendant of the head
before: its marks would lie.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, text

from catalog.extras.compare_and_set import change_row
from catalog.model.identifier import Identifier, levels
from catalog.store.database import parked

ROLLED_BACK = "rolled_back"
_COLUMNS = "ident, uuid, version, reason, record, changed_ms"


def list_parked(connection: Connection, *, after: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Parked records in the order of their identifiers, and the key of the last when more may follow."""
    statement = text(f"SELECT {_COLUMNS} FROM parked WHERE ident > :after ORDER BY ident LIMIT :limit")
    rows = connection.execute(statement, {"after": after, "limit": limit}).all()
    return [_json(tuple(row)) for row in rows], str(rows[-1][0]) if len(rows) == limit else None


def find_parked(connection: Connection, identifier: Identifier) -> dict[str, Any] | None:
    """One table's parked record."""
    row = connection.execute(
        text(f"SELECT {_COLUMNS} FROM parked WHERE ident = :ident"),
        {"ident": identifier.key},
    ).one_or_none()
    return None if row is None else _json(tuple(row))


def _json(row: tuple[Any, ...]) -> dict[str, Any]:
    namespace, _, name = row[0].rpartition("\x1f")
    identifier = {"namespace": levels(namespace), "name": name}
    return {
        "identifier": identifier,
        "table-uuid": row[1],
        "version": row[2],
        "reason": row[3],
        "record": orjson.loads(row[4]),
        "changed-ms": row[5],
    }


def change_parked(
    connection: Connection,
    identifier: Identifier,
    *,
    version: int,
    reason: str,
    uuid: str | None,
    record: Any,
    now_ms: int,
) -> int:
    """Writes a record over the version last read, or removes it where `record` is None; returns its new
    version (0: none). Raises CatalogError 409."""
    values = (
        None
        if record is None
        else {"uuid": uuid, "reason": reason, "record": orjson.dumps(record).decode(), "changed_ms": now_ms}
    )
    title = f"the parked record of {identifier}"
    return change_row(
        connection,
        parked,
        identifier.key,
        version=version,
        values=values,
        refusal="ParkedVersionException",
        title=title,
    )


def park_rolled_back(
    connection: Connection, tables: Sequence[tuple[str, str, dict[str, Any]]], now_ms: int
) -> None:
    """Parks tables that moved back, in the transaction that moved them: (identifier key, uuid, what was
    seen)."""
    statement = text(
        "INSERT INTO parked (ident, uuid, version, reason, record, changed_ms) VALUES (:ident, :uuid, 1, "
        ":reason, :record, :now) "
        "ON CONFLICT (ident) DO UPDATE SET version = parked.version + 1, uuid = :uuid, reason = :reason, "
        "record = :record, changed_ms = :now"
    )
    for ident, uuid, seen in tables:
        before = connection.execute(
            text("SELECT record FROM parked WHERE ident = :ident"), {"ident": ident}
        ).scalar()
        record = {**(orjson.loads(before) if before else {}), ROLLED_BACK: seen}
        connection.execute(
            statement,
            {
                "ident": ident,
                "uuid": uuid,
                "reason": ROLLED_BACK,
                "record": orjson.dumps(record).decode(),
                "now": now_ms,
            },
        )
