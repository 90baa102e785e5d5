"""Two lists that the optimizer keeps here, so that they survive it: the states of its tasks, and files to
delete later."""

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, text

from catalog.extras.compare_and_set import change_row
from catalog.store.database import tasks

Json = dict[str, Any]


def save_task(connection: Connection, task: Json, now_ms: int) -> int:
    """Writes a task's state over the version last read (0: new); returns the new version. Raises CatalogError
    409."""
    values = {
        "kind": task["kind"],
        "state": task["state"],
        "record": orjson.dumps(task["record"]).decode(),
        "changed_ms": now_ms,
    }
    return change_row(
        connection,
        tasks,
        task["id"],
        version=task["version"],
        values=values,
        refusal="TaskVersionException",
        title=f"task {task['id']}",
    )


def remove_task(connection: Connection, task_id: str) -> None:
    """Forgets a task."""
    connection.execute(tasks.delete().where(tasks.c.id == task_id))


def list_tasks(
    connection: Connection, *, kind: str | None, state: str | None, after: str, limit: int
) -> list[Json]:
    """Tasks in the order of their ids."""
    conditions = [
        condition
        for condition, value in (("kind = :kind", kind), ("state = :state", state))
        if value is not None
    ]
    where = " AND ".join(["id > :after", *conditions])
    statement = text(
        f"SELECT id, kind, state, version, record, changed_ms FROM tasks WHERE {where} ORDER BY id LIMIT "
        ":limit"
    )
    values = {
        key: value
        for key, value in {"after": after, "limit": limit, "kind": kind, "state": state}.items()
        if value is not None
    }
    rows = connection.execute(statement, values)
    return [
        {
            "id": r[0],
            "kind": r[1],
            "state": r[2],
            "version": r[3],
            "record": orjson.loads(r[4]),
            "changed-ms": r[5],
        }
        for r in rows
    ]


def count_tasks(connection: Connection, kind: str) -> int:
    """How many tasks of a kind there are."""
    statement = text("SELECT COUNT(*) FROM tasks WHERE kind = :kind")
    return int(connection.execute(statement, {"kind": kind}).scalar_one())


def add_deletions(connection: Connection, entries: Sequence[Json]) -> int:
    """Queues files; one that is queued already stays as it is. Returns how many are new."""
    statement = text(
        "INSERT INTO deletions (location, not_before_ms, record) VALUES (:location, :not_before_ms, :record) "
        "ON CONFLICT (location) DO NOTHING"
    )
    before = _count(connection)
    rows = [
        {
            "location": e["location"],
            "not_before_ms": e["not-before-ms"],
            "record": orjson.dumps(e["record"]).decode(),
        }
        for e in entries
    ]
    if rows:
        connection.execute(statement, rows)
    return _count(connection) - before


def _count(connection: Connection) -> int:
    return int(connection.execute(text("SELECT COUNT(*) FROM deletions")).scalar_one())


def due_deletions(connection: Connection, *, now_ms: int, after_id: int, limit: int) -> list[Json]:
    """Files that may be deleted now, in the order of their ids."""
    statement = text(
        "SELECT id, location, not_before_ms, record FROM deletions WHERE not_before_ms <= :now AND id > "
        ":after ORDER BY id LIMIT :limit"
    )
    rows = connection.execute(statement, {"now": now_ms, "after": after_id, "limit": limit})
    return [{"id": r[0], "location": r[1], "not-before-ms": r[2], "record": orjson.loads(r[3])} for r in rows]


def queued_locations(connection: Connection, locations: Sequence[str]) -> list[str]:
    """Those of some files that are queued, whenever they are due."""
    if not locations:
        return []
    statement = text("SELECT location FROM deletions WHERE location IN :locations").bindparams(
        bindparam("locations", expanding=True)
    )
    return list(connection.execute(statement, {"locations": list(locations)}).scalars())


def acknowledge_deletions(connection: Connection, ids: Sequence[int]) -> None:
    """Forgets files that are gone."""
    if ids:
        connection.execute(text("DELETE FROM deletions WHERE id = :id"), [{"id": one} for one in ids])
