"""The commit that puts merged files in the place of small ones, and lets old snapshots go, prepared for one
version of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.commit import MAIN, Prepared, prepare_delete, prepare_replace
from lake.data_file import DATA, DataFile
from lake.deletes.row_deletes import encode_row_deletes
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.settings import OptimizeSettings
from optimize.dangling_deletes import dangling_deletes
from optimize.late_deletes import Carried
from optimize.merge_job import Merged
from optimize.snapshots import to_expire, unreachable_files
from optimize.table_view import TableView, has_live, may_hold

# The branch on which Spark rewrites; between rounds there is none.
REWRITE_BRANCH = "firn-rewrite"
MANIFEST_BYTES_MIN = 4 * 1024 * 1024  # larger ones are not merged with others
Place = tuple[str, int | None]  # of a file, see `DataFile.place`


@dataclass(frozen=True, slots=True)
class Change:
    """A request ready to be sent, what must be durable before it, and what nobody reaches after it."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int | None
    merged: tuple[Merged, ...]
    removed: tuple[DataFile, ...]
    expired: tuple[int, ...]
    unreachable: tuple[str, ...]


def still_live(view: TableView, files: Sequence[DataFile]) -> list[DataFile]:
    """Those of the data and delete files that this version still has."""
    if not files:
        return []
    live = {
        file.place
        for partition in view.partitions(
            {file.partition for file in files if file.partition is not None}
        ).values()
        for file in partition.files
    }
    live |= {entry.file.place for entry in view.delete_entries()}
    return [file for file in files if file.place in live]


def prepare_change(
    view: TableView,
    merges: Sequence[Carried],
    settings: OptimizeSettings,
    now_ms: int,
    *,
    remove: Sequence[DataFile] = (),
) -> Change | None:
    """One commit with all that is due: merges in, their inputs out, the deletes that came to them carried
    over, delete files that no data file is left for taken away, manifests gathered, snapshots expired. None
    where nothing is to be done.

    `remove`: files that go with their rows (retention), data and delete files; then `merges` is empty. Raises
    what reading manifests and delete files raises.
    """
    crowded = len(view.own_manifests()) > settings.merge.manifests_max
    removed = [
        *(file for file in remove if file.content == DATA),
        *(file for one in merges for file in one.merged.group.inputs),
    ]
    deletes = {file.place: file for file in remove if file.content != DATA}
    deletes |= {
        file.place: file for one in merges if one.merged.places is None for file in one.merged.group.deletes
    }
    deletes |= {file.place: file for file in dangling_deletes(view, {file.uri for file in removed})}
    adds_snapshot = bool(removed or deletes or crowded)
    expired = to_expire(view.metadata, settings, now_ms, adding=int(adds_snapshot))
    branch = view.metadata.get("refs", {}).get(REWRITE_BRANCH)
    if not adds_snapshot and not expired and branch is None:
        return None
    request: dict[str, Any] = _bare_request(view)
    files: list[tuple[str, bytes]] = []
    snapshot_id = None
    if adds_snapshot:
        prepared, written = _prepared(
            view, merges, removed, [*deletes.values()], bool(remove), crowded, now_ms
        )
        request, files, snapshot_id = (
            dict(prepared.request),
            [*written, *prepared.files],
            prepared.snapshot_id,
        )
    if branch is not None:
        request = _without_branch(request, branch["snapshot-id"])
    if expired:
        request = _without_snapshots(request, view, expired)
    unreachable = tuple(unreachable_files(view, expired)) if expired else ()
    merged = tuple(one.merged for one in merges)
    return Change(request, files, snapshot_id, merged, tuple(removed), expired, unreachable)


def _prepared(
    view: TableView,
    merges: Sequence[Carried],
    removed: Sequence[DataFile],
    deletes: Sequence[DataFile],
    loses_rows: bool,
    crowded: bool,
    now_ms: int,
) -> tuple[Prepared, Sequence[tuple[str, bytes]]]:
    """The snapshot, and the new delete files to be written before it."""
    state = view.state
    outputs = [
        ManifestEntry(Status.ADDED, file, sequence_number=one.sequence_number)
        for one in merges
        for file in one.merged.outputs
    ]
    late = [(one.merged.outputs[0], one.deleted) for one in merges if one.deleted]
    written, late_files = encode_row_deletes(state.location, state.version, late)
    added = [*outputs, *(ManifestEntry(Status.ADDED, file) for file in late_files)]
    gone = [*removed, *deletes]
    entries, kept = rewritten_entries(view, {file.place for file in gone}, added, gather=crowded)
    if loses_rows:
        return prepare_delete(state, entries, gone, kept, now_ms), written
    added_files = [entry.file for entry in added]
    return prepare_replace(state, entries, added_files, gone, kept, now_ms), written


def _without_snapshots(request: Mapping[str, Any], view: TableView, expired: Sequence[int]) -> dict[str, Any]:
    """Snapshots go, if every branch and tag still names what it did: what is removed under a ref takes the
    ref away with it."""
    refs = [
        (name, ref["snapshot-id"])
        for name, ref in view.metadata.get("refs", {}).items()
        if name not in (MAIN, REWRITE_BRANCH)
    ]
    return {
        **request,
        "requirements": [
            *request["requirements"],
            *({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": at} for name, at in refs),
        ],
        "updates": [*request["updates"], {"action": "remove-snapshots", "snapshot-ids": list(expired)}],
    }


def _without_branch(request: Mapping[str, Any], branch_head: int) -> dict[str, Any]:
    """The branch goes in the same commit, if it still is what it was; its snapshot, named no more, expires
    like any other."""
    return {
        **request,
        "requirements": [
            *request["requirements"],
            {"type": "assert-ref-snapshot-id", "ref": REWRITE_BRANCH, "snapshot-id": branch_head},
        ],
        "updates": [*request["updates"], {"action": "remove-snapshot-ref", "ref-name": REWRITE_BRANCH}],
    }


def _bare_request(view: TableView) -> dict[str, Any]:
    # The head is asserted although expiry adds nothing: a rollback in between could make one of the expired
    # snapshots the head.
    requirements = [
        {"type": "assert-table-uuid", "uuid": view.state.uuid},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": view.state.head},
    ]
    return {"identifier": view.name.to_json(), "requirements": requirements, "updates": []}


def rewritten_entries(
    view: TableView, removed: set[Place], added: Sequence[ManifestEntry], *, gather: bool
) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries for the new manifests, ordered by partition, and the manifests that stay as they are.

    A manifest is rewritten when it holds a removed file, or with `gather` when it is small; its other entries
    keep their snapshot and sequence numbers (spec, "Sequence Numbers": EXISTING). Manifests without live
    files are left out. Raises ValueError where a file is not live.
    """
    partitions = _partitions_of(view, removed)
    entries = [*added]
    kept: list[ManifestFile] = []
    ours = {manifest.uri for manifest in view.own_manifests()}
    missing = set(removed)
    for manifest in view.manifests:
        if manifest.uri not in ours:
            kept.append(manifest)
            continue
        if not has_live(manifest):
            continue
        touched = (
            bool(missing)
            and may_hold(manifest, partitions)
            and any(entry.file.place in removed for entry in view.live_entries(manifest))
        )
        if not touched and not (gather and manifest.length < MANIFEST_BYTES_MIN):
            kept.append(manifest)
            continue
        for entry in view.live_entries(manifest):
            missing.discard(entry.file.place)
            entries.append(
                replace(entry, status=Status.DELETED if entry.file.place in removed else Status.EXISTING)
            )
    if missing:
        raise ValueError(f"{len(missing)} files are not live in {view.name}, {min(missing)[0]} for one")
    return sorted(entries, key=lambda e: (e.file.partition or 0, e.status, e.file.uri)), kept


def _partitions_of(view: TableView, removed: set[Place]) -> frozenset[int] | None:
    values = set()
    for entries in view.known.values():
        for entry in entries:
            if entry.file.place in removed:
                if entry.file.partition is None:
                    return None
                values.add(entry.file.partition)
    return frozenset(values)
