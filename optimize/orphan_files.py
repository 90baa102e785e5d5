"""Orphan files: what lies below a table and no version of it refers to.

Spellings differ between engines (`file:/x`, `file:///x`, `s3a://`, percent-encoding), so files are compared
in one form that can only protect too much. The live set is taken after the listing, and again just before the
deletion. Where live files and the listing name the same paths under different schemes or buckets, somebody
moved the warehouse, and nothing is deleted.

What waits in the queue of deletions is no orphan, however old: no version of the table refers to it, but who
began to read an older one may until the readers' grace is over.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FatalError, NotFoundError
from lake.extras_client import ExtrasClient
from lake.manifest_list import ManifestFile
from lake.storage import AnyStorage, canonical
from lake.table_files import load_manifest_list, read_file
from optimize.deletions import Throttle
from optimize.purge import own_prefix
from optimize.table_view import TableView, load_view

DELETE_FILES = 200
_METADATA_FILE = re.compile(r"\.metadata\.json(\.gz)?$")
_GZIP = b"\x1f\x8b"
LISTING_PAGE_FILES = 1_000  # an object store lists so many a request
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Orphans:
    """What was found below one table."""

    table: TableName
    listed: int
    files: tuple[str, ...]
    size_bytes: int


def comparable(uri: str) -> str:
    """One text for all spellings of an object. Two objects may share one; then both are protected."""
    return unquote(canonical(uri)).rstrip("/")


def find_orphans(
    catalog: CatalogClient,
    storage: AnyStorage,
    table: TableName,
    throttle: Throttle,
    *,
    age_min_s: float,
    now: datetime,
    metadata: Mapping[str, Any],
) -> Orphans | None:
    """Files below a table, older than `age_min_s`, that no version of it refers to. None where the table is
    gone. `metadata`: of any version of it, which says where to look.

    Raises ValueError where other tables may lie at or below this one's location, FatalError where the
    warehouse was moved.
    """
    prefix = own_prefix(metadata["location"], metadata["table-uuid"], catalog.warehouse or "")
    before = now - timedelta(seconds=age_min_s)
    listed = 0
    old: dict[str, int] = {}
    metadata_files: list[str] = []
    for stored in storage.list(prefix):
        if listed % LISTING_PAGE_FILES == 0:
            throttle.take()
        listed += 1
        if _METADATA_FILE.search(stored.uri):
            metadata_files.append(stored.uri)
        if stored.modified < before:
            old[stored.uri] = stored.size
    view = load_view(catalog, storage, table)  # after the listing: what was committed meanwhile is live
    if view is None or own_prefix(view.state.location, view.state.uuid, catalog.warehouse or "") != prefix:
        return None
    live = live_files(view)
    _check_alone((uri for uri in metadata_files if comparable(uri) not in live), storage, view)
    gone = _not_queued(catalog, _unreferenced(old, live, table))
    return Orphans(table, listed, tuple(gone), sum(old[uri] for uri in gone))


def remove_empty_folders(
    catalog: CatalogClient, storage: AnyStorage, metadata: Mapping[str, Any], before: datetime
) -> int:
    """Removes folders below a table that have been empty since then, and returns how many: on a disk each
    hour leaves one. `metadata`: of any version of it. Raises ValueError as `find_orphans` does."""
    prefix = own_prefix(metadata["location"], metadata["table-uuid"], catalog.warehouse or "")
    return storage.prune(prefix, lambda changed: changed < before)


def _check_alone(metadata_files: Iterable[str], storage: AnyStorage, view: TableView) -> None:
    """Metadata that this table does not name must at least be its own, left behind by a commit. Raises
    ValueError."""
    folder = comparable(f"{view.state.location}/metadata")
    for uri in metadata_files:
        text = _text(storage, uri, view)
        if text is not None and (
            comparable(uri).rpartition("/")[0] != folder or f'"{view.state.uuid}"' not in text
        ):
            raise ValueError(
                f"{uri} is no metadata of this table: another one may lie there; move it, or delete what "
                "nobody needs"
            )


def _text(storage: AnyStorage, uri: str, view: TableView) -> str | None:
    """What a metadata file holds; None where a commit has deleted it meanwhile."""
    try:
        data = read_file(storage, uri, view.state.table_location)
    except NotFoundError:
        return None
    try:
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ""  # nobody's, as far as can be told


def _unreferenced(candidates: Iterable[str], live: set[str], table: TableName) -> list[str]:
    gone = [uri for uri in candidates if comparable(uri) not in live]
    live_paths = {_path(uri): uri for uri in live}
    for uri in gone:
        twin = live_paths.get(_path(comparable(uri)))
        if twin is not None:
            raise FatalError(
                f"{table}: {uri} is listed and {twin} is live, the same path elsewhere; the warehouse was "
                "moved: correct the locations first"
            )
    return sorted(gone)


def _not_queued(catalog: CatalogClient, uris: list[str]) -> list[str]:
    """Files without those that the queue of deletions has; another catalog keeps none."""
    if not uris or not catalog.has_extras:
        return uris
    queued = ExtrasClient(catalog).queued_deletions(uris)
    return [uri for uri in uris if uri not in queued]


def _path(uri: str) -> str:
    return urlsplit(uri, allow_fragments=False).path


def live_files(view: TableView) -> set[str]:
    """Everything that some version of the table refers to, in comparable form: metadata, manifest lists,
    manifests, data, deletes, statistics."""
    metadata = view.metadata
    found = {*_metadata_files(metadata), comparable(view.metadata_location)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in view.snapshots:
        found.add(comparable(snapshot["manifest-list"]))
        manifests |= {
            manifest.uri: manifest
            for manifest in load_manifest_list(
                view.storage, snapshot["manifest-list"], view.state.table_location
            )
        }
    for uri, manifest in manifests.items():
        found.add(comparable(uri))
        found.update(comparable(file.uri) for file in view.live_references(manifest))
    return found


def _metadata_files(metadata: Any) -> Iterator[str]:
    for entry in metadata.get("metadata-log", ()):
        yield comparable(entry["metadata-file"])
    for key in ("statistics", "partition-statistics"):
        for entry in metadata.get(key, ()):
            yield comparable(entry["statistics-path"])


def delete_orphans(catalog: CatalogClient, storage: AnyStorage, orphans: Orphans, throttle: Throttle) -> int:
    """Deletes orphans that still are none of the table's files; returns how many. Nothing is deleted where
    the table is gone: that is purge's."""
    view = load_view(catalog, storage, orphans.table)
    if view is None:
        return 0
    live = live_files(view)
    files = _not_queued(catalog, _unreferenced(orphans.files, live, orphans.table))
    prefix = own_prefix(view.state.location, view.state.uuid, catalog.warehouse or "")
    for at in range(0, len(files), DELETE_FILES):
        throttle.take(len(files[at : at + DELETE_FILES]))
        storage.delete(files[at : at + DELETE_FILES], root=prefix)
    log.info("optimize.orphans_deleted", table=str(orphans.table), files=len(files))
    return len(files)
