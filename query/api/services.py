"""What the routes share, opened once per process, and how a request runs: in a thread, with a deadline, stopped when the caller leaves."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.settings import QuerySettings
from lake.storage import Storage, open_storage
from lake.tenant import TenantId
from query.access import Access, Caller
from query.cancellation import CancelledError, Run
from query.executors.embedded import EmbeddedExecutor
from query.executors.trino import TrinoExecutor
from query.export import ExportJobs
from query.export_rows import SearchRows
from query.file_cache import FileCache
from query.file_index import FileIndex
from query.lag import IngestLag, LagSource, UnknownLag
from query.limits import Turns
from query.search import Searcher

Answer = TypeVar("Answer")
THREADS = 64
LOOK_FOR_CALLER_S = 0.25


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the process."""

    settings: QuerySettings
    storage: Storage
    access: Access
    trino: TrinoExecutor
    embedded: EmbeddedExecutor
    index: FileIndex
    lag: LagSource
    turns: Turns
    clock: SystemClock
    threads: ThreadPoolExecutor
    exports: ExportJobs

    @classmethod
    def open(cls, settings: QuerySettings) -> "Services":
        storage = open_storage()
        cache = FileCache(storage, Path(settings.state) / "files", settings.file_cache_bytes_max)
        index, clock, lag = FileIndex(storage), SystemClock(), IngestLag(settings.ingest_uri) if settings.ingest_uri else UnknownLag()
        engines = EmbeddedExecutor(settings, cache.local_paths), TrinoExecutor(settings)
        # Exports go on after a restart, when nobody's key is at hand: they read with the room's own, after the asker's was checked.
        own = CatalogClient(settings.catalog_uri, token=settings.catalog_token.get_secret_value() if settings.catalog_token else None)
        searcher = Searcher(own, index, engines, settings, lag, clock)
        exports = ExportJobs(Path(settings.state) / "exports", lambda job: SearchRows(searcher, job))
        exports.start()
        return cls(
            settings=settings,
            storage=storage,
            access=Access(settings),
            trino=engines[1],
            embedded=engines[0],
            index=index,
            lag=lag,
            turns=Turns(settings.concurrent_per_tenant, settings.queue_timeout_s),
            clock=clock,
            exports=exports,
            threads=ThreadPoolExecutor(THREADS, thread_name_prefix="query"),
        )

    def close(self) -> None:
        self.exports.stop()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def searcher(self, caller: Caller) -> Searcher:
        """Searches with the caller's own key."""
        return Searcher(caller.catalog, self.index, (self.embedded, self.trino), self.settings, self.lag, self.clock)

    def for_tenant(self, caller: Caller, tenant: TenantId, ask: Callable[[], Answer]) -> Answer:
        """Runs in the tenant's turn, after checking that the caller reaches it."""
        self.access.check_tenant(caller, tenant)
        with self.turns.take(tenant):
            return ask()


def services_of(request: Request) -> Services:
    """The process's services."""
    return cast("Services", request.app.state.services)


async def caller_of(request: Request) -> Caller:
    """Who asks. Raises UnauthorizedError."""
    services = services_of(request)
    header = request.headers.get("authorization")
    return await asyncio.get_running_loop().run_in_executor(services.threads, services.access.caller, header)


ServicesOf = Annotated[Services, Depends(services_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]


async def run(request: Request, ask: Callable[[Run], Answer], *, timeout_s: float) -> Answer:
    """Runs a blocking question in a thread; when its caller disconnects the engine is told to stop."""
    services = services_of(request)
    current = Run(timeout_s)
    future = asyncio.get_running_loop().run_in_executor(services.threads, ask, current)
    try:
        while True:
            done, _ = await asyncio.wait({future}, timeout=LOOK_FOR_CALLER_S)
            if done:
                return future.result()
            if await request.is_disconnected():
                current.cancel()
                raise CancelledError("the caller has gone; the query was stopped")
    except asyncio.CancelledError:
        current.cancel()
        raise
