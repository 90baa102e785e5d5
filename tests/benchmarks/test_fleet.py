"""The fleet of the benchmark is what it says: so many tables, at rest, in a database that the catalog can
open."""

import sqlite3
from pathlib import Path

import pytest

from catalog.store.database import Database, migrate
from lake.span import parse_span_path
from lake.table_layout import parse_partition_path
from tests.benchmarks.fleet.__main__ import MEASURED, kinds_of
from tests.benchmarks.fleet.rows import fill_sqlite
from tests.benchmarks.fleet.shape import PARTITIONS_MAX, PARTITIONS_MIN, Fleet

NOW_MS = 1_795_726_800_000  # 2026-11-26 21:00 UTC


@pytest.mark.long
@pytest.mark.parametrize(("tables", "own_max"), [(10, 3), (300, 60), (2_345, 10_000), (200_000, 20_000)])
def test_tables_have_names_of_their_own_and_the_catalog_makes_some_of_all_kinds(
    tables: int, own_max: int
) -> None:
    """Of every tenth of the fleet as many; no name occurs twice."""
    fleet = Fleet(tables, own_max, NOW_MS)
    names = {fleet.name(number) for number in range(tables)}
    assert len(names) == tables
    assert len({name.namespace for name in names}) == fleet.tenants
    own = fleet.own()
    assert [number for number in range(tables) if fleet.is_own(number)] == list(own)
    assert len(own) == tables if own_max >= tables else own_max <= len(own) < 2 * own_max
    assert own[-1] >= tables - fleet.own_step


def test_a_fleet_at_rest_has_nothing_to_merge(tmp_path: Path) -> None:
    """Every partition is one file of an hour or span that can be read back, none of them is cold, and nothing
    has changed for two days; the indexes are those of the catalog."""
    file, fleet = tmp_path / "catalog.db", Fleet(400, 1, NOW_MS)
    database = Database(f"sqlite:///{file}")
    migrate(database)
    database.close()
    indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"
    with sqlite3.connect(file) as connection:
        before = connection.execute(indexes).fetchall()
        own = fleet.name(fleet.own()[0])
        connection.execute(
            "INSERT INTO tables VALUES (7, ?, ?, ?, 'table', 'own', '', '', 0, 0)", ("\x1f".join(own), *own)
        )
    fill_sqlite(file, fleet, "file:///w", "file:///w/shared.json")
    with sqlite3.connect(file) as connection:
        assert connection.execute(indexes).fetchall() == before
        assert connection.execute("SELECT COUNT(*) FROM tables").fetchone() == (400,)
        assert connection.execute("SELECT COUNT(*) FROM namespaces").fetchone() == (fleet.tenants,)
        rows = connection.execute("SELECT table_id, partition, files, changed_ms FROM partitions").fetchall()
        least, most = connection.execute(
            "SELECT MIN(n), MAX(n) FROM (SELECT COUNT(*) AS n FROM partitions GROUP BY table_id)"
        ).fetchone()
    assert (least, most <= PARTITIONS_MAX) == (PARTITIONS_MIN, True)
    assert len({row[0] for row in rows}) == 400
    for _, path, files, changed_ms in rows:
        assert parse_partition_path(path) is not None or parse_span_path(path) is not None
        assert (files, changed_ms <= NOW_MS - 47 * 3_600_000) == (1, True)


def test_what_was_not_measured_at_this_size_is_named() -> None:
    """With what it rests on."""
    result = dict.fromkeys(
        (
            "daily_tables",
            "daily_ms_per_table",
            "ingest_tables",
            "ingest_bytes_per_table",
            "round_1pct_merges",
        ),
        10,
    )
    result |= {"warehouse_bytes": 1_000, "round_idle_s": 1}
    kinds = kinds_of(result, Fleet(1_000_000, 20_000, NOW_MS))
    assert "round_idle_s" in kinds["measured"]
    assert set(kinds["measured"]) <= {name for name in result if name.startswith(MEASURED)}
    assert all(
        any(line.startswith(name) for line in kinds["extrapolated"]) for name in ("daily_h", "ingest_gb")
    )
    assert kinds["daily_h"] == pytest.approx(2.78)
