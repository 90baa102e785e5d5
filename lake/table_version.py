"""One version of a table file by file, as an erasure needs it: every live file and where it is listed, and
the snapshots beside the head that still reach others. `query` searches it, `optimize` changes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.commit import MAIN, TableState, state_of
from lake.data_file import DATA, EQUALITY_DELETES
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.storage import Storage
from lake.table_files import load_manifest, load_manifest_list
from lake.table_location import TableLocation


class Manifests:
    """Reads manifests and manifest lists, each once: they never change, and between two attempts of a commit
    there must be little to read."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._live: dict[str, tuple[ManifestEntry, ...]] = {}
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}

    def live(self, manifest: ManifestFile, table_location: TableLocation) -> tuple[ManifestEntry, ...]:
        """Entries of files that the manifest adds or keeps. Raises NotFoundError."""
        if manifest.uri not in self._live:
            entries = load_manifest(self.storage, manifest, table_location)
            self._live[manifest.uri] = tuple(entry for entry in entries if entry.status is not Status.DELETED)
        return self._live[manifest.uri]

    def listed(self, uri: str, table_location: TableLocation) -> tuple[ManifestFile, ...]:
        """The lines of a manifest list. Raises NotFoundError."""
        if uri not in self._lists:
            self._lists[uri] = tuple(load_manifest_list(self.storage, uri, table_location))
        return self._lists[uri]


@dataclass(frozen=True, slots=True)
class Version:
    """A table at one moment. `data`: its live data files by URI; `deletes`: the entries of its live delete
    files; `entries`: what each manifest lists that is live."""

    state: TableState
    metadata: Mapping[str, Any]
    data: Mapping[str, ManifestEntry]
    deletes: tuple[ManifestEntry, ...]
    entries: Mapping[str, tuple[ManifestEntry, ...]]

    @property
    def expirable(self) -> list[int]:
        """Snapshots that may go: all but the head and what other branches and tags name."""
        named = {ref["snapshot-id"] for ref in self.metadata.get("refs", {}).values()} | {self.state.head}
        return [
            int(s["snapshot-id"]) for s in self.metadata.get("snapshots", ()) if s["snapshot-id"] not in named
        ]

    @property
    def other_refs(self) -> list[str]:
        """Branches and tags that hold on to other snapshots than the head."""
        return [
            str(name)
            for name, ref in self.metadata.get("refs", {}).items()
            if ref["snapshot-id"] != self.state.head
        ]

    @property
    def has_equality_deletes(self) -> bool:
        """Whether rows are deleted by their values, which only an engine can tell."""
        return any(entry.file.content == EQUALITY_DELETES for entry in self.deletes)

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether the table still has a snapshot."""
        return _has_snapshot(self.metadata, snapshot_id)

    def is_ours(self, uri: str) -> bool:
        """Whether a file is in a partition by hour or by bucket, as all that Firn writes."""
        return self.data[uri].file.partition is not None


def load_version(
    catalog: CatalogClient, manifests: Manifests, name: TableName, *, snapshot_id: int | None = None
) -> Version | None:
    """The table as it is now with all its manifests; None where there is none.

    `snapshot_id`: as main was at that snapshot, if the table still has it.
    """
    try:
        metadata = catalog.load_table(name)["metadata"]
    except NotFoundError:
        return None
    if snapshot_id is not None and _has_snapshot(metadata, snapshot_id):
        metadata = _at(metadata, snapshot_id)
    state = state_of(metadata, name, manifests.storage)
    entries = {manifest.uri: manifests.live(manifest, state.table_location) for manifest in state.manifests}
    files = [entry for listed in entries.values() for entry in listed]
    return Version(
        state,
        metadata,
        {entry.file.uri: entry for entry in files if entry.file.content == DATA},
        tuple(entry for entry in files if entry.file.content != DATA),
        entries,
    )


def _has_snapshot(metadata: Mapping[str, Any], snapshot_id: int) -> bool:
    return any(s["snapshot-id"] == snapshot_id for s in metadata.get("snapshots", ()))


def _at(metadata: Mapping[str, Any], snapshot_id: int) -> Mapping[str, Any]:
    """The metadata with this snapshot as the head of main."""
    refs = metadata.get("refs", {})
    main = {**refs.get(MAIN, {"type": "branch"}), "snapshot-id": snapshot_id}
    return {**metadata, "current-snapshot-id": snapshot_id, "refs": {**refs, MAIN: main}}
