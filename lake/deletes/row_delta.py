"""What a commit of row deletes consists of, by the table's format version: the files to write, and the
manifest entries that `lake.commit.prepare_row_delta` takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from lake.commit import TableState
from lake.data_file import ROW_LINEAGE, DataFile
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows, only_data_file
from lake.deletes.row_deletes import Place, encode_row_deletes, positions_of
from lake.errors import RefusedError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DELETE_MANIFEST, ManifestFile
from lake.storage import Storage
from lake.table_files import load_manifest


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """`written`: (URI, content), which must be durable before the commit. `entries` and `kept`: as
    `prepare_row_delta` takes them. `positions`: what each of the new delete files says, by its place."""

    written: Sequence[tuple[str, bytes]]
    entries: Sequence[ManifestEntry]
    positions: Mapping[Place, Mapping[str, BitMap64]]
    kept: Sequence[ManifestFile] | None = None


def delete_rows(
    storage: Storage, state: TableState, deleted: Sequence[tuple[DataFile, BitMap64]]
) -> RowDeletes:
    """Deletes rows of data files by position, each file named once; of files of the table, and of those that
    the same commit adds.

    Version 2: nothing is read, deletes of earlier commits stay beside the new ones. Version 3: a data file
    has one vector, so what earlier deletes name goes into the new one, and they go away where they are about
    this file alone. Raises ValueError for positions that a data file does not have, RefusedError,
    and what `load_dead_rows` raises.
    """
    if state.version < ROW_LINEAGE or not deleted:
        written, files = encode_row_deletes(state.location, state.version, deleted)
        entries = [ManifestEntry(Status.ADDED, file) for file in files]
        return RowDeletes(written, entries, positions_of(files, deleted))
    manifests = list(state.manifests)
    live = {
        manifest.uri: _live_entries(storage, state, manifest)
        for manifest in manifests
        if manifest.content == DELETE_MANIFEST and manifest.live_files
    }
    index = DeleteFiles.of(entry for entries in live.values() for entry in entries)
    earlier = load_dead_rows(storage, index, [(file.uri, None) for file, _ in deleted], state.table_location)
    merged = [(file, positions | earlier.get(file.uri, BitMap64())) for file, positions in deleted]
    written, files = encode_row_deletes(state.location, state.version, merged)
    replaced = frozenset(file.uri for file, _ in deleted)
    entries = [ManifestEntry(Status.ADDED, file) for file in files]
    kept = []
    for manifest in manifests:
        after = _without(live.get(manifest.uri, ()), replaced)
        if after is None:
            kept.append(manifest)
        else:
            _check_spec(state, manifest)
            entries += after
    return RowDeletes(written, entries, positions_of(files, merged), kept)


def _live_entries(storage: Storage, state: TableState, manifest: ManifestFile) -> list[ManifestEntry]:
    entries = load_manifest(storage, manifest, state.table_location)
    return [entry for entry in entries if entry.status is not Status.DELETED]


def _without(entries: Sequence[ManifestEntry], replaced: frozenset[str]) -> list[ManifestEntry] | None:
    """What a delete manifest lists once the deletes of some data files have made way for new vectors: theirs
    marked, the others kept; None where it has none of them."""
    going = [only_data_file(entry.file) in replaced for entry in entries]
    if not any(going):
        return None
    return [
        replace(entry, status=Status.DELETED if goes else Status.EXISTING)
        for entry, goes in zip(entries, going, strict=True)
    ]


def _check_spec(state: TableState, manifest: ManifestFile) -> None:
    """Raises RefusedError for deletes of another partitioning: a manifest of ours cannot list them."""
    if not state.is_own(manifest.spec_id):
        raise RefusedError(
            f"table {state.name} has deletion vectors under another partitioning (spec {manifest.spec_id}); "
            "run Spark's rewrite_data_files on it"
        )
