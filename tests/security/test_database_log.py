"""SQLite's log beside the catalog's database does not stay as long as its longest burst, and a reader who
stays long is no reason to wait."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.database import (
    SQLITE_PAGE_BYTES,
    SQLITE_WAL_KEPT_BYTES,
    SQLITE_WAL_PAGES,
    Database,
    migrate,
    namespaces,
)

pytestmark = pytest.mark.finding(17)
ROWS, ROW_BYTES = 200, 50_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A new one, migrated."""
    opened = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(opened)
    yield opened
    opened.close()


def _burst(database: Database, name: str, rows_count: int = ROWS) -> None:
    with database.write() as connection:
        rows = [
            {"path": f"{name}{at}", "parent": "", "properties": "x" * ROW_BYTES, "created_ms": 0}
            for at in range(rows_count)
        ]
        connection.execute(namespaces.insert(), rows)


def _log(folder: Path) -> int:
    return (folder / "catalog.db-wal").stat().st_size


def test_the_log_is_emptied_once_less_is_written(database: Database, tmp_path: Path) -> None:
    """All of it is in the database then. While there is as much to write as it holds it stays, and is written
    from its start again."""
    for turn in range(3):
        _burst(database, f"{turn}-", ROWS - 10 * turn)
        before = _log(tmp_path)
        assert database.checkpoint() == before
        assert SQLITE_WAL_KEPT_BYTES < before < 2 * ROWS * ROW_BYTES
    assert database.checkpoint() == 0
    assert _log(tmp_path) == 0
    with database.write() as connection:
        connection.execute(
            namespaces.insert(), [{"path": "last", "parent": "", "properties": "", "created_ms": 0}]
        )
    assert 0 < database.checkpoint() < SQLITE_WAL_KEPT_BYTES
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM namespaces").scalar_one() == 3 * ROWS - 30 + 1


@pytest.mark.long
def test_somebody_who_reads_for_long_keeps_the_log_and_nobody_waits(
    database: Database, tmp_path: Path
) -> None:
    """It grows beyond what SQLite keeps it to; writers go on, and the first checkpoint after them empties it,
    however much is written."""
    _burst(database, "a")
    reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM namespaces").fetchone() == (ROWS,)
    bursts = 1 + 2 * SQLITE_WAL_PAGES * SQLITE_PAGE_BYTES // (ROWS * ROW_BYTES)
    for at in range(bursts):
        _burst(database, f"b{at}-")
        database.checkpoint()
    assert _log(tmp_path) > 2 * SQLITE_WAL_PAGES * SQLITE_PAGE_BYTES
    assert reader.execute("SELECT count(*) FROM namespaces").fetchone() == (ROWS,)
    reader.execute("COMMIT")
    reader.close()
    _burst(database, "c")
    assert database.checkpoint() == 0
