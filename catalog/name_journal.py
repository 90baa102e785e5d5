"""What happened to names, written into the warehouse: metadata files do not say what their table is called.

Each change of a name leaves an event in the database, in its own transaction; after the transaction, and before the caller is answered,
events go to a file below `<warehouse>/_firn/names/` and leave the database. `rebuild` replays these files when the database is lost.
"""

import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, text

from catalog.database import Database, name_events
from catalog.identifier import Identifier
from catalog.metadata_store import MetadataFile, MetadataStore
from lake.errors import FirnError

log = structlog.get_logger()
Json = dict[str, Any]
FOLDER = "_firn/names"
EVENTS_PER_FILE_MAX = 10_000
_flushing = threading.Lock()


@dataclass(slots=True)
class Names:
    """What the journal says: tables and views by uuid, namespaces by path."""

    living: dict[str, Json] = field(default_factory=dict)
    dropped: dict[str, Json] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)


def note(connection: Connection, events: Iterable[Json]) -> None:
    """Leaves events in the transaction of what they tell."""
    rows = [{"event": orjson.dumps(event).decode()} for event in events]
    if rows:
        connection.execute(name_events.insert(), rows)


def table_event(ident: str, kind: str, table_uuid: str, location: str) -> Json:
    """A table or view has this name from now on."""
    return {"event": "named", "ident": ident, "kind": kind, "uuid": table_uuid, "location": location}


def note_living(connection: Connection, identifier: Identifier) -> None:
    """A table or view that is in its place now: created, renamed or brought back."""
    row = connection.execute(text("SELECT kind, uuid, location FROM tables WHERE ident = :ident"), {"ident": identifier.key}).one()
    note(connection, [table_event(identifier.key, row[0], row[1], row[2])])


def note_dropped(connection: Connection, ident: str, table_uuid: str, *, purge: bool, now_ms: int) -> None:
    """A table or view lost its name."""
    note(connection, [{"event": "dropped", "ident": ident, "uuid": table_uuid, "purge": purge, "dropped-ms": now_ms}])


def note_namespace(connection: Connection, path: str, properties: dict[str, str]) -> None:
    """A namespace exists with these properties."""
    note(connection, [{"event": "namespace", "path": path, "properties": properties}])


def note_namespace_dropped(connection: Connection, path: str) -> None:
    """A namespace is gone."""
    note(connection, [{"event": "namespace-dropped", "path": path}])


def flush(database: Database, store: MetadataStore, now_ms: int) -> int:
    """Moves events from the database into the warehouse; returns how many. A storage that refuses keeps them for the next time."""
    with _flushing:
        moved = 0
        while True:
            with database.read() as connection:
                rows = connection.execute(text("SELECT id, event FROM name_events ORDER BY id LIMIT :limit"), {"limit": EVENTS_PER_FILE_MAX}).all()
            if not rows:
                return moved
            lines = [orjson.dumps({"at-ms": now_ms, "id": row[0], **orjson.loads(row[1])}) for row in rows]
            file = MetadataFile(f"{store.warehouse}/{FOLDER}/{now_ms:013d}-{rows[0][0]:012d}-{uuid.uuid4()}.jsonl", b"\n".join(lines))
            problem = store.write_many([(file, None)])[0]
            if problem is not None:
                log.warning("catalog.names_not_written", events=len(rows), error=str(problem))
                return moved
            with database.write() as connection:
                connection.execute(text(f"DELETE FROM name_events WHERE {database.among('id')}"), {"keys": database.many([row[0] for row in rows])})  # noqa: S608
            moved += len(rows)


def read_names(files: Sequence[tuple[str, bytes]]) -> Names:
    """Replays journal files in the order of time. Raises FirnError for a file that is no journal."""
    events: list[Json] = []
    for uri, data in files:
        try:
            events += [orjson.loads(line) for line in data.splitlines()]
        except orjson.JSONDecodeError as error:
            raise FirnError(f"{uri} is not a journal of names ({error}); move it away to go on without it") from error
    names = Names()
    for event in sorted(events, key=lambda event: (event["at-ms"], event["id"])):
        match event["event"]:
            case "named":
                names.living[event["uuid"]] = event
                names.dropped.pop(event["uuid"], None)
            case "dropped":
                names.dropped[event["uuid"]] = {**(names.living.pop(event["uuid"], {})), **event}
            case "namespace":
                names.namespaces[event["path"]] = event["properties"]
            case "namespace-dropped":
                names.namespaces.pop(event["path"], None)
    return names
