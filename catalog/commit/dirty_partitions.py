"""The dirty-partition index: files, bytes, rows and last change of each partition of each table, kept up by
every commit.

It is fed from the summaries of the snapshots that a commit puts on the main branch (`partitions.<path>`
entries, as Iceberg's SnapshotSummary writes them where the table property write.summary.partition-limit
allows). Where a summary does not tell, or the head goes back, the table is noted as uncounted, and
`partition_counts` counts it again from its manifests.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from sqlalchemy import Connection, bindparam, text

from catalog.commit.table_changes import NextVersion
from catalog.extras.parking import park_rolled_back
from catalog.model.head_movement import Movement
from catalog.store.database import Database, partitions
from catalog.store.tables import TABLE

Json = dict[str, Any]
PREFIX = "partitions."
_COUNT_MAX = (
    10**15
)  # more files, bytes or rows than one commit ever adds; what claims more is counted from its manifests
_PLAIN = re.compile(r"[A-Za-z0-9_.=/-]*")


@dataclass(frozen=True, slots=True)
class Counts:
    """What lies in a partition, or what a commit adds to it (negative: takes from it)."""

    files: int = 0
    delete_files: int = 0
    bytes: int = 0
    records: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.files + other.files,
            self.delete_files + other.delete_files,
            self.bytes + other.bytes,
            self.records + other.records,
        )


def deltas_of(chain: Iterable[Json], *, unpartitioned: bool) -> dict[str, Counts] | None:
    """What the snapshots change in each partition; None where a summary does not tell."""
    deltas: dict[str, Counts] = {}
    for snapshot in chain:
        summary = {
            key: value for key, value in (snapshot.get("summary") or {}).items() if isinstance(value, str)
        }
        entries = {
            normal_path(key[len(PREFIX) :]): _parse_entry(value)
            for key, value in summary.items()
            if key.startswith(PREFIX)
        }
        if not entries and unpartitioned:
            entries = {"": dict(summary)}
        counted = summary.get("changed-partition-count")
        if not entries and counted in (None, "0") and not _changes_files(summary):
            continue
        if not unpartitioned and counted != str(len(entries)):
            return None
        for path, fields in entries.items():
            counts = _counts(fields)
            if counts is None:
                return None
            deltas[path] = deltas[path] + counts if path in deltas else counts
    return deltas


def encode_part(value: str) -> str:
    """A name or value in a partition path, URL-encoded as Java does it."""
    return quote_plus(value, safe="*").replace("~", "%7E")


def normal_path(path: str) -> str:
    """One spelling per partition: engines differ in which characters they encode."""
    if _PLAIN.fullmatch(path):
        return path
    return "/".join(
        "=".join(encode_part(unquote_plus(side)) for side in part.split("=", 1)) for part in path.split("/")
    )


def _parse_entry(value: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in value.split(",") if "=" in pair)


def _changes_files(summary: Mapping[str, str]) -> bool:
    return any(
        summary.get(key, "0") != "0"
        for key in ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
    )


def _counts(fields: Mapping[str, str]) -> Counts | None:
    def number(key: str) -> int:
        value = int(fields.get(key, "0"))
        if not 0 <= value <= _COUNT_MAX:
            raise ValueError(f"{key} cannot be {value}")
        return value

    try:
        added, removed = (
            number("added-data-files") + number("added-delete-files"),
            number("deleted-data-files") + number("removed-delete-files"),
        )
        if (added and "added-files-size" not in fields) or (removed and "removed-files-size" not in fields):
            return None
        return Counts(
            number("added-data-files") - number("deleted-data-files"),
            number("added-delete-files") - number("removed-delete-files"),
            number("added-files-size") - number("removed-files-size"),
            number("added-records") - number("deleted-records"),
        )
    except ValueError:
        return None


def record_movements(
    connection: Connection, database: Database, versions: Sequence[NextVersion], now_ms: int
) -> None:
    """Brings the index to the new heads, and parks tables that moved back; in the transaction of the swap."""
    of_tables = [version for version in versions if version.change.kind == TABLE]
    moved = [version for version in of_tables if version.movement is not None]
    registered = [version for version in of_tables if version.change.register is not None]
    if not moved and not registered:
        return
    ids = _table_ids(connection, database, [*moved, *registered])
    uncounted = {ids[version.change.identifier.key] for version in registered}
    changes: dict[tuple[int, str], Counts] = {}
    for version in moved:
        table_id, deltas = ids[version.change.identifier.key], _deltas(version.movement)
        if deltas is None:
            uncounted.add(table_id)
        else:
            changes |= {(table_id, path): counts for path, counts in deltas.items()}
    _apply(connection, changes, now_ms)
    if uncounted:
        connection.execute(
            _NOTE_UNCOUNTED, [{"table_id": table_id, "now": now_ms} for table_id in sorted(uncounted)]
        )
    back = [
        (v.change.identifier.key, v.uuid, _seen(v.movement))
        for v in moved
        if v.movement is not None and v.movement.moved_back
    ]
    if back:
        park_rolled_back(connection, back, now_ms)


def _deltas(movement: Movement | None) -> Mapping[str, Counts] | None:
    """What a movement adds to the partitions of its table; None where its snapshots do not say."""
    if movement is None or movement.chain is None:
        return None
    return deltas_of(movement.chain, unpartitioned=movement.unpartitioned)


def _seen(movement: Movement) -> Json:
    return {"head-before": movement.before, "head-after": movement.after}


def _table_ids(connection: Connection, database: Database, versions: Sequence[NextVersion]) -> dict[str, int]:
    ids = {version.change.identifier.key: version.head.id for version in versions if version.head is not None}
    new = [version.change.identifier.key for version in versions if version.head is None]
    if new:
        statement = f"SELECT ident, id FROM tables WHERE {database.among('ident')}"
        ids.update(
            {
                str(row[0]): int(row[1])
                for row in connection.execute(text(statement), {"keys": database.many(new)})
            }
        )
    return ids


_NOTE_UNCOUNTED = text(
    "INSERT INTO uncounted_tables (table_id, since_ms, tries) VALUES (:table_id, :now, 0) ON CONFLICT "
    "(table_id) DO UPDATE SET since_ms = :now, tries = 0"
)
_ADD = text(
    "INSERT INTO partitions (table_id, partition, files, delete_files, bytes, records, changed_ms) "
    "VALUES (:table_id, :partition, :files, :delete_files, :bytes, :records, :now) ON CONFLICT (table_id, "
    "partition) DO UPDATE SET "
    "files = partitions.files + excluded.files, delete_files = partitions.delete_files + "
    "excluded.delete_files, "
    "bytes = partitions.bytes + excluded.bytes, records = partitions.records + excluded.records, changed_ms "
    "= excluded.changed_ms"
)
_DROP_EMPTY = (
    partitions.delete()
    .where(partitions.c.table_id == bindparam("id"))
    .where(partitions.c.partition == bindparam("path"))
    .where(partitions.c.files <= 0)
    .where(partitions.c.delete_files <= 0)
)


def _apply(connection: Connection, changes: Mapping[tuple[int, str], Counts], now_ms: int) -> None:
    if not changes:
        return
    rows = [
        {
            "table_id": table_id,
            "partition": path,
            "now": now_ms,
            "files": c.files,
            "delete_files": c.delete_files,
            "bytes": c.bytes,
            "records": c.records,
        }
        for (table_id, path), c in sorted(changes.items())
    ]
    connection.execute(_ADD, rows)
    shrunk = [
        {"id": table_id, "path": path}
        for (table_id, path), c in changes.items()
        if c.files < 0 or c.delete_files < 0
    ]
    if shrunk:
        connection.execute(_DROP_EMPTY, shrunk)


def replace_counts(connection: Connection, table_id: int, counts: Mapping[str, Counts], now_ms: int) -> None:
    """Puts a fresh count in the place of whatever the index says of a table; partitions that did not change
    keep their time of change."""
    before = {
        str(row[0]): (Counts(*row[1:5]), int(row[5]))
        for row in connection.execute(
            text(
                "SELECT partition, files, delete_files, bytes, records, changed_ms FROM partitions WHERE "
                "table_id = :id"
            ),
            {"id": table_id},
        )
    }
    connection.execute(partitions.delete().where(partitions.c.table_id == table_id))
    rows = []
    for path, c in counts.items():
        known, changed_ms = before.get(path, (None, now_ms))
        fields = {"files": c.files, "delete_files": c.delete_files, "bytes": c.bytes, "records": c.records}
        rows.append(
            {
                "table_id": table_id,
                "partition": path,
                **fields,
                "changed_ms": changed_ms if known == c else now_ms,
            }
        )
    if rows:
        connection.execute(partitions.insert(), rows)
    connection.execute(text("DELETE FROM uncounted_tables WHERE table_id = :id"), {"id": table_id})


def uncounted(connection: Connection, *, limit: int, tries_max: int) -> list[tuple[int, str]]:
    """(id, metadata location) of tables that have to be counted from their manifests, the longest waiting
    first."""
    statement = text(
        "SELECT t.id, t.metadata_location FROM uncounted_tables u JOIN tables t ON t.id = u.table_id WHERE "
        "u.tries < :tries ORDER BY u.since_ms LIMIT :limit"
    )
    return [
        (int(row[0]), str(row[1]))
        for row in connection.execute(statement, {"limit": limit, "tries": tries_max})
    ]


def count_uncounted(connection: Connection) -> int:
    """How many tables wait for a count."""
    return int(
        connection.execute(
            text("SELECT COUNT(*) FROM uncounted_tables u JOIN tables t ON t.id = u.table_id")
        ).scalar_one()
    )
