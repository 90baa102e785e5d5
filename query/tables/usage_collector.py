"""Looks at all tables from time to time, and tells what tenants used into `system.usage`.

What came in the tables say themselves, what searches used this process has counted. Nothing is told only
once: a row is told again while its day goes on and once after, and the table keeps the last of each.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import islice

import structlog

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import FirnError
from lake.tenant import from_identifier
from lake.usage_row import TABLES, UsageRow
from query.model.search_usage import SearchUsage
from query.model.table_usage import TableUsage, came_into
from query.model.table_view import TableView, every_stream, tenants

LOOK_EVERY_S = 60.0
ROWS_AT_ONCE = 5_000
log = structlog.get_logger()
Send = Callable[[Sequence[UsageRow]], None]


@dataclass
class UsageCollector:
    """One process's. `send` returns when the topic has the rows, and raises FirnError where it perhaps has
    not."""

    catalog: CatalogClient
    tables: TableUsage
    searches: SearchUsage
    send: Send
    interval_s: float
    clock: Clock
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to look."""
        self._thread = threading.Thread(target=self._work, name="usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; what was not told is told after the next start."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
            except (FirnError, sqlite3.Error) as error:
                log.warning("usage.not_told", reason=str(error))
            self._ended.wait(min(LOOK_EVERY_S, self.interval_s))

    def look(self) -> bool:
        """Looks and tells where it is time; whether it was. Raises FirnError, sqlite3.Error: then it is time
        still."""
        now = self.clock.now().astimezone(UTC)
        if not self._is_due(now):
            return False
        for tenant in tenants(self.catalog):
            for view in every_stream(self.catalog, tenant):
                if isinstance(view, TableView):
                    self.tables.note(came_into(view, now.date()))
                if self._ended.is_set():
                    return False
        self._tell(now.date())
        self.tables.looked(now)
        return True

    def _is_due(self, now: datetime) -> bool:
        before = self.tables.looked_at
        return (
            before is None or before.date() != now.date() or (now - before).total_seconds() >= self.interval_s
        )

    def _tell(self, today: date) -> None:
        rows = self._rows(self.tables.told_until(today), today)
        while some := list(islice(rows, ROWS_AT_ONCE)):
            self.send(some)
        self.tables.told(today)

    def _rows(self, first: date, last: date) -> Iterator[UsageRow]:
        for came in self.tables.by_stream(None, first, last):
            tenant = from_identifier(came.namespace) or came.namespace
            yield UsageRow(
                came.day,
                tenant,
                came.stream,
                TABLES,
                records=came.records,
                bytes_in=came.bytes_in,
                bytes_stored=came.bytes_stored,
            )
        for each in self.searches.by_stream(None, first, last):
            tenant = from_identifier(each.namespace) or each.namespace
            yield UsageRow(
                each.day,
                tenant,
                each.stream,
                self.tables.writer,
                searches=each.used.searches,
                search_seconds=round(each.used.seconds, 3),
                search_bytes=each.used.size_bytes,
            )
