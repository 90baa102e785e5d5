"""Whether tables lie in each other's way: found by an index, whatever the database's order of text is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from catalog.store.database import Database, migrate, tables
from catalog.store.tables import is_shared
from tests.catalog.conftest import new_database_url

TABLES = 200


@pytest.fixture
def database(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(new_database_url(database_kind, tmp_path, request))
    migrate(made)
    with made.write() as connection:
        connection.execute(
            tables.insert(), [_row(f"t{at:03d}", f"file:///w/t{at:03d}") for at in range(TABLES)]
        )
        connection.execute(tables.insert(), [_row("deep", "file:///w/a-b/c")])
    yield made
    made.close()


def _row(name: str, location: str) -> dict[str, object]:
    names = {"ident": f"{name}\x1flogs", "namespace": name, "name": "logs", "kind": "table", "uuid": name}
    return {**names, "location": location, "metadata_location": "", "created_ms": 0, "changed_ms": 0}


def _found(connection: Connection, database: Database) -> dict[str, bool]:
    asked = ("t100", "t100/x/y", "t10", "t100x", "a-b", "a-b/c/d", "a-b/cc", "a", "ab")
    return {place: is_shared(connection, database, f"file:///w/{place}") for place in asked}


@pytest.mark.stack
def test_what_lies_at_above_or_below_a_place_is_found(database: Database) -> None:
    """And nothing whose name only begins alike."""
    with database.read() as connection:
        found = _found(connection, database)
    assert [place for place, shared in found.items() if shared] == ["t100", "t100/x/y", "a-b", "a-b/c/d"]


def test_no_table_is_read_whole(tmp_path: Path) -> None:
    """Neither for the living nor for the dropped ones."""
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(database)
    with database.read() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        traced = list[str]()
        driver.set_trace_callback(traced.append)
        is_shared(connection, database, "file:///w/t1")
        driver.set_trace_callback(None)
        plans = [
            row[3]
            for each in traced
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}")
            if row
        ]
    database.close()
    assert sum("_by_location" in plan for plan in plans) == 4
    assert not [plan for plan in plans if plan.startswith("SCAN") and "json_each" not in plan]
