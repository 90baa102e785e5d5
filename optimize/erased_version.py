"""The commit of an erasure, prepared for one version of a table: files without the erased rows in the place
of old ones, no snapshot left that reaches these, and what nobody reaches after it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lake.commit import MAIN, prepare_overwrite
from lake.data_file import DataFile
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import ManifestFile
from lake.table_location import TableLocation
from lake.table_version import Manifests, Version


@dataclass(frozen=True, slots=True)
class Change:
    """A commit that takes rows and snapshots away. `snapshot_id` None: it only expires. `lists`: manifest
    lists of the `expired`, from which all can be told that only they reach."""

    request: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]
    snapshot_id: int | None
    expired: tuple[int, ...]
    lists: tuple[str, ...]


def prepare_change(version: Version, replaced: Mapping[str, DataFile | None], now_ms: int) -> Change:
    """One commit: the keys of `replaced` go, their values (what is left of them) come, and no other snapshot
    stays that may go."""
    expired = tuple(version.expirable)
    if not replaced:
        requirements = [
            {"type": "assert-table-uuid", "uuid": version.state.uuid},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": version.state.head},
        ]
        request: dict[str, Any] = {
            "identifier": version.state.name.to_json(),
            "requirements": requirements,
            "updates": [],
        }
        files: Sequence[tuple[str, bytes]] = ()
        snapshot_id, gone = None, expired
    else:
        entries, kept = _rewritten(version, replaced)
        added = [file for file in replaced.values() if file is not None]
        prepared = prepare_overwrite(
            version.state, entries, added, [version.data[uri].file for uri in replaced], kept, now_ms
        )
        request, files, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
        gone = (
            *expired,
            *(
                [version.state.head]
                if version.state.head is not None and not _is_named(version, version.state.head)
                else []
            ),
        )
    if gone:
        request["updates"] = [*request["updates"], {"action": "remove-snapshots", "snapshot-ids": list(gone)}]
    lists = tuple(
        str(s["manifest-list"]) for s in version.metadata.get("snapshots", ()) if s["snapshot-id"] in gone
    )
    return Change(request, files, snapshot_id, gone, lists)


def reached_files(manifests: Manifests, version: Version) -> set[str]:
    """Everything that any snapshot of this version reaches."""
    lists = (str(snapshot["manifest-list"]) for snapshot in version.metadata.get("snapshots", ()))
    return {uri for each in lists for uri in _files_of(manifests, each, version.state.table_location)}


def unreached_files(manifests: Manifests, version: Version, lists: Sequence[str]) -> list[str]:
    """What the snapshots of these manifest lists reached and none of this version does: the lists, manifests,
    data and delete files, each once."""
    table_location, reached = version.state.table_location, reached_files(manifests, version)
    found = dict.fromkeys(uri for each in lists for uri in _files_of(manifests, each, table_location))
    return [uri for uri in found if uri not in reached and table_location.holds(uri)]


def _is_named(version: Version, snapshot_id: int) -> bool:
    """By a branch or tag other than main, which moves on."""
    return any(
        ref["snapshot-id"] == snapshot_id
        for name, ref in version.metadata.get("refs", {}).items()
        if name != MAIN
    )


def _rewritten(
    version: Version, replaced: Mapping[str, DataFile | None]
) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries of the new manifests, by hour, and the manifests that stay. An entry of a file that goes tells
    no bounds: they are values of rows."""
    entries = [ManifestEntry(Status.ADDED, file) for file in replaced.values() if file is not None]
    kept: list[ManifestFile] = []
    for manifest in version.state.manifests:
        listed = version.entries[manifest.uri]
        if not any(entry.file.uri in replaced for entry in listed):
            kept.append(manifest)
            continue
        for entry in listed:
            if entry.file.uri in replaced:
                entries.append(
                    replace(
                        entry,
                        status=Status.DELETED,
                        file=replace(entry.file, lower_bounds=None, upper_bounds=None),
                    )
                )
            else:
                entries.append(replace(entry, status=Status.EXISTING))
    return sorted(entries, key=lambda e: (e.file.hour or 0, e.status, e.file.uri)), kept


def _files_of(manifests: Manifests, manifest_list: str, table_location: TableLocation) -> Iterator[str]:
    """Everything a snapshot reaches. What is gone already is left out."""
    table_location.check(manifest_list)
    yield manifest_list
    try:
        listed = manifests.listed(manifest_list, table_location)
    except NotFoundError:
        return
    for manifest in listed:
        yield manifest.uri
        with suppress(NotFoundError):
            yield from (entry.file.uri for entry in manifests.live(manifest, table_location))
