"""The fleet as rows of the catalog's database: written past the catalog, indexes after the rows."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.fleet.shape import Fleet, tenant

SEPARATOR = "\x1f"
TOGETHER = 50_000
NAMESPACES = ("path", "parent", "properties", "created_ms")
TABLES = (
    "id",
    "ident",
    "namespace",
    "name",
    "kind",
    "uuid",
    "location",
    "metadata_location",
    "created_ms",
    "changed_ms",
)
PARTITIONS = ("table_id", "partition", "files", "delete_files", "bytes", "records", "changed_ms")
Rows = Iterable[Sequence[Any]]


def namespaces(fleet: Fleet, known: set[str]) -> Iterator[Sequence[Any]]:
    """Those that the catalog has not made."""
    for number in range(fleet.tenants):
        if tenant(number) not in known:
            yield tenant(number), "", "{}", fleet.now_ms


def others(fleet: Fleet, first_id: int, warehouse: str, shared: str) -> Iterator[Sequence[Any]]:
    """The tables that the catalog has not made. `shared`: where the metadata of all of them is."""
    numbers = (number for number in range(fleet.tables) if not fleet.is_own(number))
    for row_id, number in enumerate(numbers, first_id):
        name, uuid = fleet.name(number), f"00000000-0000-4000-8000-{number:012d}"
        ident, place = f"{name.namespace}{SEPARATOR}{name.name}", f"{warehouse}/{uuid}"
        yield row_id, ident, *name, "table", uuid, place, shared, fleet.now_ms, fleet.now_ms


def partitions(fleet: Fleet, ids: Mapping[str, int], first_id: int) -> Iterator[Sequence[Any]]:
    """Those of all tables, by the ids of the tables. `ids`: of those that the catalog has made."""
    own = {ids[SEPARATOR.join(fleet.name(number))]: number for number in fleet.own()}
    for row_id, number in sorted(own.items()):
        yield from fleet.partitions(row_id, number)
    rest = (number for number in range(fleet.tables) if not fleet.is_own(number))
    for row_id, number in enumerate(rest, first_id):
        yield from fleet.partitions(row_id, number)


def fill_sqlite(file: Path, fleet: Fleet, warehouse: str, shared: str) -> dict[str, float]:
    """Writes what is missing of the fleet into a database that nobody has open; seconds that the rows took,
    and the indexes."""
    began_s = time.perf_counter()
    with sqlite3.connect(file, isolation_level=None) as connection:
        for pragma in ("synchronous=OFF", "cache_size=-400000", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN "
            "('tables', 'partitions')"
        ).fetchall()
        for name, _ in found:
            connection.execute(f"DROP INDEX {name}")
        ids = {
            str(ident): int(row_id) for ident, row_id in connection.execute("SELECT ident, id FROM tables")
        }
        known = {str(row[0]) for row in connection.execute("SELECT path FROM namespaces")}
        first_id = max(ids.values(), default=0) + 1
        connection.execute("DELETE FROM partitions")
        _insert(connection, "namespaces", NAMESPACES, namespaces(fleet, known))
        _insert(connection, "tables", TABLES, others(fleet, first_id, warehouse, shared))
        _insert(connection, "partitions", PARTITIONS, partitions(fleet, ids, first_id))
        rows_s = time.perf_counter() - began_s
        for _, sql in found:
            connection.execute(sql)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {"rows_s": rows_s, "indexes_s": time.perf_counter() - began_s - rows_s}


def _insert(connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Rows) -> None:
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    left = iter(rows)
    while some := list(islice(left, TOGETHER)):
        connection.execute("BEGIN")
        connection.executemany(statement, some)
        connection.execute("COMMIT")


def fill_postgres(url: str, fleet: Fleet, warehouse: str, shared: str) -> dict[str, float]:
    """The same for PostgreSQL."""
    began_s = time.perf_counter()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('tables', 'partitions') "
            "AND indexname NOT IN (SELECT conname FROM pg_constraint)"
        ).fetchall()
        for name, _ in found:
            connection.execute(f'DROP INDEX "{name}"'.encode())
        ids = {str(row[0]): int(row[1]) for row in connection.execute("SELECT ident, id FROM tables")}
        known = {str(row[0]) for row in connection.execute("SELECT path FROM namespaces")}
        first_id = max(ids.values(), default=0) + 1
        connection.execute("TRUNCATE partitions")
        _copy(connection, "namespaces", NAMESPACES, namespaces(fleet, known))
        _copy(connection, "tables", TABLES, others(fleet, first_id, warehouse, shared))
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('tables', 'id'), (SELECT max(id) FROM tables))"
        )
        _copy(connection, "partitions", PARTITIONS, partitions(fleet, ids, first_id))
        rows_s = time.perf_counter() - began_s
        for _, sql in found:
            connection.execute(str(sql).encode())
        indexes_s = time.perf_counter() - began_s - rows_s
        connection.execute("VACUUM ANALYZE")
    vacuum_s = time.perf_counter() - began_s - rows_s - indexes_s
    return {"rows_s": rows_s, "indexes_s": indexes_s, "vacuum_analyze_s": vacuum_s}


def _copy(connection: psycopg.Connection[Any], table: str, columns: Sequence[str], rows: Rows) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()) as copy,
    ):
        for row in rows:
            copy.write_row(row)
