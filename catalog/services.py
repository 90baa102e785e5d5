"""Everything a route needs, put together once per process."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from catalog import name_journal
from catalog.access import PrincipalCache, forget_old_tokens
from catalog.commit_queue import CommitQueue
from catalog.commits import Committer
from catalog.database import Database
from catalog.idempotency import Reply, RequestKey, forget_old_replies, once
from catalog.metadata_store import MetadataStore
from catalog.partition_counts import count_what_is_uncounted
from catalog.table_changes import read_metadata
from lake.clock import Clock, SystemClock, epoch_ms
from lake.errors import FirnError, SettingsError
from lake.settings import CatalogSettings
from lake.storage import open_storage

log = structlog.get_logger()
T = TypeVar("T")
UPKEEP_INTERVAL_S = 60.0


@dataclass(slots=True)
class Services:
    """One process's database, store and queue.

    SQLite is read on the event loop itself: a lookup takes some 50 microseconds, half of what a change of threads costs. PostgreSQL is
    read from threads, because there a lookup waits for the network.
    """

    settings: CatalogSettings
    clock: Clock
    database: Database
    store: MetadataStore
    queue: CommitQueue
    pool: ThreadPoolExecutor
    principals: PrincipalCache

    @classmethod
    def open(cls, settings: CatalogSettings, clock: Clock | None = None) -> "Services":
        """Opens the database (already migrated) and the store. Must run inside the event loop that serves. Raises SettingsError."""
        if not settings.warehouse:
            raise SettingsError("no warehouse is set; give --warehouse file:///path or s3://bucket/prefix")
        clock = clock or SystemClock()
        database = Database(settings.database_url)
        store = MetadataStore(
            open_storage(), settings.warehouse, allowed_locations=settings.allowed_locations, cache_bytes_max=settings.metadata_cache_bytes_max
        )
        pool = ThreadPoolExecutor(8, thread_name_prefix="catalog")

        def delete_later(locations: list[str]) -> None:
            pool.submit(store.delete, locations)

        committer = Committer(database, store, clock, delete_later, undo_window_s=settings.undo_window_s)
        return cls(settings, clock, database, store, CommitQueue(committer, rounds_at_once=settings.commit_rounds_at_once), pool, PrincipalCache())

    def now_ms(self) -> int:
        """Milliseconds since the epoch by this machine's clock."""
        return epoch_ms(self.clock.now())

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs a lookup."""
        if self.database.is_sqlite:
            with self.database.read() as connection:
                return work(connection)
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._read, work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self.database.read() as connection:
            return work(connection)

    async def change(self, key: RequestKey | None, work: Callable[[Connection], Reply]) -> Reply:
        """Runs a small change of the database alone, once per key; what it says of names is in the warehouse when it returns."""
        return await self.run(self._change, key, work)

    def _change(self, key: RequestKey | None, work: Callable[[Connection], Reply]) -> Reply:
        reply = once(self.database, key, self.now_ms(), work)
        self._flush_names()
        return reply

    def _flush_names(self) -> None:
        try:
            name_journal.flush(self.database, self.store, self.now_ms())
        except (SQLAlchemyError, FirnError) as error:  # they stay in the database and go with the next ones
            log.warning("catalog.names_not_written", error=str(error))

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs slow work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    async def metadata(self, location: str) -> bytes:
        """A metadata file's bytes, from memory or from the storage in a thread."""
        data = self.store.cached(location)
        return data if data is not None else await asyncio.get_running_loop().run_in_executor(self.pool, read_metadata, self.store, location)

    async def upkeep(self) -> None:
        """Forgets old answers, for as long as the process runs."""
        while True:
            await asyncio.sleep(UPKEEP_INTERVAL_S)
            try:
                await asyncio.get_running_loop().run_in_executor(self.pool, self._tidy)
            except (SQLAlchemyError, FirnError) as error:
                log.warning("catalog.upkeep_failed", error=str(error.orig if isinstance(error, DBAPIError) else error))

    def _tidy(self) -> None:
        self._flush_names()
        count_what_is_uncounted(self.database, self.store, self.now_ms())
        with self.database.write() as connection:
            forget_old_replies(connection, self.now_ms())
            forget_old_tokens(connection, self.now_ms())

    async def close(self) -> None:
        """Finishes what runs and closes everything."""
        await self.queue.close()
        self.pool.shutdown(wait=True)
        self.store.close()
        self.database.close()
