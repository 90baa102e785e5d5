"""Snapshots and their summaries (Iceberg spec, "Snapshots"; summary keys as in its appendix "Optional
Snapshot Summary Fields")."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lake.data_file import DataFile
from lake.table_layout import partition_path

# More partitions than this in one snapshot are not listed one by one (property
# write.summary.partition-limit).
SUMMARY_PARTITIONS_MAX = 1_000


def new_snapshot_id() -> int:
    """A random positive 63-bit id, as the spec suggests."""
    return secrets.randbits(63) | 1 << 40


@dataclass(frozen=True, slots=True)
class Totals:
    """What the whole table holds after a snapshot."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0

    def changed(self, added: Iterable[DataFile], removed: Iterable[DataFile]) -> "Totals":
        """Totals after data files came and went."""
        after = self
        for sign, files in ((1, added), (-1, removed)):
            for file in files:
                after = replace(
                    after,
                    rows=after.rows + sign * file.rows,
                    files=after.files + sign,
                    size_bytes=after.size_bytes + sign * file.size_bytes,
                )
        return after

    def to_summary(self) -> dict[str, str]:
        return {
            "total-records": str(self.rows),
            "total-data-files": str(self.files),
            "total-files-size": str(self.size_bytes),
            "total-delete-files": str(self.delete_files),
            "total-position-deletes": str(self.position_deletes),
            "total-equality-deletes": str(self.equality_deletes),
        }


def totals_of(summary: Mapping[str, str]) -> Totals:
    """Reads the totals of a summary; a key that is missing counts as 0."""

    def number(key: str) -> int:
        return int(summary.get(key, "0"))

    return Totals(
        number("total-records"),
        number("total-data-files"),
        number("total-files-size"),
        number("total-delete-files"),
        number("total-position-deletes"),
        number("total-equality-deletes"),
    )


def summarise(
    operation: str,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    before: Totals,
    extra: Mapping[str, str],
) -> tuple[dict[str, str], Totals]:
    """The summary of a snapshot that adds and removes data files, and the totals after it.

    `operation`: append, replace, delete or overwrite. `extra` wins over what is computed.
    """
    added, removed = list(added), list(removed)
    after = before.changed(added, removed)
    summary = {
        "operation": operation,
        **_changes(added, "added"),
        **_changes(removed, "deleted"),
        **_partitions(added, removed),
        **after.to_summary(),
        **extra,
    }
    return summary, after


def _changes(files: list[DataFile], verb: str) -> dict[str, str]:
    if not files:
        return {}
    size_key, rows_key = (
        ("added-files-size", "added-records")
        if verb == "added"
        else ("removed-files-size", "deleted-records")
    )
    return {
        f"{verb}-data-files": str(len(files)),
        rows_key: str(sum(f.rows for f in files)),
        size_key: str(sum(f.size_bytes for f in files)),
    }


def _partitions(added: list[DataFile], removed: list[DataFile]) -> dict[str, str]:
    by_hour: dict[int, tuple[list[DataFile], list[DataFile]]] = {}
    for file in added:
        by_hour.setdefault(file.hour or 0, ([], []))[0].append(file)
    for file in removed:
        by_hour.setdefault(file.hour or 0, ([], []))[1].append(file)
    counted = {"changed-partition-count": str(len(by_hour))}
    if len(by_hour) > SUMMARY_PARTITIONS_MAX:
        return counted
    listed = {
        f"partitions.{partition_path(hour)}": ",".join(
            f"{key}={value}" for key, value in (_changes(come, "added") | _changes(gone, "deleted")).items()
        )
        for hour, (come, gone) in by_hour.items()
    }
    return {**counted, "partition-summaries-included": "true", **listed}


def snapshot_json(
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    timestamp_ms: int,
    manifest_list: str,
    summary: Mapping[str, str],
    schema_id: int,
) -> dict[str, Any]:
    """The snapshot as table metadata and the REST protocol spell it."""
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": timestamp_ms,
        "manifest-list": manifest_list,
        "summary": dict(summary),
        "schema-id": schema_id,
    }
    return snapshot if parent_id is None else {**snapshot, "parent-snapshot-id": parent_id}
