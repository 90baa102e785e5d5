"""What came into tables and is stored in them, by day (UTC), tenant and stream, kept in a small SQLite file:
what the tables themselves say was true when they were looked at last."""

import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import structlog

from lake.day_counts import DAYS_KEPT, day_counts
from query.model.search_usage import KEPT_DAYS
from query.model.table_view import TableView
from query.model.usage_file import open_usage_file

_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS came (day TEXT, namespace TEXT, stream TEXT, records INTEGER NOT NULL, "
        "bytes_in INTEGER NOT NULL, bytes_stored INTEGER, PRIMARY KEY (day, namespace, stream)) WITHOUT ROWID"
    ),
    "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
# A day's bytes are those of the last look on it: a later one knows what came, not what was stored.
_NOTE = (
    "INSERT INTO came VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET records = excluded.records, "
    "bytes_in = excluded.bytes_in, bytes_stored = coalesce(excluded.bytes_stored, bytes_stored)"
)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Came:
    """What came into a stream on a day. `bytes_stored`: of its files, when it was looked at last on the day;
    None where nobody looked."""

    day: str
    namespace: str
    stream: str
    records: int
    bytes_in: int
    bytes_stored: int | None = None


def came_into(view: TableView, today: date) -> Iterator[Came]:
    """Returns what a table says of its last days, and of today what is stored."""
    counts, namespace = day_counts(view.properties), view.id.tenant.namespace
    for day, count in counts.items():
        stored = view.totals.size_bytes if day == today.isoformat() else None
        yield Came(day, namespace, view.id.stream, count.records, count.size_bytes, stored)
    if today.isoformat() not in counts and view.totals.size_bytes:
        yield Came(today.isoformat(), namespace, view.id.stream, 0, 0, view.totals.size_bytes)


class TableUsage:
    """One process's. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = open_usage_file(path, _TABLES)
        self.writer = self._note_of("writer") or self._set(
            "writer", f"{socket.gethostname()}-{secrets.token_hex(4)}"
        )

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def note(self, found: Iterable[Came]) -> None:
        """Takes note of what tables say now. Raises sqlite3.Error where the disk does not take it."""
        rows = [
            (each.day, each.namespace, each.stream, each.records, each.bytes_in, each.bytes_stored)
            for each in found
        ]
        with self._lock, self._database:
            self._database.executemany(_NOTE, rows)

    def by_stream(self, namespace: str | None, first: date, last: date) -> Iterator[Came]:
        """What came from the first day to the last, that one too, of one tenant or of all."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM came WHERE day >= ? AND day <= ? AND (? IS NULL OR namespace = ?) "
                "ORDER BY day, namespace, stream",
                (first.isoformat(), last.isoformat(), namespace, namespace),
            ).fetchall()
        yield from (Came(*row) for row in rows)

    @property
    def looked_at(self) -> datetime | None:
        """When all tables were looked at last; None: never."""
        told = self._note_of("looked_at")
        return datetime.fromisoformat(told) if told else None

    def looked(self, now: datetime) -> None:
        """Takes note that all tables were, and forgets what is too old."""
        self._set("looked_at", now.isoformat())
        with self._lock, self._database:
            oldest = (now.date() - timedelta(days=KEPT_DAYS)).isoformat()
            self._database.execute("DELETE FROM came WHERE day < ?", (oldest,))

    def told_until(self, today: date) -> date:
        """The last day of which anything was told to others, whose figures may have grown since."""
        told = self._note_of("told_until")
        return date.fromisoformat(told) if told else today - timedelta(days=DAYS_KEPT)

    def told(self, day: date) -> None:
        """Takes note that all days before this one need not be told again."""
        self._set("told_until", day.isoformat())

    def _note_of(self, name: str) -> str:
        with self._lock:
            row = self._database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def _set(self, name: str, value: str) -> str:
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))
        return value
