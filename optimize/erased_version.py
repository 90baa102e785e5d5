"""One version of a table as erasure sees it: every live file and where it is listed, the change that takes
files away, and what nobody reaches after it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.commit import MAIN, TableState, prepare_overwrite, state_of
from lake.data_file import DATA, DataFile
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.storage import AnyStorage
from lake.table_files import load_manifest, load_manifest_list
from lake.table_location import TableLocation
from lake.tenant import TableId
from query.model.table_view import TableView, view_of


class Manifests:
    """Reads manifests and manifest lists, each once: they never change, and between two attempts of a commit
    there must be little to read."""

    def __init__(self, storage: AnyStorage) -> None:
        self.storage = storage
        self._live: dict[str, tuple[ManifestEntry, ...]] = {}
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}

    def live(self, manifest: ManifestFile, place: TableLocation) -> tuple[ManifestEntry, ...]:
        """Entries of files that the manifest adds or keeps. Raises NotFoundError."""
        if manifest.uri not in self._live:
            entries = load_manifest(self.storage, manifest, place)
            self._live[manifest.uri] = tuple(entry for entry in entries if entry.status is not Status.DELETED)
        return self._live[manifest.uri]

    def listed(self, uri: str, place: TableLocation) -> tuple[ManifestFile, ...]:
        """The lines of a manifest list. Raises NotFoundError."""
        if uri not in self._lists:
            self._lists[uri] = tuple(load_manifest_list(self.storage, uri, place))
        return self._lists[uri]


@dataclass(frozen=True, slots=True)
class Version:
    """A table at one moment. `data`: its live data files by URI; `deletes`: its live delete files."""

    view: TableView
    state: TableState
    metadata: Mapping[str, Any]
    data: Mapping[str, ManifestEntry]
    deletes: tuple[DataFile, ...]
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

    def has_snapshot(self, snapshot_id: int) -> bool:
        return any(s["snapshot-id"] == snapshot_id for s in self.metadata.get("snapshots", ()))

    def is_ours(self, uri: str) -> bool:
        """Whether a file is in a partition by hour, as all that Firn writes."""
        return self.data[uri].file.hour is not None


@dataclass(frozen=True, slots=True)
class Change:
    """A commit that takes rows and snapshots away. `snapshot_id` None: it only expires. `unreachable`: what
    nobody reaches after it."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int | None
    expired: tuple[int, ...]
    unreachable: tuple[str, ...]


def load_version(catalog: CatalogClient, manifests: Manifests, table: TableId) -> Version | None:
    """The table as it is now with all its manifests; None where there is none."""
    name = TableName(table.tenant.namespace, table.table)
    try:
        metadata = catalog.load_table(name)["metadata"]
    except NotFoundError:
        return None
    state = state_of(metadata, name, manifests.storage)
    entries = {manifest.uri: manifests.live(manifest, state.place) for manifest in state.manifests}
    files = [entry for listed in entries.values() for entry in listed]
    return Version(
        view_of(table, name, metadata),
        state,
        metadata,
        {entry.file.uri: entry for entry in files if entry.file.content == DATA},
        tuple(entry.file for entry in files if entry.file.content != DATA),
        entries,
    )


def prepare_change(
    manifests: Manifests, version: Version, replaced: Mapping[str, DataFile | None], now_ms: int
) -> Change:
    """One commit: the keys of `replaced` go, their values (what is left of them) come, and no other snapshot
    stays that may go."""
    expired = tuple(version.expirable)
    if not replaced:
        requirements = [
            {"type": "assert-table-uuid", "uuid": version.state.uuid},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": version.state.head},
        ]
        request: dict[str, Any] = {
            "identifier": version.state.name.to_json(),
            "requirements": requirements,
            "updates": [],
        }
        reached = {entry.file.uri for listed in version.entries.values() for entry in listed} | set(
            version.entries
        )
        files: Sequence[tuple[str, bytes]] = ()
        snapshot_id, gone = None, expired
    else:
        entries, kept = _rewritten(version, replaced)
        added = [file for file in replaced.values() if file is not None]
        prepared = prepare_overwrite(
            version.state, entries, added, [version.data[uri].file for uri in replaced], kept, now_ms
        )
        request, files, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
        gone = (
            *expired,
            *(
                [version.state.head]
                if version.state.head is not None and not _is_named(version, version.state.head)
                else []
            ),
        )
        reached = {manifest.uri for manifest in prepared.after.manifests} | {
            file.uri for file in version.deletes
        }
        reached |= {uri for uri in version.data if uri not in replaced} | {file.uri for file in added}
    if gone:
        request["updates"] = [*request["updates"], {"action": "remove-snapshots", "snapshot-ids": list(gone)}]
    return Change(request, files, snapshot_id, gone, tuple(_unreachable(manifests, version, gone, reached)))


def reached_files(manifests: Manifests, version: Version) -> set[str]:
    """Everything that any snapshot of this version reaches."""
    return {
        uri
        for snapshot in version.metadata.get("snapshots", ())
        for uri in _files_of(manifests, snapshot, version.state.place)
    }


def _is_named(version: Version, snapshot_id: int) -> bool:
    """By a branch or tag other than main, which moves on."""
    return any(
        ref["snapshot-id"] == snapshot_id
        for name, ref in version.metadata.get("refs", {}).items()
        if name != MAIN
    )


def _rewritten(
    version: Version, replaced: Mapping[str, DataFile | None]
) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries of the new manifests, by hour, and the manifests that stay. An entry of a file that goes tells
    no bounds: they are values of rows."""
    entries = [ManifestEntry(Status.ADDED, file) for file in replaced.values() if file is not None]
    kept: list[ManifestFile] = []
    for manifest in version.state.manifests:
        listed = version.entries[manifest.uri]
        if not any(entry.file.uri in replaced for entry in listed):
            kept.append(manifest)
            continue
        for entry in listed:
            if entry.file.uri in replaced:
                entries.append(
                    replace(
                        entry,
                        status=Status.DELETED,
                        file=replace(entry.file, lower_bounds=None, upper_bounds=None),
                    )
                )
            else:
                entries.append(replace(entry, status=Status.EXISTING))
    return sorted(entries, key=lambda e: (e.file.hour or 0, e.status, e.file.uri)), kept


def _unreachable(
    manifests: Manifests, version: Version, gone: Sequence[int], reached: set[str]
) -> Iterator[str]:
    """Manifest lists, manifests, data and delete files of snapshots that go, unless something that stays
    reaches them."""
    snapshots = version.metadata.get("snapshots", ())
    seen = reached | {
        uri
        for s in snapshots
        if s["snapshot-id"] not in gone
        for uri in _files_of(manifests, s, version.state.place)
    }
    for snapshot in snapshots:
        if snapshot["snapshot-id"] in gone:
            for uri in _files_of(manifests, snapshot, version.state.place):
                if uri not in seen:
                    seen.add(uri)
                    yield uri


def _files_of(manifests: Manifests, snapshot: Mapping[str, Any], place: TableLocation) -> Iterator[str]:
    """Everything a snapshot reaches. What is gone already is left out."""
    place.check(snapshot["manifest-list"])
    yield snapshot["manifest-list"]
    try:
        listed = manifests.listed(snapshot["manifest-list"], place)
    except NotFoundError:
        return
    for manifest in listed:
        yield manifest.uri
        with suppress(NotFoundError):
            yield from (entry.file.uri for entry in manifests.live(manifest, place))
