"""A small SQLite file of figures that are worth keeping, and never worth failing for."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import structlog

log = structlog.get_logger()


def open_usage_file(path: Path, tables: Iterable[str]) -> sqlite3.Connection:
    """Returns the database with its tables, made where absent. A damaged one is put aside, as `.damaged`.
    Where the disk is full or does not let it be opened, it stays as it is, and what is counted lasts as long
    as the process."""
    tables = tuple(tables)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _opened(path, tables)
    except (sqlite3.OperationalError, OSError) as error:
        log.warning("query.usage_not_kept", path=str(path), error=str(error))
        return _opened(":memory:", tables)
    except sqlite3.DatabaseError as error:
        log.warning("query.usage_lost", path=str(path), error=str(error))
        path.rename(path.with_suffix(".damaged"))
        return _opened(path, tables)


def _opened(path: Path | str, tables: Iterable[str]) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    for table in tables:
        database.execute(table)
    return database
