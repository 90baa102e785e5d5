"""Snapshot expiry of our own: which snapshots go, and which files nobody can reach any more after they
went."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lake.expiry import expirable
from lake.manifest_list import ManifestFile
from lake.settings import OptimizeSettings
from lake.span import Partition
from optimize.table_view import TableView, may_take


def to_expire(
    metadata: Mapping[str, Any], settings: OptimizeSettings, now_ms: int, *, adding: int = 0
) -> tuple[int, ...]:
    """Ids of the snapshots that a commit to the table takes away: down to half of `snapshots.count_max`, so
    that there is room until the next one."""
    keep = (settings.snapshots.count_max + 1) // 2
    return expirable(
        metadata, keep=keep, age_max_ms=int(settings.snapshots.age_max_s * 1000), now_ms=now_ms, adding=adding
    )


def due_to_expire(metadata: Mapping[str, Any], settings: OptimizeSettings, now_ms: int) -> tuple[int, ...]:
    """As `to_expire`, but none while a commit for their sake alone is not worth it: there are no more than
    `not_yet_due`, none is old."""
    most = not_yet_due(settings)
    due = expirable(metadata, keep=most, age_max_ms=int(settings.snapshots.age_max_s * 1000), now_ms=now_ms)
    return to_expire(metadata, settings, now_ms) if due else ()


def not_yet_due(settings: OptimizeSettings) -> int:
    """So many snapshots of a table are let be: three quarters of `snapshots.count_max`."""
    return max(1, settings.snapshots.count_max * 3 // 4)


def unreachable_files(view: TableView, expired: Iterable[int]) -> list[str]:
    """URIs that only the expired snapshots of this version reach: their manifest lists, manifests, data and
    delete files.

    What a commit adds refers to no file that its own parent does not reach, and the parent is kept: so this
    holds for the version after it as well. Whatever snapshots say of themselves, no file goes that a kept one
    reaches: all kept manifests are read that may hold it.
    """
    gone = set(expired)
    old = [s for s in view.snapshots if s["snapshot-id"] in gone]
    kept = [s for s in view.snapshots if s["snapshot-id"] not in gone]
    kept_lists = {s["manifest-list"] for s in kept}
    lists = [s["manifest-list"] for s in old if s["manifest-list"] not in kept_lists]
    kept_manifests = {m.uri: m for s in kept for m in view.manifests_of(s)}
    manifests = {m.uri: m for s in old for m in view.manifests_of(s) if m.uri not in kept_manifests}
    data = _candidates(view, old, kept, manifests.values())
    if data:
        values = set(data.values())
        wanted = None if None in values else frozenset(value for value in values if value is not None)
        for manifest in kept_manifests.values():
            if not data:
                break
            if view.may_hold(manifest, wanted):
                for file in view.live_references(manifest):
                    data.pop(file.uri, None)
    return [*lists, *manifests, *data]


def _candidates(
    view: TableView,
    old: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    manifests: Iterable[ManifestFile],
) -> dict[str, Partition | None]:
    """The files that may be reached by old snapshots alone, with their partitions: where each snapshot is the
    parent of the next, those that say they were taken away after the first, up to the first that is kept;
    else all that the old `manifests` hold. Whoever rewrites a manifest lists most of its files again, so the
    former are few."""
    line = [*old, *kept]
    if kept and all(
        after.get("parent-snapshot-id") == before["snapshot-id"] for before, after in pairwise(line)
    ):
        takers = {s["snapshot-id"] for s in line[1 : len(old) + 1]}
        seen = {m.uri: m for s in line[1 : len(old) + 1] for m in view.manifests_of(s)}
        says = [m for m in seen.values() if m.snapshot_id in takers and may_take(m)]
        return {file.uri: file.partition for each in says for file in view.gone_references(each)}
    return {file.uri: file.partition for each in manifests for file in view.live_references(each)}
