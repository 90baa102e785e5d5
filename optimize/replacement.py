"""The commit that puts merged files in the place of small ones, and lets old snapshots go, prepared for one
version of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.commit import MAIN, prepare_delete, prepare_replace
from lake.data_file import DATA, DataFile
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.settings import OptimizeSettings
from optimize.delete_files import without_delete_files
from optimize.merge_job import Merged, MergeGroup
from optimize.snapshots import to_expire, unreachable_files
from optimize.table_view import TableView, has_live, may_hold

# The branch on which Spark rewrites; between rounds there is none.
REWRITE_BRANCH = "firn-rewrite"
MANIFEST_BYTES_MIN = 4 * 1024 * 1024  # larger ones are not merged with others


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


def still_valid(view: TableView, merged: Sequence[Merged]) -> tuple[Merged, ...]:
    """The merges whose inputs are all live in this version and whose hours have no delete files but those
    that the merge has applied."""
    hours = {m.group.hour for m in merged}
    live = {
        hour: {file.uri for file in partition.files} for hour, partition in view.partitions(hours).items()
    }
    deletes = view.delete_files()

    def valid(group: MergeGroup) -> bool:
        own = {file.uri for file in deletes.get(group.hour, ())}
        return (
            None not in deletes
            and own == {f.uri for f in group.deletes}
            and {f.uri for f in group.inputs} <= live.get(group.hour, set())
        )

    return tuple(m for m in merged if valid(m.group))


def still_live(view: TableView, files: Sequence[DataFile]) -> list[DataFile]:
    """Those of the data and delete files that this version still has."""
    if not files:
        return []
    live = {
        file.uri
        for partition in view.partitions({file.hour for file in files if file.hour is not None}).values()
        for file in partition.files
    }
    live |= {file.uri for group in view.delete_files().values() for file in group}
    return [file for file in files if file.uri in live]


def prepare_change(
    view: TableView,
    merged: Sequence[Merged],
    settings: OptimizeSettings,
    now_ms: int,
    *,
    remove: Sequence[DataFile] = (),
) -> Change | None:
    """One commit with all that is due: merges in, their inputs out, manifests gathered, snapshots expired.
    None where nothing is to be done.

    `remove`: files that go with their rows (retention), data and delete files; then `merged` is empty.
    """
    crowded = len(view.data_manifests()) > settings.merge.manifests_max
    adds_snapshot = bool(merged or remove or crowded)
    expired = to_expire(view.metadata, settings, now_ms, adding=int(adds_snapshot))
    branch = view.metadata.get("refs", {}).get(REWRITE_BRANCH)
    if not adds_snapshot and not expired and branch is None:
        return None
    removed = [
        *(file for file in remove if file.content == DATA),
        *(file for m in merged for file in m.group.inputs),
    ]
    deletes = [
        *(file for file in remove if file.content != DATA),
        *(file for m in merged for file in m.group.deletes),
    ]
    request: dict[str, Any] = _bare_request(view)
    files: Sequence[tuple[str, bytes]] = ()
    snapshot_id = None
    if adds_snapshot:
        added = [file for m in merged for file in m.outputs]
        entries, kept = rewritten_entries(view, {file.uri for file in removed}, added, gather=crowded)
        prepared = (
            prepare_delete(view.state, entries, removed, kept, now_ms)
            if remove
            else prepare_replace(view.state, entries, added, removed, kept, now_ms)
        )
        if deletes:
            prepared = without_delete_files(prepared, view, deletes)
        request, files, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
    if branch is not None:
        request = _without_branch(request, branch["snapshot-id"])
    if expired:
        request = _without_snapshots(request, view, expired)
    unreachable = tuple(unreachable_files(view, expired)) if expired else ()
    return Change(request, files, snapshot_id, tuple(merged), tuple(removed), expired, unreachable)


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
    view: TableView, removed: set[str], added: Sequence[DataFile], *, gather: bool
) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries for the new manifests, ordered by hour, and the manifests that stay as they are.

    A manifest is rewritten when it holds a removed file, or with `gather` when it is small; its other entries
    keep their snapshot and sequence numbers (spec, "Sequence Numbers": EXISTING). Manifests without live
    files are left out. Raises ValueError where a file is not live.
    """
    hours = _hours_of(view, removed)
    entries = [ManifestEntry(Status.ADDED, file) for file in added]
    kept: list[ManifestFile] = []
    ours = {manifest.uri for manifest in view.data_manifests()}
    missing = set(removed)
    for manifest in view.manifests:
        if manifest.uri not in ours:
            kept.append(manifest)
            continue
        if not has_live(manifest):
            continue
        touched = (
            bool(missing)
            and may_hold(manifest, hours)
            and any(entry.file.uri in removed for entry in view.live_entries(manifest))
        )
        if not touched and not (gather and manifest.length < MANIFEST_BYTES_MIN):
            kept.append(manifest)
            continue
        for entry in view.live_entries(manifest):
            missing.discard(entry.file.uri)
            entries.append(
                replace(entry, status=Status.DELETED if entry.file.uri in removed else Status.EXISTING)
            )
    if missing:
        raise ValueError(f"{len(missing)} files are not live in {view.name}, {min(missing)} for one")
    return sorted(entries, key=lambda e: (e.file.hour or 0, e.status, e.file.uri)), kept


def _hours_of(view: TableView, uris: set[str]) -> frozenset[int] | None:
    hours = set()
    for entries in view.known.values():
        for entry in entries:
            if entry.file.uri in uris:
                if entry.file.hour is None:
                    return None
                hours.add(entry.file.hour)
    return frozenset(hours)
