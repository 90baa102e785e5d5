"""What searches used, by day (UTC), tenant and stream, kept in a small SQLite file over restarts; and whether
a tenant may use more of it today."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import structlog

from lake.clock import Clock
from lake.limits import Bound, Limit
from lake.metrics import QUERY_LIMITED
from query.model.limits import BusyError
from query.model.usage_file import open_usage_file

KEPT_DAYS = 400
_TABLE = (
    "CREATE TABLE IF NOT EXISTS used (day TEXT, namespace TEXT, stream TEXT, searches INTEGER NOT NULL, "
    "seconds REAL NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (day, namespace, stream)) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO used VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET searches = searches + "
    "excluded.searches, seconds = seconds + excluded.seconds, bytes = bytes + excluded.bytes"
)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Used:
    """How many searches, the seconds that they ran, and the bytes of files that they read."""

    searches: int = 0
    seconds: float = 0.0
    size_bytes: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(
            self.searches + other.searches, self.seconds + other.seconds, self.size_bytes + other.size_bytes
        )


@dataclass(frozen=True, slots=True)
class StreamUsage:
    """What was used of one stream on one day; an empty stream is statements in SQL."""

    day: str
    namespace: str
    stream: str
    used: Used


class DailyLimitError(BusyError):
    """A tenant has used what it may in a day."""


class SearchUsage:
    """One process's. Thread-safe."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._database = open_usage_file(path, (_TABLE,))
        self._day = ""
        self._today: dict[str, Used] = {}

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def today(self, namespace: str) -> Used:
        """What a tenant has used since midnight."""
        with self._lock:
            self._begin_day()
            return self._today.get(namespace, Used())

    def add(self, namespace: str, stream: str, used: Used) -> None:
        """Counts what a search has used, on the day on which it ends. Where the disk does not take it, the
        search is none the worse for it, and counts until the process ends."""
        with self._lock:
            self._begin_day()
            self._today[namespace] = self._today.get(namespace, Used()) + used
            row = (self._day, namespace, stream, used.searches, used.seconds, used.size_bytes)
            try:
                with self._database:
                    self._database.execute(_ADD, row)
            except sqlite3.Error as error:
                log.warning("query.usage_not_kept", namespace=namespace, error=str(error))

    def check(self, namespace: str, limits: Mapping[Limit, Bound]) -> None:
        """Raises DailyLimitError where the tenant may not search any more today."""
        used = self.today(namespace)
        for limit, so_far, unit in (
            (Limit.SEARCH_S_PER_DAY, used.seconds, "seconds"),
            (Limit.SEARCH_BYTES_PER_DAY, used.size_bytes, "bytes"),
        ):
            bound = limits.get(limit)
            if bound is None or bound.most is None or so_far < bound.most:
                continue
            QUERY_LIMITED.labels(limit.value).inc()
            raise DailyLimitError(
                f"the searches of namespace {namespace} have used {so_far:,.0f} of the {bound.most:,} {unit} "
                f"that {limit.value} leaves them a day, as the {bound.level} says; ask again after midnight "
                "UTC, or have the limit raised",
                retry_after_s=self._until_midnight_s(),
            )

    def by_stream(self, namespace: str | None, first: date, last: date) -> Iterator[StreamUsage]:
        """What was used from the first day to the last, that one too, of one tenant or of all."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM used WHERE day >= ? AND day <= ? AND (? IS NULL OR namespace = ?) "
                "ORDER BY day, namespace, stream",
                (first.isoformat(), last.isoformat(), namespace, namespace),
            ).fetchall()
        for day, whose, stream, searches, seconds, size_bytes in rows:
            yield StreamUsage(day, whose, stream, Used(searches, seconds, size_bytes))

    def _begin_day(self) -> None:
        day = self._clock.now().date()
        if day.isoformat() == self._day:
            return
        self._day = day.isoformat()
        with self._database:
            oldest = (day - timedelta(days=KEPT_DAYS)).isoformat()
            self._database.execute("DELETE FROM used WHERE day < ?", (oldest,))
        found = self._database.execute(
            "SELECT namespace, sum(searches), sum(seconds), sum(bytes) FROM used WHERE day = ? "
            "GROUP BY namespace",
            (self._day,),
        )
        self._today = {whose: Used(*figures) for whose, *figures in found}

    def _until_midnight_s(self) -> int:
        now = self._clock.now()
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
        return max(1, int((midnight - now).total_seconds()) + 1)
