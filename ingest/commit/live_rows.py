"""What a keyed table holds at one state: its live data files, and which of their rows are deleted."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from pyroaring import BitMap64

from lake.commit import TableState
from lake.data_file import DATA
from lake.deletes.row_deletes import Place, load_row_deletes
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.storage import Storage, canonical
from lake.table_files import load_manifest

# Manifests and delete files never change, so what was read once is kept, of so many of them.
MANIFESTS_KEPT, DELETE_FILES_KEPT = 10_000, 50_000


@dataclass(frozen=True, slots=True)
class LiveRows:
    """`entries`: the live entries of each manifest. `deleted`: positions by the canonical URI of a data
    file."""

    entries: Sequence[tuple[ManifestFile, tuple[ManifestEntry, ...]]]
    deleted: Mapping[str, BitMap64]

    @property
    def data(self) -> list[ManifestEntry]:
        """The live data files."""
        return [entry for entry in self.all if entry.file.content == DATA]

    @property
    def all(self) -> list[ManifestEntry]:
        """The live data files and delete files."""
        return [entry for _, entries in self.entries for entry in entries]

    def deleted_of(self, uri: str) -> BitMap64:
        """The deleted positions of a data file."""
        return self.deleted.get(canonical(uri), BitMap64())


@dataclass
class LiveRowsReader:
    """Reads what tables hold, and keeps what it read. Thread-safe."""

    storage: Storage
    _manifests: OrderedDict[str, tuple[ManifestEntry, ...]] = field(default_factory=OrderedDict)
    _deletes: OrderedDict[Place, Mapping[str, BitMap64]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def read(self, state: TableState) -> LiveRows:
        """Reads a table as this state has it. Raises NotFoundError, UnavailableError, ProtocolError (also for
        equality deletes), TooLargeError, ForeignFileError."""
        entries = [(manifest, self._live_entries(state, manifest)) for manifest in state.manifests]
        deleted: dict[str, BitMap64] = {}
        for entry in (entry for _, of_manifest in entries for entry in of_manifest):
            if entry.file.content != DATA:
                for uri, positions in self._positions(state, entry).items():
                    deleted[canonical(uri)] = deleted.get(canonical(uri), BitMap64()) | positions
        return LiveRows(entries, deleted)

    def keep(self, positions: Mapping[Place, Mapping[str, BitMap64]]) -> None:
        """Takes over what delete files say that are just being written."""
        with self._lock:
            self._deletes |= positions
            while len(self._deletes) > DELETE_FILES_KEPT:
                self._deletes.popitem(last=False)

    def _live_entries(self, state: TableState, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        if not manifest.added_files + manifest.existing_files:
            return ()
        with self._lock:
            if (kept := self._manifests.get(manifest.uri)) is not None:
                self._manifests.move_to_end(manifest.uri)
                return kept
        read = load_manifest(self.storage, manifest, state.table_location)
        live = tuple(entry for entry in read if entry.status is not Status.DELETED)
        with self._lock:
            self._manifests[manifest.uri] = live
            while len(self._manifests) > MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return live

    def _positions(self, state: TableState, entry: ManifestEntry) -> Mapping[str, BitMap64]:
        place = entry.file.place
        with self._lock:
            if (kept := self._deletes.get(place)) is not None:
                self._deletes.move_to_end(place)
                return kept
        positions = load_row_deletes(self.storage, entry.file, state.table_location)
        self.keep({place: positions})
        return positions
