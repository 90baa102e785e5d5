"""Snapshot expiry of our own: which snapshots go, and which files nobody can reach any more after they
went."""

from collections.abc import Iterable, Mapping
from typing import Any

from lake.expiry import expirable
from lake.settings import OptimizeSettings
from lake.span import Partition
from optimize.table_view import TableView


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
    holds for the version after it as well. Of the kept manifests only those are read that may hold a
    candidate.
    """
    gone = set(expired)
    old = [s for s in view.snapshots if s["snapshot-id"] in gone]
    kept = [s for s in view.snapshots if s["snapshot-id"] not in gone]
    kept_lists = {s["manifest-list"] for s in kept}
    files = [s["manifest-list"] for s in old if s["manifest-list"] not in kept_lists]
    kept_manifests = {m.uri: m for s in kept for m in view.manifests_of(s)}
    candidates = {m.uri: m for s in old for m in view.manifests_of(s) if m.uri not in kept_manifests}
    data = dict[str, None]()
    values = set[Partition | None]()
    for manifest in candidates.values():
        for file in view.live_references(manifest):
            data[file.uri] = None
            values.add(file.partition)
    if data:
        wanted = None if None in values else frozenset(value for value in values if value is not None)
        for manifest in kept_manifests.values():
            if not data:
                break
            if view.may_hold(manifest, wanted):
                for file in view.live_references(manifest):
                    data.pop(file.uri, None)
    return [*files, *candidates, *data]
