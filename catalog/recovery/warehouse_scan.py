"""What tables and views the warehouse itself shows, without any database: the newest metadata file of
each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from catalog.commit.table_metadata import version_of
from catalog.model.head_movement import chain_to
from catalog.store.metadata_store import MetadataStore, parse_metadata
from catalog.store.tables import TABLE, VIEW
from lake.errors import FirnError
from lake.marks import MARKS_PROPERTY, parse_marks
from lake.storage import StoredObject, canonical
from lake.table_location import TableLocation

log = structlog.get_logger()
Json = dict[str, Any]
_SUFFIX = ".metadata.json"


@dataclass(frozen=True, slots=True)
class Found:
    """A table or view at its newest metadata file. `ambiguous`: another file has the same version, left by a
    commit that lost."""

    uuid: str
    kind: str
    location: str
    metadata_location: str
    metadata: Json
    ambiguous: bool

    @property
    def rank(self) -> tuple[int, int]:
        """Newer is larger."""
        return version_of(self.metadata_location), int(self.metadata.get("last-updated-ms", 0))

    @property
    def head(self) -> int | None:
        """The snapshot that main points at."""
        head: int | None = self.metadata.get("current-snapshot-id")
        return head

    @property
    def has_marks(self) -> bool:
        """Whether ingest writes to it."""
        return MARKS_PROPERTY in self.metadata.get("properties", {})

    def marks_lie(self, before: "Found | None") -> bool:
        """Whether the marks may say more than the rows hold. Every commit of ours repeats the marks in its
        snapshot's summary, so the last summary that tells is the truth; where none does, the head has to
        descend from the one known before."""
        if not self.has_marks:
            return False
        marks = self.metadata["properties"][MARKS_PROPERTY]
        told = _told_marks(self.head, self.metadata.get("snapshots", []))
        if told is not None:
            return not _same_marks(told, marks)
        if before is None or before.head == self.head:
            return False
        return (
            self.head is None or chain_to(before.head, self.head, self.metadata.get("snapshots", [])) is None
        )


def _told_marks(head: int | None, snapshots: list[Json]) -> str | None:
    known = {snapshot["snapshot-id"]: snapshot for snapshot in snapshots}
    for _ in snapshots:
        snapshot = known.get(head) if head is not None else None
        if snapshot is None:
            return None
        told: str | None = snapshot.get("summary", {}).get(MARKS_PROPERTY)
        if told is not None:
            return told
        head = snapshot.get("parent-snapshot-id")
    return None


def _same_marks(one: str, other: str) -> bool:
    try:
        return one == other or parse_marks(one) == parse_marks(other)
    except FirnError:
        return False


def scan(store: MetadataStore, homes: Mapping[str, str]) -> tuple[dict[str, Found], list[str]]:
    """(tables and views by uuid, files that cannot be read or are not what they claim to be). Only the newest
    files of each folder are read.

    `homes`: locations by uuid, as the journal of names has them. Metadata that gives a table of the journal
    another location is not believed where some lies at home: whoever may write into the warehouse could take
    over any table by it. Raises FirnError.
    """
    newest: dict[str, list[StoredObject]] = {}
    for item in _metadata_files(store):
        kept = newest.setdefault(item.uri.rsplit("/", 1)[0], [])
        if kept and version_of(item.uri) > version_of(kept[0].uri):
            kept.clear()
        if not kept or version_of(item.uri) == version_of(kept[0].uri):
            kept.append(item)
    found: dict[str, Found] = {}
    unreadable: list[str] = []
    for item in (item for items in newest.values() for item in sorted(items, key=lambda item: item.modified)):
        one = read_found(store, item.uri, ambiguous=len(newest[item.uri.rsplit("/", 1)[0]]) > 1)
        if one is None:
            unreadable.append(item.uri)
        elif one.uuid not in found or _is_newer(one, found[one.uuid], homes.get(one.uuid)):
            found[one.uuid] = one
    return found, unreadable


def _is_newer(one: Found, other: Found, home: str | None) -> bool:
    """Where only one of two is where the journal knows the table, it is that one."""
    at_home = (one.location == home, other.location == home)
    return at_home[0] if at_home[0] != at_home[1] else one.rank >= other.rank


def _metadata_files(store: MetadataStore) -> Iterator[StoredObject]:
    for prefix in store.prefixes:
        for item in store.list(prefix):
            if item.uri.endswith(_SUFFIX) and "/.tmp-" not in item.uri:
                yield item


def read_found(store: MetadataStore, uri: str, *, ambiguous: bool = False) -> Found | None:
    """A metadata file as a table or view, None where it cannot be read as one."""
    try:
        metadata = parse_metadata(store.read(uri))
        kind = TABLE if "table-uuid" in metadata else VIEW
        location = canonical(str(metadata["location"])).rstrip("/")
        if kind == TABLE:
            TableLocation.of(metadata).check(uri)
        return Found(
            str(metadata["table-uuid" if kind == TABLE else "view-uuid"]),
            kind,
            location,
            uri,
            metadata,
            ambiguous,
        )
    except (FirnError, ValueError, KeyError, TypeError) as error:
        log.warning("catalog.metadata_unreadable", location=uri, error=str(error))
        return None
