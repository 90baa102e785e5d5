"""The live data files of a table as its manifests list them. Manifests never change, so what was read once is
kept."""

import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import TypeVar

from pyroaring import BitMap64

from lake.data_file import DATA
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.log_schema import TIMESTAMP
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.storage import Storage
from lake.table_files import load_manifest, load_manifest_list
from lake.table_layout import US_PER_HOUR
from lake.table_location import TableLocation
from lake.token_filter.block import block_bytes
from query.model.table_view import EPOCH, TableView

FILES_KEPT_MAX = 200_000
# Writers on Iceberg's own library count only the first hundred columns of a wide table: there a missing count
# says nothing.
COUNTED_COLUMNS_SURE = 64
_LONG = struct.Struct("<q")
_Kept = TypeVar("_Kept")
_Manifests = OrderedDict[str, tuple[_Kept, ...]]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the current snapshot; `first_us` and `last_us` bound its timestamps (microseconds since
    1970, both included). `filter_bytes`: length of the block of token filters, where there may be one."""

    uri: str
    rows: int
    size_bytes: int
    first_us: int
    last_us: int
    null_counts: Mapping[int, int] | None
    value_counts: Mapping[int, int] | None
    lower_bounds: Mapping[int, bytes] | None
    upper_bounds: Mapping[int, bytes] | None
    sequence_number: int | None = None
    filter_bytes: int = 0

    def filled_rows(self, column_id: int) -> int | None:
        """How many rows have a value in a primitive column; None where the file does not say. 0 also where it
        was written before the column was there."""
        if self.value_counts is None or self.null_counts is None:
            return None
        values, nulls = self.value_counts.get(column_id), self.null_counts.get(column_id)
        if values is None:
            return 0 if self.counts_all else None
        return None if nulls is None else max(0, values - nulls)

    @property
    def counts_all(self) -> bool:
        """Whether a column that is not among the counted ones has no value in it."""
        return self.value_counts is not None and len(self.value_counts) < COUNTED_COLUMNS_SURE


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """All live data files of a snapshot, and the delete files that may apply to them. `has_deletes`: there
    are some."""

    files: tuple[LiveFile, ...]
    has_deletes: bool
    deletes: DeleteFiles = field(default_factory=DeleteFiles)

    @property
    def newest(self) -> datetime | None:
        """The time of the newest row; None where there is none."""
        return (
            EPOCH + timedelta(microseconds=max(file.last_us for file in self.files)) if self.files else None
        )

    @property
    def oldest(self) -> datetime | None:
        return (
            EPOCH + timedelta(microseconds=min(file.first_us for file in self.files)) if self.files else None
        )


NO_FILES = LiveFiles((), has_deletes=False)


class FileIndex:
    """Reads manifests and keeps what it read, up to a number of files. Thread-safe."""

    def __init__(self, storage: Storage, *, files_kept_max: int = FILES_KEPT_MAX) -> None:
        self._storage = storage
        self._kept_max = files_kept_max
        self._manifests: _Manifests[LiveFile] = OrderedDict()
        self._delete_manifests: _Manifests[ManifestEntry] = OrderedDict()
        self._snapshots: OrderedDict[str, tuple[ManifestFile, ...]] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    def files(self, view: TableView) -> LiveFiles:
        """The live files of the view's snapshot. Raises NotFoundError where a manifest has expired
        meanwhile."""
        if view.manifest_list is None:
            return NO_FILES
        manifests = self._manifest_list(view.manifest_list, view.table_location)
        timestamp_id = view.schema.by_name[TIMESTAMP].id
        files, deletes = list[LiveFile](), list[ManifestEntry]()
        for manifest in manifests:
            if not manifest.live_files:
                continue
            if manifest.content == DATA:
                files += self._manifest(manifest, timestamp_id, view.table_location)
            else:
                deletes += self._delete_manifest(manifest, view.table_location)
        return LiveFiles(tuple(files), bool(deletes), DeleteFiles.of(deletes))

    def dead_rows(
        self, live: LiveFiles, files: Sequence[LiveFile], table_location: TableLocation
    ) -> dict[str, BitMap64]:
        """The deleted positions of data files, by URI. Raises what `load_dead_rows` raises."""
        return load_dead_rows(self._storage, live.deletes, numbered(files), table_location)

    def _manifest_list(self, uri: str, table_location: TableLocation) -> tuple[ManifestFile, ...]:
        table_location.check(uri)  # what was read for one table is not another's
        with self._lock:
            if uri in self._snapshots:
                self._snapshots.move_to_end(uri)
                return self._snapshots[uri]
        manifests = tuple(load_manifest_list(self._storage, uri, table_location))
        with self._lock:
            self._snapshots[uri] = manifests
            while len(self._snapshots) > self._kept_max // 100:
                self._snapshots.popitem(last=False)
        return manifests

    def _manifest(
        self, manifest: ManifestFile, timestamp_id: int, table_location: TableLocation
    ) -> tuple[LiveFile, ...]:
        known = self._known(self._manifests, manifest)
        if known is None:
            entries = load_manifest(self._storage, manifest, table_location)
            files = tuple(
                live_file(entry, timestamp_id)
                for entry in entries
                if entry.status is not Status.DELETED and entry.file.content == DATA
            )
            known = self._keep(self._manifests, manifest, files)
        return known

    def _delete_manifest(
        self, manifest: ManifestFile, table_location: TableLocation
    ) -> tuple[ManifestEntry, ...]:
        known = self._known(self._delete_manifests, manifest)
        if known is None:
            entries = load_manifest(self._storage, manifest, table_location)
            live = tuple(entry for entry in entries if entry.status is not Status.DELETED)
            known = self._keep(self._delete_manifests, manifest, live)
        return known

    def _known(self, manifests: "_Manifests[_Kept]", manifest: ManifestFile) -> tuple[_Kept, ...] | None:
        with self._lock:
            if (known := manifests.get(manifest.uri)) is not None:
                manifests.move_to_end(manifest.uri)
            return known

    def _keep(
        self, manifests: "_Manifests[_Kept]", manifest: ManifestFile, files: tuple[_Kept, ...]
    ) -> tuple[_Kept, ...]:
        with self._lock:
            if manifest.uri not in manifests:
                manifests[manifest.uri] = files
                self._kept += len(files)
            while self._kept > self._kept_max and len(manifests) > 1:
                self._kept -= len(manifests.popitem(last=False)[1])
        return files


def numbered(files: Sequence[LiveFile]) -> list[tuple[str, int | None]]:
    """URI and sequence number of each, by which deletes are found."""
    return [(file.uri, file.sequence_number) for file in files]


def live_file(entry: ManifestEntry, timestamp_id: int) -> LiveFile:
    """What a manifest says of a data file."""
    file = entry.file
    first, last = (file.lower_bounds or {}).get(timestamp_id), (file.upper_bounds or {}).get(timestamp_id)
    hours = file.hours
    first_us = _LONG.unpack(first)[0] if first else -(2**62) if hours is None else hours.start * US_PER_HOUR
    last_us = _LONG.unpack(last)[0] if last else 2**62 if hours is None else hours.stop * US_PER_HOUR - 1
    return LiveFile(
        file.uri,
        file.rows,
        file.size_bytes,
        first_us,
        last_us,
        file.null_counts,
        file.value_counts,
        file.lower_bounds,
        file.upper_bounds,
        entry.sequence_number,
        block_bytes(file.split_offsets),
    )
