"""Takes delete files out of a prepared snapshot: what deletes rows of files that go with it has nothing to
delete any more.

`lake/commit.py` prepares snapshots that change data files alone, and carries delete manifests on as they are.
Here those of them that list a file to go are written again without it, and the manifest list and the summary
of the snapshot follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lake.commit import ROWS_STAY, Prepared
from lake.data_file import ROW_LINEAGE, DataFile
from lake.errors import RefusedError
from lake.manifest import ManifestEntry, Status, write_manifest
from lake.manifest_list import DELETE_MANIFEST, ManifestFile, ManifestList, write_manifest_list
from lake.snapshot import changes, totals_of
from lake.table_layout import metadata_uri, partition_path
from optimize.table_view import TableView, has_live

_PARTITION_KEY = "partitions."


def without_delete_files(prepared: Prepared, view: TableView, gone: Sequence[DataFile]) -> Prepared:
    """The same commit, with the delete files `gone` taken out as well. `view`: the version it was prepared
    for."""
    if view.state.version >= ROW_LINEAGE:
        raise RefusedError(f"table {view.name} {ROWS_STAY}; its hours with deletion vectors stay")
    uris = {file.uri for file in gone}
    sequence, manifests, written = (
        prepared.after.sequence_number,
        list[ManifestFile](),
        list[tuple[str, bytes]](),
    )
    for manifest in prepared.after.manifests:
        entries = _entries_without(view, manifest, uris)
        if entries is None:
            manifests.append(manifest)
            continue
        uri = metadata_uri(view.state.location, f"{prepared.snapshot_id:016x}-d{len(written)}.avro")
        data, line = write_manifest(
            uri,
            entries,
            schema=view.state.schema.json,
            spec=view.state.spec,
            snapshot_id=prepared.snapshot_id,
            sequence_number=sequence,
        )
        written.append((uri, data))
        manifests.append(line)
    *others, (list_uri, _) = prepared.files
    listed = ManifestList.of(manifests)
    list_data = write_manifest_list(
        listed, snapshot_id=prepared.snapshot_id, parent_id=view.state.head, sequence_number=sequence
    )
    request = _with_summary(prepared.request, gone)
    summary = next(u["snapshot"]["summary"] for u in request["updates"] if u["action"] == "add-snapshot")
    after = replace(prepared.after, manifests=listed, totals=totals_of(summary))
    return replace(prepared, request=request, files=[*others, *written, (list_uri, list_data)], after=after)


def _entries_without(view: TableView, manifest: ManifestFile, gone: set[str]) -> list[ManifestEntry] | None:
    """The entries of a delete manifest, those that go marked; None where it holds none of them."""
    if (
        manifest.content != DELETE_MANIFEST
        or manifest.spec_id != view.state.spec["spec-id"]
        or not has_live(manifest)
    ):
        return None
    entries = view.live_entries(manifest)
    if not any(entry.file.uri in gone for entry in entries):
        return None
    return [
        replace(entry, status=Status.DELETED if entry.file.uri in gone else Status.EXISTING)
        for entry in entries
    ]


def _with_summary(request: Mapping[str, Any], gone: Sequence[DataFile]) -> dict[str, Any]:
    updates = []
    for update in request["updates"]:
        if update["action"] == "add-snapshot":
            snapshot = update["snapshot"]
            update = {
                **update,
                "snapshot": {**snapshot, "summary": summary_without(snapshot["summary"], gone)},
            }
        updates.append(update)
    return {**request, "updates": updates}


def summary_without(summary: Mapping[str, str], gone: Sequence[DataFile]) -> dict[str, str]:
    """A summary that tells of delete files that go as well (Iceberg spec, appendix "Optional Snapshot Summary
    Fields")."""
    changed = dict(summary)
    by_hour: dict[int, list[DataFile]] = {}
    for file in gone:
        by_hour.setdefault(file.hour or 0, []).append(file)
    counted = changes(gone, "removed")
    _add(changed, counted)
    totals = {"total-delete-files": len(gone), "total-files-size": sum(file.content_bytes for file in gone)}
    totals |= {
        f"total-{kind}-deletes": int(counted.get(f"removed-{kind}-deletes", 0))
        for kind in ("position", "equality")
    }
    for key, count in totals.items():
        changed[key] = str(int(changed.get(key, "0")) - count)
    new = {hour for hour in by_hour if _PARTITION_KEY + partition_path(hour) not in changed}
    if "partition-summaries-included" not in changed:
        return changed  # too many partitions to list; then the catalog counts them from the manifests
    for hour, files in by_hour.items():
        key = _PARTITION_KEY + partition_path(hour)
        fields = dict(pair.split("=", 1) for pair in changed.get(key, "").split(",") if pair)
        _add(fields, changes(files, "removed"))
        changed[key] = ",".join(f"{name}={value}" for name, value in fields.items())
    changed["changed-partition-count"] = str(int(changed["changed-partition-count"]) + len(new))
    return changed


def _add(summary: dict[str, str], more: Mapping[str, str]) -> None:
    for key, count in more.items():
        summary[key] = str(int(summary.get(key, "0")) + int(count))
