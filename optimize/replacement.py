"""The commit that puts merged files in the place of small ones, and lets old snapshots go, prepared for one
version of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyroaring import BitMap64

from lake.commit import MAIN, Prepared, prepare_delete, prepare_overwrite, prepare_replace
from lake.data_file import DATA, DataFile
from lake.deletes.row_deletes import encode_row_deletes
from lake.expiry import without_snapshots
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.relief import FAN_IN
from lake.settings import OptimizeSettings
from lake.span import Partition, in_order
from optimize.dangling_deletes import dangling_deletes
from optimize.equality_deletes import Turned
from optimize.gathered_deletes import gather_deletes
from optimize.late_deletes import Carried
from optimize.merge_job import Merged
from optimize.snapshots import to_expire, unreachable_files
from optimize.table_view import TableView, has_live

# The branch on which Spark rewrites; between rounds there is none.
REWRITE_BRANCH = "firn-rewrite"
MANIFEST_BYTES_MIN = 4 * 1024 * 1024  # larger ones are not merged with others
STREWN_BYTES_MAX = 512 * 1024
Place = tuple[str, int | None]  # of a file, see `DataFile.place`


@dataclass(frozen=True, slots=True)
class Change:
    """A request ready to be sent, what must be durable before it, and what nobody reaches after it.
    `deletes`: delete files that go; `new_deletes`: data files that get one."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int | None
    merged: tuple[Merged, ...]
    removed: tuple[DataFile, ...]
    expired: tuple[int, ...]
    unreachable: tuple[str, ...]
    deletes: tuple[DataFile, ...] = ()
    new_deletes: tuple[DataFile, ...] = ()

    def snapshots_left(self, view: TableView) -> int:
        """How many snapshots the table has with it; `view` is the version that it was prepared for."""
        return len(view.snapshots) - len(self.expired) + int(self.snapshot_id is not None)


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


@dataclass(frozen=True, slots=True)
class Due:
    """What one commit is to do. `merges`: new files for their inputs; `remove`: data and delete files that go
    with their rows (retention), and then no merges but those that leave such rows out; `turned`: equality
    deletes that go, with the rows that they delete; `gather`: URIs of data files whose delete files become
    one; `asserts`: requirements of the commit where rows go."""

    merges: Sequence[Carried] = ()
    remove: Sequence[DataFile] = ()
    turned: Sequence[Turned] = ()
    gather: Sequence[str] = ()
    asserts: Sequence[Mapping[str, Any]] = ()

    @property
    def loses_rows(self) -> bool:
        """Whether rows go."""
        return bool(self.remove) or any(one.merged.group.kept_from_us is not None for one in self.merges)


@dataclass(frozen=True, slots=True)
class _Files:
    """Data files that go, delete files that go, data files that come, and rows that new delete files name."""

    removed: Sequence[DataFile]
    deletes: Sequence[DataFile]
    outputs: Sequence[ManifestEntry]
    rows: Sequence[tuple[DataFile, BitMap64]]


def prepare_change(
    view: TableView, due: Due, settings: OptimizeSettings, now_ms: int, *, schemas_too: bool
) -> Change | None:
    """One commit with all that is due; delete files that no data file is left for go in it, too, manifests
    are gathered, snapshots expire, and with `schemas_too` the schemas that they alone needed. None where
    nothing is to be done. Raises what reading manifests and delete files raises."""
    files = _files_of(view, due)
    crowded = len(view.own_manifests()) > settings.merge.manifests_max
    changes_files = bool(files.removed or files.deletes or files.rows)
    adds_snapshot = changes_files or crowded
    expired = to_expire(view.metadata, settings, now_ms, adding=int(adds_snapshot))
    branch = view.metadata.get("refs", {}).get(REWRITE_BRANCH)
    if not adds_snapshot and not expired and branch is None:
        return None
    request: dict[str, Any] = _bare_request(view)
    written: Sequence[tuple[str, bytes]] = ()
    snapshot_id = None
    if adds_snapshot:
        prepared = _prepared(view, files, due.loses_rows, crowded or _is_strewn(view), now_ms)
        request, written, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
    if due.loses_rows:
        request["requirements"] = [*request["requirements"], *due.asserts]
    if branch is not None:
        request = _without_branch(request, branch["snapshot-id"])
    if expired:
        moving = (MAIN, REWRITE_BRANCH)
        request = without_snapshots(view.metadata, request, expired, moving=moving, schemas_too=schemas_too)
    unreachable = tuple(unreachable_files(view, expired)) if expired else ()
    merged = tuple(one.merged for one in due.merges)
    return Change(
        request,
        written,
        snapshot_id,
        merged,
        tuple(files.removed),
        expired,
        unreachable,
        tuple(files.deletes),
        tuple(file for file, _ in files.rows),
    )


def _is_strewn(view: TableView) -> bool:
    """Whether a commit that is made anyhow gathers the manifests: some are there, and all together are so
    small that to write them once more costs next to nothing. A table with little traffic gets a manifest with
    each file, some kilobytes for one entry; until there are `merge.manifests_max` of them, every reader that
    knows none of them would read them all."""
    manifests = view.own_manifests()
    return len(manifests) >= FAN_IN and sum(each.length for each in manifests) <= STREWN_BYTES_MAX


def _files_of(view: TableView, due: Due) -> _Files:
    removed = [
        *(file for file in due.remove if file.content == DATA),
        *(file for one in due.merges for file in one.merged.group.inputs),
    ]
    more = {uri: BitMap64() for uri in due.gather}
    for one in due.turned:
        more |= one.rows
    gathered = gather_deletes(view, more)
    # What a merge that knows places has applied is about its inputs alone, or still about others.
    applied = [m.group.deletes for m in (one.merged for one in due.merges) if m.places is None]
    outputs = [
        ManifestEntry(Status.ADDED, file, sequence_number=one.sequence_number)
        for one in due.merges
        for file in one.merged.outputs
    ]
    going = [
        *(file for file in due.remove if file.content != DATA),
        *(file for files in applied for file in files),
        *(file for one in due.turned for file, _ in one.job.deletes),
        *gathered.replaced,
        *dangling_deletes(view, {file.uri for file in removed}, outputs),
    ]
    late = [(one.merged.outputs[0], one.deleted) for one in due.merges if one.deleted]
    return _Files(removed, [*{file.place: file for file in going}.values()], outputs, [*late, *gathered.rows])


def _prepared(view: TableView, files: _Files, loses_rows: bool, crowded: bool, now_ms: int) -> Prepared:
    """The snapshot; new delete files are written with its manifests."""
    state = view.state
    written, new_deletes = encode_row_deletes(state.location, state.version, files.rows)
    added = [*files.outputs, *(ManifestEntry(Status.ADDED, file) for file in new_deletes)]
    gone = [*files.removed, *files.deletes]
    entries, kept = rewritten_entries(view, {file.place for file in gone}, added, gather=crowded)
    if loses_rows and not added:
        return prepare_delete(state, entries, gone, kept, now_ms)
    added_files = [entry.file for entry in added]
    prepare = prepare_overwrite if loses_rows else prepare_replace
    prepared = prepare(state, entries, added_files, gone, kept, now_ms)
    return replace(prepared, files=[*written, *prepared.files])


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
            and view.may_hold(manifest, partitions)
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
    return sorted(entries, key=lambda e: (in_order(e.file.partition), e.status, e.file.uri)), kept


def _partitions_of(view: TableView, removed: set[Place]) -> frozenset[Partition] | None:
    values = set[Partition]()
    for entries in view.known.values():
        for entry in entries:
            if entry.file.place in removed:
                if entry.file.partition is None:
                    return None
                values.add(entry.file.partition)
    return frozenset(values)
