"""Figures that are kept where the disk takes them."""

import sqlite3
from pathlib import Path

import pytest

from query.model import usage_file
from query.model.usage_file import open_usage_file

TABLES = ("CREATE TABLE IF NOT EXISTS t (n INTEGER)",)


def filled(path: Path) -> None:
    with open_usage_file(path, TABLES) as database:
        database.execute("INSERT INTO t VALUES (1)")
    database.close()


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    path.write_bytes(b"no database" * 1_000)
    filled(path)
    assert path.with_suffix(".damaged").read_bytes().startswith(b"no database")
    assert open_usage_file(path, TABLES).execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_full_disk_at_the_start_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays where it is, and counting goes on without it."""
    path = tmp_path / "usage.db"
    filled(path)
    whole = usage_file._opened

    def full(where: Path | str, tables: tuple[str, ...]) -> sqlite3.Connection:
        if where == path:
            raise sqlite3.OperationalError("database or disk is full")
        return whole(where, tables)

    monkeypatch.setattr(usage_file, "_opened", full)
    filled(path)
    monkeypatch.undo()
    assert list(tmp_path.glob("*.damaged")) == []
    assert open_usage_file(path, TABLES).execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_folder_that_cannot_be_made_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    filled(tmp_path / "state" / "usage.db")
