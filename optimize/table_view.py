"""A table as maintenance sees it: its metadata, its live files by hour partition, which deletes may apply to
them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.commit import TableState, state_of
from lake.data_file import EQUALITY_DELETES, DataFile
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST, ManifestFile
from lake.storage import Storage
from lake.table_files import load_manifest, load_manifest_list


@dataclass(frozen=True, slots=True)
class Partition:
    """One hour partition (hours since 1970-01-01T00Z).

    Counts of delete files are of those that may apply to its rows. One that may reach every partition counts
    as equality deletes: it stays as long as any partition does, so nothing may be merged past it.
    """

    hour: int
    files: tuple[DataFile, ...]
    position_delete_files: int = 0
    equality_delete_files: int = 0


@dataclass(slots=True)
class TableView:
    """One version of a table. Manifests and manifest lists are read when they are asked for, once; those of
    an older view are carried on.

    `known`: entries by manifest; `lists`: manifests by manifest list, of snapshots other than the head.
    """

    state: TableState
    metadata: Mapping[str, Any]
    storage: Storage
    metadata_location: str = ""
    known: dict[str, tuple[ManifestEntry, ...]] = field(default_factory=dict)
    lists: dict[str, Sequence[ManifestFile]] = field(default_factory=dict)
    manifests: Sequence[ManifestFile] = field(init=False)

    def __post_init__(self) -> None:
        self.manifests = tuple(self.state.manifests)

    @property
    def name(self) -> TableName:
        return self.state.name

    @property
    def snapshots(self) -> list[Mapping[str, Any]]:
        """All snapshots, the oldest first."""
        return sorted(
            self.metadata.get("snapshots", ()), key=lambda s: (s["timestamp-ms"], s.get("sequence-number", 0))
        )

    def has_snapshot(self, snapshot_id: int) -> bool:
        return any(s["snapshot-id"] == snapshot_id for s in self.metadata.get("snapshots", ()))

    def property(self, name: str) -> str | None:
        value = self.state.properties.get(name)
        return value or None

    def manifests_of(self, snapshot: Mapping[str, Any]) -> Sequence[ManifestFile]:
        """The manifests of a snapshot of this table."""
        if snapshot["snapshot-id"] == self.state.head:
            return self.manifests
        uri = snapshot["manifest-list"]
        if uri not in self.lists:
            self.lists[uri] = load_manifest_list(self.storage, uri, self.state.table_location)
        return self.lists[uri]

    def live_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """What a manifest adds or keeps, without what it deletes."""
        found = self.known.get(manifest.uri)
        if found is None:
            entries = load_manifest(self.storage, manifest, self.state.table_location)
            found = self.known[manifest.uri] = tuple(
                entry for entry in entries if entry.status is not Status.DELETED
            )
        return found

    def data_manifests(self) -> list[ManifestFile]:
        """Manifests of data files partitioned by hour; those of other specs are somebody else's and stay as
        they are."""
        return [
            m
            for m in self.manifests
            if m.content == DATA_MANIFEST and m.spec_id == self.state.spec["spec-id"]
        ]

    def partitions(self, hours: Iterable[int] | None = None) -> dict[int, Partition]:
        """The live partitions, all or those of the given hours; only manifests that may hold them are
        read."""
        wanted = None if hours is None else frozenset(hours)
        files: dict[int, list[DataFile]] = {}
        for manifest in self.data_manifests():
            if has_live(manifest) and may_hold(manifest, wanted):
                for entry in self.live_entries(manifest):
                    hour = entry.file.hour
                    if hour is not None and (wanted is None or hour in wanted):
                        files.setdefault(hour, []).append(entry.file)
        deletes = self.delete_files()
        everywhere = len(deletes.get(None, ()))
        found = {}
        for hour, group in files.items():
            own = deletes.get(hour, ())
            equality = sum(file.content == EQUALITY_DELETES for file in own)
            found[hour] = Partition(hour, tuple(group), len(own) - equality, equality + everywhere)
        return found

    def delete_files(self) -> dict[int | None, list[DataFile]]:
        """Live delete files by the hour whose rows they may touch; under None those that may reach every
        partition."""
        found: dict[int | None, list[DataFile]] = {}
        for manifest in self.manifests:
            if manifest.content == DELETE_MANIFEST and has_live(manifest):
                ours = manifest.spec_id == self.state.spec["spec-id"]
                for entry in self.live_entries(manifest):
                    found.setdefault(entry.file.hour if ours else None, []).append(entry.file)
        return found


def has_live(manifest: ManifestFile) -> bool:
    """Whether a manifest may hold live files. Version 1 tables may leave the counts out; then nobody knows
    before reading it."""
    return manifest.live_files > 0 or manifest.deleted_files == 0


def may_hold(manifest: ManifestFile, hours: frozenset[int] | None) -> bool:
    """Whether a manifest may hold a file of one of the hours, by its partition summary."""
    if hours is None or not manifest.partitions:
        return True
    summary = manifest.partitions[0]
    lower, upper = summary.get("lower_bound"), summary.get("upper_bound")
    if lower is None or upper is None:
        return True
    low, high = int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)
    return any(low <= hour <= high for hour in hours)


def load_view(
    catalog: CatalogClient, storage: Storage, name: TableName, before: TableView | None = None
) -> TableView | None:
    """Loads a table; None where there is none. Manifests and their lists are immutable, so what `before` has
    read is not read again."""
    try:
        answer = catalog.load_table(name)
    except NotFoundError:
        return None
    metadata = answer["metadata"]
    known, lists = (dict(before.known), dict(before.lists)) if before else ({}, {})
    return TableView(
        state_of(metadata, name, storage),
        metadata,
        storage,
        answer.get("metadata-location", ""),
        known,
        lists,
    )
