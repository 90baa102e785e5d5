"""The commit of an erasure, prepared for one version of a table: files without the erased rows in the place
of old ones, no snapshot left that reaches these, and what nobody reaches after it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyroaring import BitMap64

from lake.commit import MAIN, Prepared, prepare_overwrite
from lake.data_file import DATA, DataFile
from lake.deletes.dead_rows import only_data_file
from lake.deletes.row_deletes import encode_row_deletes
from lake.errors import NotFoundError
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DELETE_MANIFEST, ManifestFile
from lake.span import in_order
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


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a file: a new one (None: nothing is), and the rows of the old one that it does not
    have. `asked`: how many of them the request has named."""

    file: DataFile | None
    gone: BitMap64
    asked: int


def prepare_change(
    version: Version,
    replaced: Mapping[str, Left],
    dead: Mapping[str, BitMap64],
    now_ms: int,
    asserts: Sequence[Mapping[str, Any]] = (),
) -> Change:
    """One commit: the keys of `replaced` go with their deletes, what is left of them comes, and no other
    snapshot stays that may go. `dead`: which rows of the old files are deleted by now; `asserts`: what the
    commit requires beside the head."""
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
        prepared = _prepared(version, replaced, dead, now_ms)
        request, files, snapshot_id = dict(prepared.request), prepared.files, prepared.snapshot_id
        gone = (
            *expired,
            *(
                [version.state.head]
                if version.state.head is not None and not _is_named(version, version.state.head)
                else []
            ),
        )
    request["requirements"] = [*request["requirements"], *asserts]
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


def _prepared(
    version: Version, replaced: Mapping[str, Left], dead: Mapping[str, BitMap64], now_ms: int
) -> Prepared:
    """The snapshot; new delete files are written with its manifests."""
    state = version.state
    late = [
        (left.file, rows)
        for uri, left in replaced.items()
        if left.file is not None and (rows := _places_after(dead.get(uri, BitMap64()), left.gone))
    ]
    written, new_deletes = encode_row_deletes(state.location, state.version, late)
    added = [*(left.file for left in replaced.values() if left.file is not None), *new_deletes]
    entries, kept = _rewritten(version, set(replaced), added)
    removed = [entry.file for entry in entries if entry.status is Status.DELETED]
    prepared = prepare_overwrite(state, entries, added, removed, kept, now_ms)
    return replace(prepared, files=[*written, *prepared.files])


def _places_after(dead: BitMap64, gone: BitMap64) -> BitMap64:
    """Rows of an old file as rows of the new one, which does not have those that are gone."""
    return BitMap64(row - gone.rank(row) for row in dead - gone)


def _rewritten(
    version: Version, replaced: Collection[str], added: Sequence[DataFile]
) -> tuple[list[ManifestEntry], list[ManifestFile]]:
    """Entries of the new manifests, by partition, and the manifests that stay. An entry of a file that goes
    tells no bounds: they are values of rows."""
    entries = [ManifestEntry(Status.ADDED, file) for file in added]
    kept: list[ManifestFile] = []
    for manifest in version.state.manifests:
        listed = version.entries[manifest.uri]
        others = manifest.content == DELETE_MANIFEST and not version.state.is_own(manifest.spec_id)
        if others or not any(_goes(entry.file, replaced) for entry in listed):
            kept.append(manifest)
            continue
        for entry in listed:
            if _goes(entry.file, replaced):
                bare = replace(entry.file, lower_bounds=None, upper_bounds=None)
                entries.append(replace(entry, status=Status.DELETED, file=bare))
            else:
                entries.append(replace(entry, status=Status.EXISTING))
    return sorted(entries, key=lambda e: (in_order(e.file.partition), e.status, e.file.uri)), kept


def _goes(file: DataFile, replaced: Collection[str]) -> bool:
    """Whether a file is replaced, or deletes rows of one that is and of no other."""
    return (file.uri if file.content == DATA else only_data_file(file)) in replaced


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
