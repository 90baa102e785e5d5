"""What must be true of a table whatever happened to it: every file of every live snapshot is there, and every
row."""

import io

import pyarrow.parquet as pq

from lake.catalog_client import CatalogClient, TableName
from lake.manifest import Status, read_manifest
from lake.manifest_list import read_manifest_list
from lake.storage import AnyStorage
from optimize.table_view import load_view
from tests.optimize.support.small_files import SmallFiles


def missing_files(catalog: CatalogClient, storage: AnyStorage, table: TableName) -> list[str]:
    """Files that some live snapshot refers to and that do not exist: at a second look, too, since snapshots
    expire between one that is read and its files."""
    missing = _missing(catalog, storage, table)
    if not missing:
        return []
    still = set(_missing(catalog, storage, table))
    return [uri for uri in missing if uri in still]


def _missing(catalog: CatalogClient, storage: AnyStorage, table: TableName) -> list[str]:
    metadata = catalog.load_table(table)["metadata"]
    missing: list[str] = []
    seen: set[str] = set()
    for snapshot in metadata["snapshots"]:
        if storage.size(snapshot["manifest-list"]) is None:
            missing.append(snapshot["manifest-list"])
            continue
        for manifest in read_manifest_list(storage.read(snapshot["manifest-list"])):
            if manifest.uri in seen:
                continue
            seen.add(manifest.uri)
            if storage.size(manifest.uri) is None:
                missing.append(manifest.uri)
                continue
            for entry in read_manifest(storage.read(manifest.uri), manifest):
                if entry.status is not Status.DELETED and entry.file.uri not in seen:
                    seen.add(entry.file.uri)
                    if storage.size(entry.file.uri) is None:
                        missing.append(entry.file.uri)
    return missing


def live_uris(catalog: CatalogClient, storage: AnyStorage, table: TableName) -> set[str]:
    """Data files that the live snapshots refer to."""
    found: set[str] = set()
    for snapshot in catalog.load_table(table)["metadata"]["snapshots"]:
        for manifest in read_manifest_list(storage.read(snapshot["manifest-list"])):
            found |= {
                entry.file.uri
                for entry in read_manifest(storage.read(manifest.uri), manifest)
                if entry.status is not Status.DELETED
            }
    return found


def live_files(catalog: CatalogClient, storage: AnyStorage, table: TableName) -> dict[int, int]:
    """Live data files of the head by hour."""
    metadata = catalog.load_table(table)["metadata"]
    head = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    found: dict[int, int] = {}
    for manifest in read_manifest_list(storage.read(head["manifest-list"])):
        if manifest.content == 0:
            for entry in read_manifest(storage.read(manifest.uri), manifest):
                if entry.status is not Status.DELETED and entry.file.hour is not None:
                    found[entry.file.hour] = found.get(entry.file.hour, 0) + 1
    return found


def offsets_of(table: SmallFiles) -> list[int]:
    """The offsets of all rows in live data files, read file by file."""
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    files = [
        table.storage.read(file.uri) for partition in view.partitions().values() for file in partition.files
    ]
    return sorted(
        offset
        for data in files
        for offset in pq.read_table(io.BytesIO(data), columns=["_offset"]).column("_offset").to_pylist()
    )
