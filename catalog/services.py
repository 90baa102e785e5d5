"""Everything a route needs, put together once per process."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from catalog.commit_queue import CommitQueue
from catalog.commits import Committer
from catalog.database import Database
from catalog.idempotency import Reply, RequestKey, forget_old_replies, once
from catalog.metadata_store import MetadataStore
from catalog.table_changes import read_metadata
from lake.clock import Clock, SystemClock, epoch_ms
from lake.errors import SettingsError
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

        committer = Committer(database, store, clock, delete_later)
        return cls(settings, clock, database, store, CommitQueue(committer, rounds_at_once=settings.commit_rounds_at_once), pool)

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
        """Runs a small change of the database alone, once per key."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, once, self.database, key, self.now_ms(), work)

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
            except DBAPIError as error:
                log.warning("catalog.upkeep_failed", error=str(error.orig))

    def _tidy(self) -> None:
        with self.database.write() as connection:
            forget_old_replies(connection, self.now_ms())

    async def close(self) -> None:
        """Finishes what runs and closes everything."""
        await self.queue.close()
        self.pool.shutdown(wait=True)
        self.store.close()
        self.database.close()
