"""Lists of the dirty-partition index, by pages: partition by partition, the longest unchanged first, or
several together by how their names begin.

A page looks at about so many partitions, as they lie in an index, however few of them are asked for: SQLite
is read on the event loop, where everybody else would wait.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from catalog.model.identifier import levels
from catalog.store.database import CROWDED, CROWDED_FILES

Json = dict[str, Any]
At = tuple[int, int, str]
_TABLE_ID_MAX = 2**62
_FAR = 2**62
_ORDER = "ORDER BY p.changed_ms, p.table_id, p.partition"
_AT = "SELECT p.changed_ms, p.table_id, p.partition"
_DIRTY = f"{_AT}, p.files, p.delete_files, p.bytes, p.records, t.namespace, t.name, t.uuid"
# SQLite reads as far as a single column says, and compares the three after that.
_CONDITIONS = (
    "p.changed_ms <= :end_ms AND (p.changed_ms, p.table_id, p.partition) <= (:end_ms, :end_id, :end_path) "
    "AND p.files + p.delete_files >= :files_min AND p.files <= :data_files_max AND p.bytes >= :bytes_min"
)
_FOLLOWING = text(
    "SELECT table_id, partition FROM partitions WHERE (table_id, partition) >= (:at_id, :at_name) "
    "ORDER BY table_id, partition LIMIT 1 OFFSET :looked_at"
)
_GROUPS = text(
    "SELECT g.table_id, g.name, g.files, g.bytes, t.namespace, t.name, t.uuid FROM (SELECT table_id, "
    "substr(partition, 1, :characters) AS name, SUM(files) AS files, SUM(bytes) AS bytes FROM partitions "
    "WHERE (table_id, partition) >= (:at_id, :at_name) AND table_id <= :end_id "
    "AND (table_id, partition) < (:end_id, :end_name) "
    "AND partition >= :first AND partition < :before GROUP BY table_id, substr(partition, 1, :characters)) g "
    "JOIN tables t ON t.id = g.table_id WHERE g.bytes < :bytes_max ORDER BY g.table_id, g.name"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which partitions are listed: changed in [`since_ms`, `before_ms`), of at least `files_min` files, data
    and delete files together, of at most `data_files_max` data files and at least `bytes_min` bytes."""

    since_ms: int = 0
    before_ms: int = _FAR
    files_min: int = 1
    data_files_max: int = _FAR
    bytes_min: int = 0

    @property
    def of_crowded(self) -> bool:
        """Whether all of them are in the index of crowded partitions."""
        return self.files_min >= CROWDED_FILES

    @property
    def values(self) -> dict[str, int | str]:
        """As the statements name them."""
        return {
            "before": self.before_ms,
            "files_min": self.files_min,
            "data_files_max": self.data_files_max,
            "bytes_min": self.bytes_min,
        }


def _at(name: str, at: At) -> dict[str, int | str]:
    """A partition's place in the order of changes, as the statements name it."""
    return {f"{name}_ms": at[0], f"{name}_id": at[1], f"{name}_path": at[2]}


def list_dirty(
    connection: Connection, wanted: Wanted, *, after: At | None, limit: int, looked_at: int
) -> tuple[list[Json], At | None]:
    """At most `limit` partitions by the time of their last change, oldest first; and after which one the next
    page begins (None: there is none).

    A page looks at about so many of them, so that nobody waits for a question that few answer to.
    """
    values = wanted.values | _at("at", after or (wanted.since_ms, -1, ""))
    is_sqlite = connection.dialect.name == "sqlite"
    source, behind = _behind(of_crowded=wanted.of_crowded, is_sqlite=is_sqlite)
    last = connection.execute(
        text(f"{_AT} FROM {source} WHERE {behind} AND p.changed_ms < :before {_ORDER} LIMIT 1 OFFSET :skip"),
        {**values, "skip": looked_at - 1},
    ).first()
    end: At = (wanted.before_ms - 1, _FAR, "") if last is None else (int(last[0]), int(last[1]), str(last[2]))
    joined = f"{source} JOIN tables t ON t.id = p.table_id"
    rows = connection.execute(
        text(f"{_DIRTY} FROM {joined} WHERE {behind} AND {_CONDITIONS} {_ORDER} LIMIT :limit"),
        {**values, **_at("end", end), "limit": limit},
    )
    found = [_dirty(row) for row in rows]
    if len(found) == limit:
        row = found[-1]
        return found, (row["changed-ms"], row["table-id"], row["partition"])
    return found, None if last is None else end


def _behind(*, of_crowded: bool, is_sqlite: bool) -> tuple[str, str]:
    """The table with its index, and what of it comes after a partition. SQLite would read the larger index:
    it does not know how few rows are in the other."""
    behind = "(p.changed_ms, p.table_id, p.partition) > (:at_ms, :at_id, :at_path)"
    if not of_crowded:
        return "partitions p", behind
    source = "partitions p INDEXED BY partitions_crowded" if is_sqlite else "partitions p"
    crowded = CROWDED.replace("files", "p.files", 1).replace("delete_files", "p.delete_files")
    return source, f"{behind} AND {crowded}"


def _dirty(row: Any) -> Json:
    return {
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
