"""What happened to names, written into the warehouse: metadata files do not say what their table is called.

Each change of a name leaves an event in the database, in its own transaction; after the transaction, and
before the caller is answered, events go to a file below `<warehouse>/_firn/names/` and leave the database.
`rebuild` replays these files when the database is lost.

An event carries the time of its transaction by the database's clock and its number there. What follows each
other for one table or namespace waits for the same row, so this order is the true one, whichever process
writes which file when, and however often.
"""

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, text

from catalog.model.identifier import Identifier
from catalog.store.database import Database, database_ms, name_events
from catalog.store.metadata_store import MetadataFile, MetadataStore
from lake.errors import FirnError, NotFoundError

log = structlog.get_logger()
Json = dict[str, Any]
FOLDER = "_firn/names"
EVENTS_PER_FILE_MAX = 10_000
FILES_MAX = 500
# How long the end of a name is remembered: far longer than any writer of a file with an older event may be
# late.
TOMBSTONE_MS = 24 * 3_600_000
_ENDS = frozenset({"purged", "namespace-dropped"})
_flushing = threading.Lock()


@dataclass(slots=True)
class Names:
    """What the journal says: tables and views by uuid, namespaces by path."""

    living: dict[str, Json] = field(default_factory=dict)
    dropped: dict[str, Json] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)


def note(connection: Connection, events: Iterable[Json]) -> None:
    """Leaves events in the transaction of what they tell."""
    found = list(events)
    if found:
        at_ms = database_ms(connection)
        connection.execute(
            name_events.insert(),
            [{"event": orjson.dumps({"at-ms": at_ms, **event}).decode()} for event in found],
        )


def table_event(ident: str, kind: str, table_uuid: str, location: str) -> Json:
    """A table or view has this name from now on."""
    return {"event": "named", "ident": ident, "kind": kind, "uuid": table_uuid, "location": location}


def note_living(connection: Connection, identifier: Identifier) -> None:
    """A table or view that is in its place now: created, renamed or brought back."""
    row = connection.execute(
        text("SELECT kind, uuid, location FROM tables WHERE ident = :ident"), {"ident": identifier.key}
    ).one()
    note(connection, [table_event(identifier.key, row[0], row[1], row[2])])


def note_dropped(
    connection: Connection,
    ident: str,
    table_uuid: str,
    *,
    purge: bool,
    dropped_ms: int,
    purge_started_ms: int | None = None,
) -> None:
    """A table or view lost its name, or its purge was asked for or begun."""
    event = {
        "event": "dropped",
        "ident": ident,
        "uuid": table_uuid,
        "purge": purge,
        "dropped-ms": dropped_ms,
        "purge-started-ms": purge_started_ms,
    }
    note(connection, [event])


def note_purged(connection: Connection, table_uuid: str) -> None:
    """The files of a dropped table are gone."""
    note(connection, [{"event": "purged", "uuid": table_uuid}])


def note_namespace(connection: Connection, path: str, properties: dict[str, str]) -> None:
    """A namespace exists with these properties."""
    note(connection, [{"event": "namespace", "path": path, "properties": properties}])


def note_namespace_dropped(connection: Connection, path: str) -> None:
    """A namespace is gone."""
    note(connection, [{"event": "namespace-dropped", "path": path}])


def flush(database: Database, store: MetadataStore, now_ms: int) -> int:
    """Moves events from the database into the warehouse; returns how many. A storage that refuses keeps them
    for the next time."""
    with _flushing:
        moved = 0
        while True:
            with database.read() as connection:
                rows = connection.execute(
                    text("SELECT id, event FROM name_events ORDER BY id LIMIT :limit"),
                    {"limit": EVENTS_PER_FILE_MAX},
                ).all()
            if not rows:
                return moved
            lines = [orjson.dumps({"id": row[0], **orjson.loads(row[1])}) for row in rows]
            if not _write(store, lines, now_ms, rows[0][0]):
                return moved
            with database.write() as connection:
                connection.execute(
                    text(f"DELETE FROM name_events WHERE {database.among('id')}"),
                    {"keys": database.many([row[0] for row in rows])},
                )
            moved += len(rows)


def _write(store: MetadataStore, lines: Sequence[bytes], now_ms: int, number: int) -> bool:
    file = MetadataFile(
        f"{store.warehouse}/{FOLDER}/{now_ms:013d}-{number:012d}-{uuid.uuid4()}.jsonl", b"\n".join(lines)
    )
    problem = store.write_many([(file, None)])[0]
    if problem is not None:
        log.warning("catalog.names_not_written", events=len(lines), error=str(problem))
    return problem is None


def compact(store: MetadataStore, now_ms: int, *, files_max: int = FILES_MAX) -> int:
    """Puts one file in the place of many where the folder holds more than `files_max`: per table and
    namespace the newest event alone.

    Returns how many files went. The new file is durable before the old ones go, and an event found twice
    counts once, so a crash or a second process at the same work does no harm. Raises FirnError.
    """
    found = [item.uri for item in store.list(f"{store.warehouse}/{FOLDER}") if item.uri.endswith(".jsonl")]
    if len(found) <= files_max:
        return 0
    try:
        newest = _newest_lines((uri, store.read_raw(uri)) for uri in found)
    except NotFoundError:  # another process is compacting
        return 0
    kept = [line for (at_ms, _), kind, line in newest if kind not in _ENDS or at_ms > now_ms - TOMBSTONE_MS]
    if kept and not _write(store, kept, now_ms, 0):
        return 0
    store.delete(found)
    return len(found)


def _newest_lines(files: Iterable[tuple[str, bytes]]) -> list[tuple[tuple[int, int], str, bytes]]:
    """Per table and namespace (order, kind, line) of its newest event. Lines stay bytes, because parsed ones
    take ten times the memory."""
    newest: dict[str, tuple[tuple[int, int], str, bytes]] = {}
    for event, line in _events(files):
        key = str(event["uuid"]) if "uuid" in event else f"/{event['path']}"
        order = int(event["at-ms"]), int(event["id"])
        known = newest.get(key)
        if known is None or known[0] <= order:
            newest[key] = order, str(event["event"]), line
    return list(newest.values())


def _events(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[Json, bytes]]:
    """Every event of journal files. Raises FirnError for a file that is no journal."""
    for uri, data in files:
        for line in data.splitlines():
            try:
                yield orjson.loads(line), line
            except orjson.JSONDecodeError as error:
                raise FirnError(
                    f"{uri} is not a journal of names ({error}); move it away to go on without it"
                ) from error


def read_names(files: Iterable[tuple[str, bytes]]) -> Names:
    """What journal files say together: the newest event of each table and namespace. Raises FirnError for a
    file that is no journal."""
    names = Names()
    for _, kind, line in _newest_lines(files):
        event = orjson.loads(line)
        match kind:
            case "named":
                names.living[event["uuid"]] = event
            case "dropped":
                names.dropped[event["uuid"]] = event
            case "namespace":
                names.namespaces[event["path"]] = event["properties"]
    return names
