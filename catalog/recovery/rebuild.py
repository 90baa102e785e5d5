"""Brings a lost or outdated database back to what the warehouse holds.

Metadata files say what a table is, the journal of names what it is called. Rows of an old dump go with them,
in an order that leaves each name free before somebody else takes it:
 1. namespaces, and their properties
 2. rows of tables that were dropped or purged after the dump, or brought back
 3. new names of tables that were renamed
 4. newest metadata of the tables that are known; those that are not known come in
 5. namespaces that were dropped
"""

from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, text

from catalog.commit.table_metadata import version_of
from catalog.extras.parking import park_rolled_back
from catalog.model.error_response import CatalogError
from catalog.model.identifier import SEPARATOR, dotted
from catalog.recovery.warehouse_scan import Found, read_found, scan
from catalog.store.database import Database, dropped_tables, tables
from catalog.store.metadata_store import MetadataStore
from catalog.store.name_journal import FOLDER, Names, flush, note, read_names, table_event
from catalog.store.namespaces import create_missing, drop_empty
from catalog.store.tables import TABLE
from lake.errors import RefusedError
from lake.storage import canonical

Json = dict[str, Any]
RECOVERED_NAMESPACE = "firn_recovered"


@dataclass(slots=True)
class Rebuilt:
    """What a rebuild did. `parked`: tables whose marks may lie, which wait for a person; `missing`: rows
    without any metadata file."""

    unchanged: int = 0
    advanced: int = 0
    created: int = 0
    dropped: int = 0
    nameless: list[str] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Work:
    """One rebuild: what the warehouse says, and the transaction it goes into."""

    connection: Connection
    store: MetadataStore
    names: Names
    found: dict[str, Found]
    now_ms: int
    result: Rebuilt


def rebuild(database: Database, store: MetadataStore, now_ms: int) -> Rebuilt:
    """Every table at its newest metadata file, with its name, its namespace and what was dropped. One
    transaction; run it while no catalog serves. Raises FirnError."""
    flush(database, store, now_ms)
    names = _read_names(store)
    homes = {
        uuid: canonical(str(event["location"])).rstrip("/")
        for uuid, event in names.living.items()
        if event.get("location")
    }
    found, unreadable = scan(store, homes)
    with database.write() as connection:
        work = _Work(connection, store, names, found, now_ms, Rebuilt(unreadable=unreadable))
        create_missing(connection, database, names.namespaces, now_ms)
        for path, properties in names.namespaces.items():
            _set_properties(connection, path, properties)
        _settle_dropped(work)
        _rename(work)
        _advance(work)
        _insert_unknown(work, database)
        if names.namespaces:
            drop_empty(connection, names.namespaces.keys() | {RECOVERED_NAMESPACE})
        _forget_partitions(connection)
    flush(database, store, now_ms)
    return work.result


def refuse_lost(database: Database, store: MetadataStore, now_ms: int) -> None:
    """Raises RefusedError where the database knows nothing and the warehouse has tables: it was lost, and
    whoever asked it would make all of them anew, beside those that are there."""
    with database.read() as connection:
        every = (f"SELECT 1 FROM {name}" for name in ("namespaces", "tables", "dropped_tables"))
        if connection.execute(text(f"SELECT EXISTS ({' UNION ALL '.join(every)})")).scalar_one():
            return
    flush(database, store, now_ms)
    names = _read_names(store)
    if count := len(names.living) + len(names.dropped):
        raise RefusedError(
            f"the database knows no table, but {store.warehouse} has {count}: it was lost. Bring it back "
            "with `python -m catalog rebuild --from-warehouse`"
        )


def _read_names(store: MetadataStore) -> Names:
    return read_names(
        (item.uri, store.read_raw(item.uri)) for item in store.list(f"{store.warehouse}/{FOLDER}")
    )


def _set_properties(connection: Connection, path: str, properties: dict[str, str]) -> None:
    statement = text("UPDATE namespaces SET properties = :properties WHERE path = :path")
    connection.execute(statement, {"properties": orjson.dumps(properties).decode(), "path": path})


def _settle_dropped(work: _Work) -> None:
    """Step 2: living rows that were dropped after the dump go, dropped ones that came back or were purged go;
    `_insert_unknown` brings the rest."""
    for row_id, uuid, ident in work.connection.execute(text("SELECT id, uuid, ident FROM tables")).all():
        if uuid in work.names.living:
            continue
        if uuid in work.names.dropped or (uuid not in work.found and work.names.living):
            work.connection.execute(tables.delete().where(tables.c.id == row_id))
        elif uuid not in work.found:  # there is no journal that could tell that it went
            work.result.missing.append(dotted(ident))
    for row_id, uuid in work.connection.execute(text("SELECT id, uuid FROM dropped_tables")).all():
        if uuid in work.names.living or uuid in work.names.dropped or uuid not in work.found:
            work.connection.execute(dropped_tables.delete().where(dropped_tables.c.id == row_id))


def _rename(work: _Work) -> None:
    """Step 3: by way of names that nobody has, because two tables may have changed theirs."""
    wanted = {uuid: str(event["ident"]) for uuid, event in work.names.living.items()}
    rows = work.connection.execute(text("SELECT id, uuid, ident FROM tables")).all()
    moves = [(row_id, uuid, wanted[uuid]) for row_id, uuid, ident in rows if wanted.get(uuid, ident) != ident]
    for row_id, uuid, _ in moves:
        _set_ident(work.connection, row_id, f"{RECOVERED_NAMESPACE}{SEPARATOR}{uuid}")
    for row_id, _, ident in moves:
        _set_ident(work.connection, row_id, ident)


def _set_ident(connection: Connection, row_id: int, ident: str) -> None:
    namespace, _, name = ident.rpartition(SEPARATOR)
    connection.execute(
        tables.update().where(tables.c.id == row_id).values(ident=ident, namespace=namespace, name=name)
    )


def _advance(work: _Work) -> None:
    """Step 4, tables that are known."""
    for row_id, uuid, ident, location in work.connection.execute(
        text("SELECT id, uuid, ident, metadata_location FROM tables")
    ).all():
        one = work.found.get(uuid)
        if one is None:
            if uuid in work.names.living:
                work.result.missing.append(dotted(ident))
            continue
        if canonical(location) == canonical(one.metadata_location) or version_of(location) > version_of(
            one.metadata_location
        ):
            work.result.unchanged += 1
            continue
        values = {
            "metadata_location": one.metadata_location,
            "location": one.location,
            "changed_ms": work.now_ms,
        }
        work.connection.execute(tables.update().where(tables.c.id == row_id).values(values))
        _note_uncounted(work, row_id)
        work.result.advanced += 1
        _park_where_marks_lie(work, one, read_found(work.store, location), ident)


def _insert_unknown(work: _Work, database: Database) -> None:
    """Step 4, tables that no row knows."""
    known = {
        str(row[0])
        for row in work.connection.execute(
            text("SELECT uuid FROM tables UNION ALL SELECT uuid FROM dropped_tables")
        )
    }
    for one in sorted(work.found.values(), key=lambda one: one.uuid):
        if one.uuid in known:
            continue
        event = work.names.dropped.get(one.uuid)
        if event is not None:
            _insert_dropped(work, one, event)
            continue
        living = work.names.living.get(one.uuid)
        ident = str(living["ident"]) if living is not None else f"{RECOVERED_NAMESPACE}{SEPARATOR}{one.uuid}"
        if living is None:
            work.result.nameless.append(one.metadata_location)
            note(work.connection, [table_event(ident, one.kind, one.uuid, one.location)])
        create_missing(work.connection, database, {ident.rpartition(SEPARATOR)[0]: {}}, work.now_ms)
        _insert(work, one, ident)
        work.result.created += 1
        _park_where_marks_lie(work, one, None, ident)


def _insert(work: _Work, one: Found, ident: str, created_ms: int | None = None) -> int:
    holder = work.connection.execute(
        text("SELECT uuid FROM tables WHERE ident = :ident"), {"ident": ident}
    ).scalar()
    if holder is not None:
        raise CatalogError(
            409,
            "AlreadyExistsException",
            f"both {holder} and {one.uuid} are called {ident.replace(SEPARATOR, '.')}; drop or rename one",
        )
    created_ms = created_ms or work.now_ms
    work.connection.execute(
        tables.insert(), {**_row(one, ident), "created_ms": created_ms, "changed_ms": created_ms}
    )
    row_id = int(
        work.connection.execute(
            text("SELECT id FROM tables WHERE ident = :ident"), {"ident": ident}
        ).scalar_one()
    )
    _note_uncounted(work, row_id)
    return row_id


def _row(one: Found, ident: str) -> Json:
    namespace, _, name = ident.rpartition(SEPARATOR)
    place = {"location": one.location, "metadata_location": one.metadata_location}
    return {"ident": ident, "namespace": namespace, "name": name, "kind": one.kind, "uuid": one.uuid, **place}


def _insert_dropped(work: _Work, one: Found, event: Json) -> None:
    if one.kind != TABLE:
        return
    # By way of the living ones, because they share their ids: an undo must find its id free.
    row_id = _insert(work, one, f"{RECOVERED_NAMESPACE}{SEPARATOR}{one.uuid}", event["dropped-ms"])
    work.connection.execute(tables.delete().where(tables.c.id == row_id))
    times = {
        "created_ms": event["dropped-ms"],
        "dropped_ms": event["dropped-ms"],
        "purge_started_ms": event.get("purge-started-ms"),
    }
    work.connection.execute(
        dropped_tables.insert(),
        {"id": row_id, **_row(one, event["ident"]), **times, "purge_requested": int(event["purge"])},
    )
    work.result.dropped += 1


def _park_where_marks_lie(work: _Work, one: Found, before: Found | None, ident: str) -> None:
    """Also where nobody can tell which of two files was the table's: a person decides."""
    if one.kind == TABLE and (one.marks_lie(before) or (one.ambiguous and one.has_marks)):
        seen = {
            "head-before": before.head if before is not None else None,
            "head-after": one.head,
            "by": "rebuild",
        }
        park_rolled_back(work.connection, [(ident, one.uuid, seen)], work.now_ms)
        work.result.parked.append(dotted(ident))


def _forget_partitions(connection: Connection) -> None:
    """Of rows that are there no more."""
    gone = "table_id NOT IN (SELECT id FROM tables UNION ALL SELECT id FROM dropped_tables)"
    for name in ("partitions", "uncounted_tables"):
        connection.execute(text(f"DELETE FROM {name} WHERE {gone}"))


def _note_uncounted(work: _Work, row_id: int) -> None:
    statement = text(
        "INSERT INTO uncounted_tables (table_id, since_ms, tries) VALUES (:id, :now, 0) ON CONFLICT "
        "(table_id) DO UPDATE SET tries = 0"
    )
    work.connection.execute(statement, {"id": row_id, "now": work.now_ms})
