"""Rows of each data file by minute and level, counted once and kept: data files never change, so no histogram
without a filter opens one twice.

Merged files carry their counts beside their token filters. Another one is counted when a histogram first
needs it. `FileCounts` keeps both on disk, over restarts; what is lost is read or counted again.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import structlog
from sqlglot import exp

from lake.log_schema import SEVERITY, TIMESTAMP, LogSchema
from lake.severity import LEVELS, Level
from lake.token_filter.minute_counts import MinuteCounts
from query.executors.executor import Executor, Source, from_source
from query.files.file_index import LiveFile
from query.language.search_sql import column
from query.language.severity import level_number
from query.model.cancellation import Run
from query.model.table_view import TableView

log = structlog.get_logger()
MINUTE_S, HOUR_S = 60, 3_600
FILES_MAX = 1_000_000
_ASKED_AT_ONCE = 500
_TABLE = (
    "CREATE TABLE IF NOT EXISTS counts (uri TEXT PRIMARY KEY, by_minute BLOB NOT NULL, by_hour BLOB NOT NULL)"
)
Count = tuple[int, Level, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """(minute since 1970, level, rows) of one file."""

    by_minute: tuple[Count, ...]

    def by_hour(self) -> tuple[Count, ...]:
        """(hour since 1970, level, rows)."""
        summed: dict[tuple[int, Level], int] = {}
        for minute, level, rows in self.by_minute:
            key = (minute * MINUTE_S // HOUR_S, level)
            summed[key] = summed.get(key, 0) + rows
        return tuple((hour, level, rows) for (hour, level), rows in summed.items())

    def by_unit(self, unit_s: int) -> tuple[Count, ...]:
        """The same by hour or minute."""
        return self.by_hour() if unit_s == HOUR_S else self.by_minute


class FileCounts:
    """What was counted, by file, in a small SQLite file. Thread-safe."""

    def __init__(self, path: Path, *, files_max: int = FILES_MAX) -> None:
        self._path = path
        self._files_max = files_max
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._database = self._open()
        except sqlite3.DatabaseError as error:  # only a copy of what the data files say
            log.warning("query.counts_lost", path=str(path), error=str(error))
            path.unlink()
            self._database = self._open()

    def known(self, files: Sequence[LiveFile], unit_s: int) -> dict[str, tuple[Count, ...]]:
        """By URI: (`unit_s` (60 or 3600) since 1970, level, rows) of the files that were counted before."""
        kept = "by_hour" if unit_s == HOUR_S else "by_minute"
        found: dict[str, tuple[Count, ...]] = {}
        for at in range(0, len(files), _ASKED_AT_ONCE):
            uris = [file.uri for file in files[at : at + _ASKED_AT_ONCE]]
            statement = f"SELECT uri, {kept} FROM counts WHERE uri IN ({','.join('?' * len(uris))})"  # noqa: S608 - one of two names, and marks
            with self._lock:
                rows = self._database.execute(statement, uris).fetchall()
            found |= {uri: tuple(_read(packed)) for uri, packed in rows}
        return found

    def keep(self, counted: Mapping[str, Counts]) -> None:
        """Keeps counts of files; beyond the limit those kept first go."""
        rows = [
            (uri, _packed(counts.by_minute), _packed(counts.by_hour())) for uri, counts in counted.items()
        ]
        with self._lock, self._database:
            self._database.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", rows)
            newest = self._database.execute("SELECT max(rowid) FROM counts").fetchone()[0] or 0
            self._database.execute("DELETE FROM counts WHERE rowid <= ?", (newest - self._files_max,))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)
        return database


def counts_of(carried: Mapping[str, MinuteCounts]) -> dict[str, Counts]:
    """The counts that files carry, by URI."""
    return {
        uri: Counts(tuple((minute, LEVELS[level], rows) for minute, level, rows in counts.tolist()))
        for uri, counts in carried.items()
    }


def count_files(
    executor: Executor, view: TableView, files: Sequence[LiveFile], run: Run
) -> dict[str, Counts]:
    """Opens files and counts their rows. `executor` reads files. A file whose sum is not what its manifest
    says is left out: nobody may rely on it."""
    # The columns that are read, and no other, so that no field of a record is taken for `file_index`, which
    # DuckDB adds by itself.
    schema = LogSchema(
        {"fields": [field for field in view.schema.json["fields"] if field["name"] in (TIMESTAMP, SEVERITY)]}
    )
    minute = exp.cast(
        exp.Floor(
            this=exp.Div(
                this=exp.TimeToUnix(this=column(TIMESTAMP)), expression=exp.Literal.number("60.0"), typed=True
            )
        ),
        exp.DataType.Type.BIGINT,
    )
    select = exp.select(
        exp.column("file_index"), minute, level_number(column(SEVERITY)), exp.Count(this=exp.Star())
    ).from_(from_source())
    fetched = executor.fetch(
        Source(replace(view, schema=schema), files),
        select.group_by(*(exp.Literal.number(at) for at in (1, 2, 3))),
        run,
    )
    by_file: dict[int, list[Count]] = {}
    for file_at, at, level, rows in fetched.rows:
        by_file.setdefault(int(file_at), []).append((int(at), LEVELS[int(level)], int(rows)))
    counted = {}
    for at, file in enumerate(files):
        counts = by_file.get(at, [])
        if sum(rows for _, _, rows in counts) == file.rows:
            counted[file.uri] = Counts(tuple(sorted(counts)))
    return counted


def _packed(counts: Iterable[Count]) -> bytes:
    return orjson.dumps([(at, LEVELS.index(level), rows) for at, level, rows in counts])


def _read(packed: bytes) -> Iterator[Count]:
    return ((at, LEVELS[level], rows) for at, level, rows in orjson.loads(packed))
