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
from lake.storage import AnyStorage, open_storage
from lake.tenant import TenantId
from query.access import Access, Caller
from query.cancellation import CancelledError, Run
from query.erase_table import Tools
from query.erasure import Erasures
from query.executors.embedded import EmbeddedExecutor
from query.executors.trino import TrinoExecutor
from query.export import ExportJobs
from query.export_rows import SearchRows
from query.file_cache import FileCache
from query.file_counts import FileCounts
from query.file_index import FileIndex
from query.ingest_gateway import IngestGateway
from query.lag import IngestLag, LagSource, UnknownLag
from query.limits import Tails, Turns
from query.outside_tables import OutsideTables
from query.saved_searches import SavedSearches
from query.search import Searcher
from query.table_view import table_id

Answer = TypeVar("Answer")
THREADS = 64
READERS = 8  # of one list of tenants, each of whose tables is loaded
LOOK_FOR_CALLER_S = 0.25


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the process."""

    settings: QuerySettings
    storage: AnyStorage
    access: Access
    trino: TrinoExecutor
    embedded: EmbeddedExecutor
    index: FileIndex
    counts: FileCounts
    lag: LagSource
    ingest: IngestGateway
    own_catalog: CatalogClient
    turns: Turns
    tails: Tails
    clock: SystemClock
    threads: ThreadPoolExecutor
    readers: ThreadPoolExecutor
    exports: ExportJobs
    erasures: Erasures
    saved: SavedSearches

    @classmethod
    def open(cls, settings: QuerySettings) -> "Services":
        storage, state, clock = open_storage(), Path(settings.state), SystemClock()
        cache = FileCache(storage, state / "files", settings.file_cache_bytes_max)
        token = settings.ingest_token.get_secret_value() if settings.ingest_token else None
        index, lag = FileIndex(storage), IngestLag(settings.ingest_uri, token) if settings.ingest_uri else UnknownLag()
        embedded, trino = EmbeddedExecutor(settings, cache.local_paths), TrinoExecutor(settings)
        # Exports and erasures go on after a restart, when nobody's key is at hand: they use the room's own, after the asker's was checked.
        own = CatalogClient(settings.catalog_uri, token=settings.catalog_token.get_secret_value() if settings.catalog_token else None)
        searcher = Searcher(own, index, (embedded, trino), settings, lag, clock)
        exports, ingest = ExportJobs(state / "exports", lambda job: SearchRows(searcher, job), kept_s=settings.exports_kept_s), IngestGateway(settings)
        tools = Tools(own, storage, index, embedded, cache.local_paths, clock, settings.erasure_grace_s)
        erasures = Erasures(state / "erasures", tools, OutsideTables(exports, ingest, embedded, own), cache.forget)
        exports.start()
        erasures.start()
        return cls(
            settings=settings,
            storage=storage,
            access=Access(settings),
            trino=trino,
            embedded=embedded,
            index=index,
            counts=FileCounts(state / "counts.db"),
            lag=lag,
            ingest=ingest,
            own_catalog=own,
            tails=Tails(settings.tails_per_tenant),
            turns=Turns(settings.concurrent_per_tenant, settings.queue_timeout_s),
            clock=clock,
            exports=exports,
            erasures=erasures,
            saved=SavedSearches(state / "saved-searches"),
            threads=ThreadPoolExecutor(THREADS, thread_name_prefix="query"),
            readers=ThreadPoolExecutor(READERS, thread_name_prefix="tables"),
        )

    def close(self) -> None:
        self.exports.stop()
        self.erasures.stop()
        for pool in (self.threads, self.readers):
            pool.shutdown(wait=False, cancel_futures=True)
        self.counts.close()
        self.ingest.close()
        self.own_catalog.close()

    def searcher(self, caller: Caller) -> Searcher:
        """Searches with the caller's own key."""
        return Searcher(caller.catalog, self.index, (self.embedded, self.trino), self.settings, self.lag, self.clock)

    def whose(self, caller: Caller, tenant: str) -> TenantId | None:
        """The tenant that is asked about; None (all) only for keys that are not bound to one. Raises ForbiddenError, BadQuestionError."""
        if not tenant:
            self.access.check_operator(caller)
            return None
        wanted = table_id(tenant, "logs").tenant
        self.access.check_tenant(caller, wanted)
        return wanted

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
