"""The commit that puts merged files in the place of small ones, and lets old snapshots go, prepared for one version of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.commit import MAIN, prepare_delete, prepare_replace
from lake.data_file import DataFile
from lake.manifest import ManifestEntry, ManifestFile, Status
from lake.settings import OptimizeSettings
from optimize.merge_job import Merged
from optimize.snapshots import expirable, unreachable_files
from optimize.table_view import TableView, has_live, may_hold

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
    """The merges whose inputs are all live in this version and whose hours no delete file has reached meanwhile."""
    partitions = view.partitions({m.group.hour for m in merged})
    live = {hour: {file.uri for file in partition.files} for hour, partition in partitions.items()}
    untouched = {hour for hour, p in partitions.items() if not p.position_delete_files and not p.equality_delete_files}
    return tuple(m for m in merged if m.group.hour in untouched and all(file.uri in live[m.group.hour] for file in m.group.inputs))


def prepare_change(view: TableView, merged: Sequence[Merged], settings: OptimizeSettings, now_ms: int, *, remove: Sequence[DataFile] = ()) -> Change | None:
    """One commit with all that is due: merges in, their inputs out, manifests gathered, snapshots expired. None where nothing is to be done.

    `remove`: files that go with their rows (retention); then `merged` is empty.
    """
    crowded = len(view.data_manifests()) > settings.manifests_max
    adds_snapshot = bool(merged or remove or crowded)
    expired = expirable(
        view.metadata, keep=settings.snapshots_max, age_max_ms=int(settings.snapshot_age_max_s * 1000), now_ms=now_ms, adding=int(adds_snapshot)
    )
    if not adds_snapshot and not expired:
        return None
    removed = [*remove, *(file for m in merged for file in m.group.inputs)]
    request: dict[str, Any] = _bare_request(view)
    files: Sequence[tuple[str, bytes]] = ()
    snapshot_id = None
    if adds_snapshot:
        added = [m.output for m in merged]
        entries, kept = rewritten_entries(view, {file.uri for file in removed}, added, gather=crowded)
        prepared = prepare_delete(view.state, entries, removed, kept, now_ms) if remove else prepare_replace(view.state, entries, added, removed, kept, now_ms)
        request, files, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
    if expired:
        request["updates"] = [*request["updates"], {"action": "remove-snapshots", "snapshot-ids": list(expired)}]
    unreachable = tuple(unreachable_files(view, expired)) if expired else ()
    return Change(request, files, snapshot_id, tuple(merged), tuple(removed), expired, unreachable)


def _bare_request(view: TableView) -> dict[str, Any]:
    # The head is asserted although expiry adds nothing: a rollback in between could make one of the expired snapshots the head.
    requirements = [
        {"type": "assert-table-uuid", "uuid": view.state.uuid},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": view.state.head},
    ]
    return {"identifier": view.name.to_json(), "requirements": requirements, "updates": []}


def rewritten_entries(view: TableView, removed: set[str], added: Sequence[DataFile], *, gather: bool) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries for the new manifests, ordered by hour, and the manifests that stay as they are.

    A manifest is rewritten when it holds a removed file, or with `gather` when it is small; its other entries keep their snapshot and
    sequence numbers (spec, "Sequence Numbers": EXISTING). Manifests without live files are left out. Raises ValueError where a file is not live.
    """
    hours = _hours_of(view, removed)
    entries = [ManifestEntry(Status.ADDED, file) for file in added]
    kept: list[ManifestFile] = []
    ours = {manifest.uri for manifest in view.data_manifests()}
    missing = set(removed)
    for manifest in view.state.manifests:
        if manifest.uri not in ours:
            kept.append(manifest)
            continue
        if not has_live(manifest):
            continue
        touched = bool(missing) and may_hold(manifest, hours) and any(entry.file.uri in removed for entry in view.live_entries(manifest))
        if not touched and not (gather and manifest.length < MANIFEST_BYTES_MIN):
            kept.append(manifest)
            continue
        for entry in view.live_entries(manifest):
            missing.discard(entry.file.uri)
            entries.append(replace(entry, status=Status.DELETED if entry.file.uri in removed else Status.EXISTING))
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
