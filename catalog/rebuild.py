"""Brings a lost or outdated database back to what the warehouse holds, and checks one against the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, text

from catalog.database import Database, dropped_tables, tables
from catalog.error_response import CatalogError
from catalog.head_movement import MARKS_PROPERTY, chain_to
from catalog.identifier import SEPARATOR
from catalog.metadata_store import MetadataStore, parse_metadata
from catalog.name_journal import FOLDER, Names, read_names
from catalog.namespaces import create_missing
from catalog.parking import park_rolled_back
from catalog.table_metadata import version_of
from catalog.tables import TABLE, VIEW
from lake.errors import FirnError
from lake.storage import StoredObject, canonical

log = structlog.get_logger()
Json = dict[str, Any]
RECOVERED_NAMESPACE = "firn_recovered"
_SUFFIX = ".metadata.json"


@dataclass(slots=True)
class Rebuilt:
    """What a rebuild did."""

    unchanged: int = 0
    advanced: int = 0
    created: int = 0
    dropped: int = 0
    nameless: list[str] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A table or view as the warehouse shows it: its newest metadata file."""

    uuid: str
    kind: str
    location: str
    metadata_location: str
    metadata: Json

    @property
    def rank(self) -> tuple[int, int]:
        """Newer is larger."""
        return version_of(self.metadata_location), int(self.metadata.get("last-updated-ms", 0))


def rebuild(database: Database, store: MetadataStore, now_ms: int) -> Rebuilt:
    """Every table at its newest metadata file, with its name, namespaces with their properties; a table whose head in the database is no
    ancestor of what is found is parked. One transaction; run it while no catalog serves. Raises FirnError."""
    result = Rebuilt()
    journal = [(item.uri, store.read_raw(item.uri)) for item in store.list(f"{store.warehouse}/{FOLDER}")]
    names = read_names(journal)
    found = _newest(store, result)
    with database.write() as connection:
        create_missing(connection, database, names.namespaces, now_ms)
        for path, properties in names.namespaces.items():
            _set_properties(connection, path, properties)
        known = {str(row[0]): tuple(row) for row in connection.execute(text("SELECT uuid, id, ident, metadata_location FROM tables"))}
        gone = {str(row[0]) for row in connection.execute(text("SELECT uuid FROM dropped_tables"))}
        for one in sorted(found.values(), key=lambda item: item.uuid):
            if one.uuid in known:
                _bring_forward(connection, store, one, known[one.uuid], names, result, now_ms)
            elif one.uuid in names.living:
                _insert(connection, database, one, names.living[one.uuid]["ident"], result, now_ms)
            elif one.uuid in names.dropped or one.uuid in gone:
                _insert_dropped(connection, one, names.dropped.get(one.uuid), gone, result)
            else:
                result.nameless.append(one.metadata_location)
                _insert(connection, database, one, f"{RECOVERED_NAMESPACE}{SEPARATOR}{one.uuid}", result, now_ms)
    return result


def _newest(store: MetadataStore, result: Rebuilt) -> dict[str, Found]:
    """By uuid. Only the newest file of each folder is read."""
    best: dict[str, StoredObject] = {}
    for item in _metadata_files(store):
        folder = item.uri.rsplit("/", 1)[0]
        kept = best.get(folder)
        if kept is None or (version_of(item.uri), item.modified) > (version_of(kept.uri), kept.modified):
            best[folder] = item
    found: dict[str, Found] = {}
    for item in best.values():
        one = _read(store, item.uri)
        if one is None:
            result.unreadable.append(item.uri)
        elif one.uuid not in found or one.rank > found[one.uuid].rank:
            found[one.uuid] = one
    return found


def _metadata_files(store: MetadataStore) -> Iterator[StoredObject]:
    for prefix in store.prefixes:
        for item in store.list(prefix):
            if item.uri.endswith(_SUFFIX) and "/.tmp-" not in item.uri:
                yield item


def _read(store: MetadataStore, uri: str) -> Found | None:
    try:
        metadata = parse_metadata(store.read(uri))
        kind = TABLE if "table-uuid" in metadata else VIEW
        return Found(str(metadata["table-uuid" if kind == TABLE else "view-uuid"]), kind, str(metadata["location"]), uri, metadata)
    except (FirnError, ValueError, KeyError, TypeError) as error:
        log.warning("catalog.metadata_unreadable", location=uri, error=str(error))
        return None


def _set_properties(connection: Connection, path: str, properties: dict[str, str]) -> None:
    connection.execute(
        text("UPDATE namespaces SET properties = :properties WHERE path = :path"), {"properties": orjson.dumps(properties).decode(), "path": path}
    )


def _bring_forward(connection: Connection, store: MetadataStore, one: Found, row: tuple[Any, ...], names: Names, result: Rebuilt, now_ms: int) -> None:
    _, row_id, ident, location = row
    dropped = names.dropped.get(one.uuid)
    if dropped is not None:  # dropped after the dump was made
        connection.execute(tables.delete().where(tables.c.id == row_id))
        _insert_dropped(connection, one, dropped, set(), result)
        return
    named = names.living.get(one.uuid, {}).get("ident", ident)
    if named != ident:
        namespace, _, name = named.rpartition(SEPARATOR)
        connection.execute(tables.update().where(tables.c.id == row_id).values(ident=named, namespace=namespace, name=name))
    if canonical(location) == canonical(one.metadata_location) or version_of(location) > version_of(one.metadata_location):
        result.unchanged += 1
        return
    values = {"metadata_location": one.metadata_location, "location": canonical(one.location).rstrip("/"), "changed_ms": now_ms}
    connection.execute(tables.update().where(tables.c.id == row_id).values(values))
    _note_uncounted(connection, row_id, now_ms)
    result.advanced += 1
    before = _read(store, location)
    if before is None or MARKS_PROPERTY not in before.metadata.get("properties", {}):
        return
    heads = before.metadata.get("current-snapshot-id"), one.metadata.get("current-snapshot-id")
    if heads[0] != heads[1] and (heads[1] is None or chain_to(heads[0], heads[1], one.metadata.get("snapshots", [])) is None):
        park_rolled_back(connection, [(named, one.uuid, {"head-before": heads[0], "head-after": heads[1], "by": "rebuild"})], now_ms)
        result.parked.append(named.replace(SEPARATOR, "."))


def _row(one: Found, ident: str) -> Json:
    namespace, _, name = ident.rpartition(SEPARATOR)
    location = canonical(one.location).rstrip("/")
    return {
        "ident": ident,
        "namespace": namespace,
        "name": name,
        "kind": one.kind,
        "uuid": one.uuid,
        "location": location,
        "metadata_location": one.metadata_location,
    }


def _insert(connection: Connection, database: Database, one: Found, ident: str, result: Rebuilt, now_ms: int) -> None:
    create_missing(connection, database, {ident.rpartition(SEPARATOR)[0]: {}}, now_ms)
    holder = connection.execute(text("SELECT uuid FROM tables WHERE ident = :ident"), {"ident": ident}).scalar()
    if holder is not None:
        raise CatalogError(409, "AlreadyExistsException", f"both {holder} and {one.uuid} are called {ident.replace(SEPARATOR, '.')}; drop or rename one")
    connection.execute(tables.insert(), {**_row(one, ident), "created_ms": now_ms, "changed_ms": now_ms})
    row_id = connection.execute(text("SELECT id FROM tables WHERE ident = :ident"), {"ident": ident}).scalar_one()
    _note_uncounted(connection, int(row_id), now_ms)
    result.created += 1


def _insert_dropped(connection: Connection, one: Found, event: Json | None, gone: set[str], result: Rebuilt) -> None:
    if one.uuid in gone or event is None or one.kind != TABLE:
        return
    # By way of the living ones, because they share their ids: an undo must find its id free.
    ident = f"{RECOVERED_NAMESPACE}{SEPARATOR}{one.uuid}"
    connection.execute(tables.insert(), {**_row(one, ident), "created_ms": event["dropped-ms"], "changed_ms": event["dropped-ms"]})
    row_id = connection.execute(text("SELECT id FROM tables WHERE ident = :ident"), {"ident": ident}).scalar_one()
    connection.execute(tables.delete().where(tables.c.id == row_id))
    times = {"created_ms": event["dropped-ms"], "dropped_ms": event["dropped-ms"], "purge_requested": int(event["purge"])}
    connection.execute(dropped_tables.insert(), {"id": row_id, **_row(one, event["ident"]), **times})
    result.dropped += 1


def _note_uncounted(connection: Connection, row_id: int, now_ms: int) -> None:
    statement = text("INSERT INTO uncounted_tables (table_id, since_ms, tries) VALUES (:id, :now, 0) ON CONFLICT (table_id) DO UPDATE SET tries = 0")
    connection.execute(statement, {"id": row_id, "now": now_ms})


def check(database: Database, store: MetadataStore) -> Iterator[str]:
    """Sentences about rows whose metadata file is missing or whose location lies outside what is allowed."""
    with database.read() as connection:
        rows = connection.execute(text("SELECT namespace, name, location, metadata_location FROM tables ORDER BY ident")).all()
    for namespace, name, location, metadata_location in rows:
        title = f"{namespace.replace(SEPARATOR, '.')}.{name}"
        for what, uri in (("location", location), ("metadata file", metadata_location)):
            try:
                store.check_location(uri, what)
            except CatalogError as error:
                yield f"{title}: {error.message}"
        if not store.exists(metadata_location):
            yield f"{title}: metadata file {metadata_location} is missing; restore it, or run `python -m catalog rebuild --from-warehouse`"
