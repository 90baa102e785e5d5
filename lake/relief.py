"""Relief of a table that maintenance has left alone for too long, by its writer, by metadata alone: so that a
commit costs the same after a month.

A commit writes the table's metadata file and a manifest list anew. Both grow with every commit, by a snapshot
and a manifest, until maintenance takes away what is old. Where it does not, the writer does once in half of
`snapshots` commits: old snapshots go, and manifests of like size become one, so that an entry is written
again only as often as its manifest grows eightfold. No data file is read, written or deleted. Files that only
expired snapshots named stay where they are, for whoever still reads them, and are found by maintenance when
it is back (orphan files).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.commit import MAIN, Prepared, TableState, prepare_replace
from lake.expiry import expirable, without_snapshots
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.span import in_order
from lake.storage import Storage
from lake.table_files import load_manifest

# So many manifests of like size become one.
FAN_IN = 8
# From here on a manifest stays as it is: it is as large as a reader should have to read for one of its files.
ENTRIES_FULL = 2_000
BYTES_FULL = 4 * 1024 * 1024
_BITS = FAN_IN.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many snapshots and manifests a table may have until its writer acts. Maintenance that runs keeps it
    far below."""

    snapshots: int = 100
    manifests: int = 100


def prepare_relief(
    metadata: Mapping[str, Any],
    state: TableState,
    storage: Storage,
    bounds: Bounds,
    now_ms: int,
    *,
    schemas_too: bool = True,
) -> Prepared | None:
    """A commit that leaves half of the snapshots that `bounds` allow and gathers manifests; None where there
    is nothing to take away. `schemas_too`: schemas that those snapshots alone needed go with them.

    `state` is that of `metadata`. Raises what `load_manifest` raises.
    """
    entries, kept = gathered(state, storage) if metadata.get("format-version") == 2 else ([], [])
    gone = expirable(
        metadata,
        keep=max(1, bounds.snapshots // 2),
        age_max_ms=None,
        now_ms=now_ms,
        adding=int(bool(entries)),
    )
    if not entries and not gone:
        return None
    prepared = prepare_replace(state, entries, (), (), kept, now_ms) if entries else _bare(state)
    if not gone:
        return prepared
    request = without_snapshots(metadata, prepared.request, gone, moving=(MAIN,), schemas_too=schemas_too)
    return replace(
        prepared,
        request=request,
        after=replace(prepared.after, snapshots=prepared.after.snapshots - len(gone)),
    )


def _bare(state: TableState) -> Prepared:
    # The head is asserted although nothing is added: a rollback meanwhile could make one of those that go the
    # head.
    requirements = [
        {"type": "assert-table-uuid", "uuid": state.uuid},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": state.head},
    ]
    return Prepared(
        {"identifier": state.name.to_json(), "requirements": requirements, "updates": []},
        (),
        state.head or 0,
        state,
    )


def gathered(state: TableState, storage: Storage) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries of manifests that become one, those of data files and those of delete files apart, ordered by
    partition, and the manifests that stay; no entries where too few are of like size.

    Only manifests of one partition spec become one; those of other specs than Firn's are somebody else's and
    stay. The entries keep their snapshots and sequence numbers.
    """
    levels: dict[tuple[int, int, int], list[ManifestFile]] = {}
    kept: list[ManifestFile] = []
    for manifest in state.manifests:
        is_full = manifest.live_files >= ENTRIES_FULL or manifest.length >= BYTES_FULL
        if is_full or not state.is_own(manifest.spec_id):
            kept.append(manifest)
        else:
            alike = manifest.content, manifest.spec_id, _level(manifest)
            levels.setdefault(alike, []).append(manifest)
    merging = [manifest for level in levels.values() if len(level) >= FAN_IN for manifest in level]
    if not merging:
        return [], []
    kept += [manifest for level in levels.values() if len(level) < FAN_IN for manifest in level]
    entries = [
        replace(entry, status=Status.EXISTING)
        for manifest in merging
        for entry in load_manifest(storage, manifest, state.table_location)
        if entry.status is not Status.DELETED
    ]
    return sorted(entries, key=lambda entry: (in_order(entry.file.partition), entry.file.uri)), kept


def _level(manifest: ManifestFile) -> int:
    return max(0, manifest.live_files.bit_length() - 1) // _BITS


def is_crowded(state: TableState, bounds: Bounds, floor: Sequence[int] = (0, 0)) -> bool:
    """Whether a table has more than it may. `floor`: what it had after its last relief, which may be more
    than it should (tags, full manifests)."""
    snapshots, manifests = floor
    return state.snapshots > max(bounds.snapshots, snapshots + bounds.snapshots // 2) or len(
        state.manifests
    ) > max(bounds.manifests, manifests + bounds.manifests // 2)
