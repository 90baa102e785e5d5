"""Of which table a queued file is, and whether it may be deleted for that table's sake.

Who queues files has read a table's manifests, and a tenant may have written them. So a file has to lie below
the location of the table that its entry names; asked when it is queued and again, by who deletes it, when it
is due.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, text

from catalog.commit.table_changes import default_location
from catalog.model import metrics
from catalog.store.database import Database
from catalog.store.metadata_store import MetadataStore, parse_metadata
from lake.errors import FirnError, ForeignFileError
from lake.table_location import GRANTS_PROPERTY, NOWHERE, TableLocation

log = structlog.get_logger()
Json = dict[str, Any]
Heads = Mapping[str, Sequence[tuple[str, str]]]


def uuid_of(entry: Mapping[str, Any]) -> str | None:
    """The uuid of the table that an entry of the queue names."""
    record = entry.get("record")
    try:
        return str(UUID(str(record.get("table-uuid")))) if isinstance(record, dict) else None
    except ValueError:
        return None


def heads_of(connection: Connection, database: Database, uuids: Iterable[str]) -> Heads:
    """(location, metadata location) of the tables that have these uuids, living or dropped."""
    wanted = sorted(set(uuids))
    condition = database.among("uuid")
    columns = "uuid, location, metadata_location"
    statement = (
        f"SELECT {columns} FROM tables WHERE {condition} UNION ALL SELECT {columns} FROM "
        f"dropped_tables WHERE {condition}"
    )
    found: dict[str, list[tuple[str, str]]] = {}
    if wanted:
        for uuid, location, metadata_location in connection.execute(
            text(statement), {"keys": database.many(wanted)}
        ):
            found.setdefault(str(uuid), []).append((str(location), str(metadata_location)))
    return found


class DeletionLocations:
    """Where the files of tables lie, for entries of the queue. A table that is gone had its own folder, which
    was named after its uuid."""

    def __init__(self, store: MetadataStore, heads: Heads) -> None:
        self._store = store
        self._heads = heads
        self._granted: dict[str, TableLocation] = {}

    def table_location_of(self, entry: Mapping[str, Any]) -> TableLocation | None:
        """The place in which an entry's file lies, None where it is not the named table's."""
        uuid = uuid_of(entry)
        if uuid is None:
            return None
        for ask in (self._plain, self._with_grants):
            table_location = self._asked(ask, uuid)
            if table_location.holds(entry["location"]):
                return table_location
        return None

    def _asked(self, ask: Callable[[str], TableLocation], uuid: str) -> TableLocation:
        try:
            return ask(uuid)
        except ForeignFileError:
            return NOWHERE

    def _plain(self, uuid: str) -> TableLocation:
        locations = [location for location, _ in self._heads.get(uuid, ())] or [
            default_location(self._store, uuid)
        ]
        return TableLocation(
            tuple(prefix for location in locations for prefix in TableLocation.at(location).prefixes)
        )

    def _with_grants(self, uuid: str) -> TableLocation:
        """Metadata is read only for files that lie elsewhere."""
        if uuid not in self._granted:
            prefixes: list[str] = []
            for location, metadata_location in self._heads.get(uuid, ()):
                try:
                    properties = parse_metadata(self._store.read(metadata_location)).get("properties") or {}
                    prefixes += TableLocation.at(location, properties.get(GRANTS_PROPERTY)).prefixes
                except (FirnError, ValueError) as error:
                    log.warning("catalog.grants_unreadable", location=metadata_location, error=str(error))
            self._granted[uuid] = TableLocation(tuple(prefixes))
        return self._granted[uuid]

    def split(self, entries: Sequence[Json]) -> tuple[list[Json], list[str]]:
        """(entries whose files are their tables', locations of the others, which are counted)."""
        kept: list[Json] = []
        refused: list[str] = []
        for entry in entries:
            if self.table_location_of(entry) is not None:
                kept.append(entry)
            else:
                refused.append(str(entry["location"]))
        if refused:
            metrics.foreign_files.labels("deletion").inc(len(refused))
            log.warning("catalog.deletions_refused", files=len(refused), first=refused[0])
        return kept, refused
