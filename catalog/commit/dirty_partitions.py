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
from catalog.model.identifier import levels
from catalog.store.database import Database, partitions
from catalog.store.tables import TABLE

Json = dict[str, Any]
PREFIX = "partitions."
_TABLE_ID_MAX = 2**62
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
            deltas[path] = deltas.get(path, Counts()) + counts
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


_FOLLOWING = text(
    "SELECT table_id, partition FROM partitions WHERE (table_id, partition) >= (:at_id, :at_name) AND "
    "partition >= :first AND partition < :before ORDER BY table_id, partition LIMIT 1 OFFSET :looked_at"
)
_GROUPS = text(
    "SELECT g.table_id, g.name, g.files, g.bytes, t.namespace, t.name, t.uuid FROM (SELECT table_id, "
    "substr(partition, 1, :characters) AS name, SUM(files) AS files, SUM(bytes) AS bytes FROM partitions "
    "WHERE (table_id, partition) >= (:at_id, :at_name) AND (table_id, partition) < (:end_id, :end_name) "
    "AND partition >= :first AND partition < :before GROUP BY table_id, substr(partition, 1, :characters)) g "
    "JOIN tables t ON t.id = g.table_id WHERE g.bytes < :bytes_max ORDER BY g.table_id, g.name"
)


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


def list_dirty(
    connection: Connection,
    *,
    since_ms: int,
    before_ms: int,
    files_min: int,
    after: tuple[int, int, str] | None,
    limit: int,
) -> list[Json]:
    """Partitions by the time of their last change, oldest first: those changed in [since, before) with at
    least so many files."""
    at = after or (since_ms, -1, "")
    statement = text(
        "SELECT p.changed_ms, p.table_id, p.partition, p.files, p.delete_files, p.bytes, p.records, "
        "t.namespace, t.name, t.uuid "
        "FROM partitions p JOIN tables t ON t.id = p.table_id "
        "WHERE (p.changed_ms, p.table_id, p.partition) > (:at_ms, :at_id, :at_path) AND p.changed_ms < "
        ":before "
        "AND p.files + p.delete_files >= :files_min ORDER BY p.changed_ms, p.table_id, p.partition LIMIT "
        ":limit"
    )
    values = {
        "at_ms": at[0],
        "at_id": at[1],
        "at_path": at[2],
        "before": before_ms,
        "files_min": files_min,
        "limit": limit,
    }
    return [
        {
            "identifier": {"namespace": levels(row[7]), "name": row[8]},
            "table-uuid": row[9],
            "table-id": row[1],
            "partition": row[2],
            "data-files": row[3],
            "delete-files": row[4],
            "bytes": row[5],
            "records": row[6],
            "changed-ms": row[0],
        }
        for row in connection.execute(statement, values)
    ]


@dataclass(frozen=True, slots=True)
class NameRange:
    """Partitions of one field whose names are before `before` (a name, `field=value`), put together by the
    first `characters` of their names: with `timestamp_hour=2026-11-14` and 25, the hours before that day, by
    day."""

    before: str
    characters: int

    @property
    def first(self) -> str:
        """Before every name of the field."""
        return self.before.partition("=")[0] + "="


def list_groups(
    connection: Connection, names: NameRange, *, bytes_max: int, start: tuple[int, str], looked_at: int
) -> tuple[list[Json], tuple[int, str] | None]:
    """Groups of partitions with less than so many bytes, by table and name, from a table's id and a name on;
    and where the next page starts (None: there is none).

    A page looks at about so many partitions, as they lie in the index of the primary key: an index by name
    would be written by every commit.
    """
    values = {
        "characters": names.characters,
        "first": names.first,
        "before": names.before,
        "at_id": start[0],
        "at_name": start[1],
    }
    following = connection.execute(_FOLLOWING, {**values, "looked_at": looked_at}).first()
    end = None if following is None else (int(following[0]), str(following[1])[: names.characters])
    if end is not None and end <= start:  # one group is as large as a page
        end = (start[0] + 1, "")
    end_id, end_name = end or (_TABLE_ID_MAX, "")
    found = connection.execute(
        _GROUPS, {**values, "end_id": end_id, "end_name": end_name, "bytes_max": bytes_max}
    )
    return [
        {
            "identifier": {"namespace": levels(row[4]), "name": row[5]},
            "table-uuid": row[6],
            "table-id": row[0],
            "name": row[1],
            "data-files": int(row[2]),
            "bytes": int(row[3]),
        }
        for row in found
    ], end


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
