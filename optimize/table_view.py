"""A table as maintenance sees it: its metadata, its live files by partition, which deletes may apply to
them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.commit import TableState, state_of
from lake.data_file import EQUALITY_DELETES, ROW_LINEAGE, DataFile
from lake.deletes.dead_rows import DeleteFiles
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST, Lines, ManifestFile
from lake.manifest_records import Reference
from lake.span import Partition as Place
from lake.span import Span
from lake.storage import Storage
from lake.table_files import load_manifest, load_manifest_list, load_references
from optimize.merge_job import InputFacts


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: an hour (hours since 1970-01-01T00Z), a bucket of a keyed table, or a span.

    Counts of delete files are of those that may apply to its rows. One that may reach every partition counts
    as equality deletes: it stays as long as any partition does, so nothing may be merged past it. `facts`: by
    URI what is known of a file besides, where the table has delete files or ids of rows.
    """

    value: Place
    files: tuple[DataFile, ...]
    position_delete_files: int = 0
    equality_delete_files: int = 0
    facts: Mapping[str, InputFacts] = field(default_factory=dict)

    @property
    def by_bucket(self) -> bool:
        """Whether it is a bucket."""
        return any(file.bucket is not None for file in self.files)

    def deletes_of(self, file: DataFile) -> tuple[DataFile, ...]:
        """The position deletes that may name rows of one of its files."""
        facts = self.facts.get(file.uri)
        return () if facts is None else facts.deletes


@dataclass(slots=True)
class TableView:
    """One version of a table. Manifests and manifest lists are read when they are asked for, once; those of
    an older view are carried on.

    `known`: entries by manifest; `lists`: manifests by manifest list, of snapshots other than the head, and
    `lines`, of which they are; `named`: the data files that a delete file names, where it may name several;
    `named_by`: the files that a manifest names, those that it says are gone as well.
    """

    state: TableState
    metadata: Mapping[str, Any]
    storage: Storage
    metadata_location: str = ""
    known: dict[str, tuple[ManifestEntry, ...]] = field(default_factory=dict)
    lists: dict[str, Sequence[ManifestFile]] = field(default_factory=dict)
    named: dict[tuple[str, int | None], frozenset[str]] = field(default_factory=dict)
    lines: Lines = field(default_factory=dict)
    named_by: dict[str, list[Reference]] = field(default_factory=dict)
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
            self.lists[uri] = load_manifest_list(self.storage, uri, self.state.table_location, self.lines)
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

    def live_references(self, manifest: ManifestFile) -> list[Reference]:
        """The files that a manifest adds or keeps. Who asks for no more asks once: it is not kept."""
        entries = self.known.get(manifest.uri)
        if entries is None:
            return [each for each in self._references(manifest) if each.is_live]
        return [Reference.to(entry.file) for entry in entries]

    def gone_references(self, manifest: ManifestFile) -> list[Reference]:
        """The table's own files that the snapshot of a manifest has taken away, as it says. Who asks for
        these asks for those that are live as well."""
        found = self.named_by[manifest.uri] = self._references(manifest)
        location = self.state.table_location
        return [each for each in found if not each.is_live and location.holds(each.uri)]

    def _references(self, manifest: ManifestFile) -> list[Reference]:
        found = self.named_by.get(manifest.uri)
        if found is None:
            found = load_references(self.storage, manifest, self.state.table_location)
        return found

    def own_manifests(self) -> list[ManifestFile]:
        """Manifests of the partition specs by which Firn writes; those of other specs are somebody else's and
        stay as they are."""
        return [m for m in self.manifests if self.state.is_own(m.spec_id)]

    def data_manifests(self) -> list[ManifestFile]:
        """Those of data files."""
        return [m for m in self.own_manifests() if m.content == DATA_MANIFEST]

    def may_hold(self, manifest: ManifestFile, partitions: Iterable[Place] | None) -> bool:
        """Whether a manifest may hold a file of one of the partitions (None: of any), by its partition
        summary."""
        if partitions is None or not manifest.partitions or not self.state.is_own(manifest.spec_id):
            return True
        unit = self.state.span_specs.unit_of(manifest.spec_id)
        summary = manifest.partitions[0]
        lower, upper = summary.get("lower_bound"), summary.get("upper_bound")
        if lower is None or upper is None:
            return True
        low, high = int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)
        for each in partitions:
            of_unit, value = (each.unit, each.value) if isinstance(each, Span) else (None, each)
            if of_unit is unit and low <= value <= high:
                return True
        return False

    def begins_before(self, hour: int) -> bool:
        """Whether a file of Firn's may be of an hour, day or month that begins before an hour (since
        1970-01-01T00Z), by the summaries of the manifests: none of them is read."""
        return any(has_live(each) and self._may_begin_before(each, hour) for each in self.own_manifests())

    def _may_begin_before(self, manifest: ManifestFile, hour: int) -> bool:
        lower = manifest.partitions[0].get("lower_bound") if manifest.partitions else None
        if lower is None:
            return True
        unit = self.state.span_specs.unit_of(manifest.spec_id)
        at = int.from_bytes(lower, "little", signed=True)
        return (at if unit is None else Span(unit, at).hours.start) < hour

    def partitions(
        self, values: Iterable[Place] | None = None, *, before_hour: int | None = None
    ) -> dict[Place, Partition]:
        """The live partitions, all or those asked for; only manifests that may hold them are read.
        `before_hour` (since 1970-01-01T00Z; of a table that has no buckets): those that begin then or later
        may be left out. Raises ProtocolError where delete files contradict each other."""
        wanted = None if values is None else frozenset(values)
        entries: dict[Place, list[ManifestEntry]] = {}
        for manifest in self.data_manifests():
            if before_hour is not None and not self._may_begin_before(manifest, before_hour):
                continue
            if has_live(manifest) and self.may_hold(manifest, wanted):
                for entry in self.live_entries(manifest):
                    value = entry.file.partition
                    if value is not None and (wanted is None or value in wanted):
                        entries.setdefault(value, []).append(entry)
        deletes, index = self.delete_files(), DeleteFiles.of(self.delete_entries())
        tells = bool(deletes) or self.state.version >= ROW_LINEAGE
        everywhere = len(deletes.get(None, ()))
        found = {}
        for value, group in entries.items():
            own = deletes.get(value, ())
            equality = sum(file.content == EQUALITY_DELETES for file in own)
            facts = {entry.file.uri: _facts_of(entry, index) for entry in group} if tells else {}
            files = tuple(entry.file for entry in group)
            found[value] = Partition(value, files, len(own) - equality, equality + everywhere, facts)
        return found

    def delete_entries(self) -> list[ManifestEntry]:
        """Live entries of delete files, of whatever partition."""
        return [entry for _, entry in self._delete_entries()]

    def delete_files(self) -> dict[Place | None, list[DataFile]]:
        """Live delete files by the partition whose rows they may touch; under None those that may reach every
        partition."""
        found: dict[Place | None, list[DataFile]] = {}
        for manifest, entry in self._delete_entries():
            ours = self.state.is_own(manifest.spec_id)
            found.setdefault(entry.file.partition if ours else None, []).append(entry.file)
        return found

    def _delete_entries(self) -> Iterator[tuple[ManifestFile, ManifestEntry]]:
        for manifest in self.manifests:
            if manifest.content == DELETE_MANIFEST and has_live(manifest):
                for entry in self.live_entries(manifest):
                    yield manifest, entry


def _facts_of(entry: ManifestEntry, index: DeleteFiles) -> InputFacts:
    return InputFacts(tuple(index.of_file(entry.file.uri, entry.sequence_number)), entry.sequence_number)


def has_live(manifest: ManifestFile) -> bool:
    """Whether a manifest may hold live files. Version 1 tables may leave the counts out; then nobody knows
    before reading it."""
    return manifest.live_files > 0 or manifest.deleted_files == 0


def may_take(manifest: ManifestFile) -> bool:
    """Whether a manifest may name files that its snapshot has taken away."""
    return manifest.deleted_files > 0 or manifest.live_files == 0


def load_view(
    catalog: CatalogClient, storage: Storage, name: TableName, before: TableView | None = None
) -> TableView | None:
    """Loads a table; None where there is none. Manifests and their lists are immutable, so what `before` has
    read is not read again."""
    try:
        answer = catalog.load_table(name)
    except NotFoundError:
        return None
    return view_of(answer, name, storage, before)


def view_of(
    answer: Mapping[str, Any], name: TableName, storage: Storage, before: TableView | None = None
) -> TableView:
    """The view of a table as the catalog has loaded it. Raises what `lake.commit.state_of` raises."""
    known, lists, named = (
        (dict(before.known), dict(before.lists), dict(before.named)) if before else ({}, {}, {})
    )
    metadata = answer["metadata"]
    return TableView(
        state_of(metadata, name, storage),
        metadata,
        storage,
        answer.get("metadata-location", ""),
        known,
        lists,
        named,
    )
