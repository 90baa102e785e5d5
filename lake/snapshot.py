"""Snapshots and their summaries (Iceberg spec, "Snapshots"; summary keys as in its appendix "Optional
Snapshot Summary Fields")."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from lake.data_file import DATA, EQUALITY_DELETES, DataFile
from lake.table_layout import bucket_path, partition_path

# More partitions than this in one snapshot are not listed one by one (property
# write.summary.partition-limit).
SUMMARY_PARTITIONS_MAX = 1_000


def new_snapshot_id() -> int:
    """A random positive 63-bit id, as the spec suggests."""
    return secrets.randbits(63) | 1 << 40


class Totals(NamedTuple):
    """What the whole table holds after a snapshot."""

    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0

    @property
    def live_rows(self) -> int:
        """The rows without those that are deleted by position."""
        return max(0, self.rows - self.position_deletes)

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> Self:
        """What these files hold. What a stranger's manifest calls neither data nor deletes by equality counts
        as deletes by position."""
        data = [file for file in files if file.content == DATA]
        equality = [file for file in files if file.content == EQUALITY_DELETES]
        of_all, of_data, of_equality = (sum(file.rows for file in some) for some in (files, data, equality))
        return cls(
            of_data,
            len(data),
            sum(file.content_bytes for file in files),
            len(files) - len(data),
            of_all - of_data - of_equality,
            of_equality,
        )

    def changed(self, added: Sequence[DataFile], removed: Sequence[DataFile]) -> "Totals":
        """Totals after files came and went; rows that are deleted by position stay among the rows."""
        came, went = Totals.of(added), Totals.of(removed)
        return Totals(*(had + more - less for had, more, less in zip(self, came, went, strict=True)))

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
    """The summary of a snapshot that adds and removes data files and delete files, and the totals after it.

    `operation`: append, replace, delete or overwrite. `extra` wins over what is computed.
    """
    added, removed = list(added), list(removed)
    after = before.changed(added, removed)
    counts = _changes(added, removed)
    summary = {
        "operation": operation,
        **counts,
        **_partitions(added, removed, counts),
        **after.to_summary(),
        **extra,
    }
    return summary, after


def _changes(added: Sequence[DataFile], removed: Sequence[DataFile]) -> dict[str, str]:
    return changes(added, "added") | changes(removed, "removed")


def changes(files: Sequence[DataFile], verb: str) -> dict[str, str]:
    """What a summary counts of files that came or went. `verb`: added or removed; of data files the
    specification says deleted instead."""
    if not files:
        return {}
    data = [file for file in files if file.content == DATA]
    deletes = [file for file in files if file.content != DATA]
    data_verb = "added" if verb == "added" else "deleted"
    counts: dict[str, int] = {}
    if data:
        counts[f"{data_verb}-data-files"] = len(data)
        counts[f"{data_verb}-records"] = sum(file.rows for file in data)
    counts[f"{verb}-files-size"] = sum(file.content_bytes for file in files)
    return {key: str(count) for key, count in (counts | _deletes(deletes, verb)).items()}


def _deletes(files: Sequence[DataFile], verb: str) -> dict[str, int]:
    if not files:
        return {}
    counts = {f"{verb}-delete-files": len(files)}
    for file in files:
        kind = "equality" if file.content == EQUALITY_DELETES else "position"
        files_key = f"{verb}-dvs" if file.is_deletion_vector else f"{verb}-{kind}-delete-files"
        counts[files_key] = counts.get(files_key, 0) + 1
        rows_key = f"{verb}-{kind}-deletes"
        counts[rows_key] = counts.get(rows_key, 0) + file.rows
    return counts


def _partitions(
    added: Sequence[DataFile], removed: Sequence[DataFile], counts: Mapping[str, str]
) -> dict[str, str]:
    """What a summary says of partitions. `counts`: of all these files, which most often are of one."""
    by_path: dict[str, tuple[list[DataFile], list[DataFile]]] = {}
    for file in added:
        by_path.setdefault(_path_of(file), ([], []))[0].append(file)
    for file in removed:
        by_path.setdefault(_path_of(file), ([], []))[1].append(file)
    counted = {"changed-partition-count": str(len(by_path))}
    if len(by_path) > SUMMARY_PARTITIONS_MAX:
        return counted
    told = [counts] if len(by_path) == 1 else [_changes(come, gone) for come, gone in by_path.values()]
    listed = {
        f"partitions.{path}": ",".join([f"{key}={value}" for key, value in each.items()])
        for path, each in zip(by_path, told, strict=True)
    }
    return {**counted, "partition-summaries-included": "true", **listed}


def _path_of(file: DataFile) -> str:
    if file.span is not None:
        return file.span.path
    return partition_path(file.hour or 0) if file.bucket is None else bucket_path(file.bucket)


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
