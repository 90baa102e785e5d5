"""What the routes share, opened once per process."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from lake.audit.event import start_of
from lake.audit.sender import EventSender
from lake.audit.spool import Spool
from lake.audit.trail import AuditTrail
from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.erasure_work import work_list_of
from lake.errors import RefusedError, SettingsError
from lake.limits import UNBOUND, Bound, Limit
from lake.private_files import private_folder
from lake.retention_policies import Policies
from lake.settings import QuerySettings
from lake.settings.query import SearchSettings, SqlSettings
from lake.storage import AnyStorage, canonical, local_path, open_storage
from lake.tenant import SYSTEM_TENANT, TenantId
from query.access.access import Access, Caller
from query.access.trino_rules import TrinoRules
from query.alerts.opened import Alerts, Searching, open_alerts
from query.erasure.erasure import Erasures
from query.erasure.outside_tables import OutsideTables
from query.erasure.table_search import Tools
from query.executors.embedded import EmbeddedExecutor
from query.executors.trino import TrinoExecutor
from query.export.export import ExportJobs, Quota
from query.export.export_rows import SearchRows
from query.facets.file_counts import FileCounts
from query.files.file_cache import FileCache
from query.files.file_index import FileIndex
from query.files.pack_folder import PackFolder
from query.files.token_filters import TokenFilters
from query.model.lane import Lane
from query.model.limits import Tails
from query.model.search_usage import SearchUsage
from query.model.table_usage import TableUsage
from query.model.table_view import TableSource, table_id, tenants
from query.model.tenant_limits import ASK_TIMEOUT_S, TenantLimits
from query.search.ingest_gateway import IngestGateway
from query.search.lag import IngestLag, LagSource, UnknownLag, UntoldLag
from query.search.search import Searcher
from query.sql.sql_readers import SqlReaders
from query.tables.board_store import BoardStore
from query.tables.reached_tenants import Reached, ReachedTenants
from query.tables.saved_searches import SavedSearches
from query.tables.usage_collector import UsageCollector

Answer = TypeVar("Answer")
DOORKEEPERS = 16
READERS = 8  # of one list of tenants, each of whose tables is loaded


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the process."""

    settings: QuerySettings
    storage: AnyStorage
    access: Access
    trino: TrinoExecutor
    embedded: EmbeddedExecutor
    index: FileIndex
    filters: TokenFilters | None
    counts: FileCounts
    lag: LagSource
    ingest: IngestGateway
    own_catalog: CatalogClient
    tails: Tails
    clock: SystemClock
    requests: Lane
    statements: Lane
    doorkeepers: ThreadPoolExecutor  # ask the catalog who a caller is
    readers: ThreadPoolExecutor
    reached: ReachedTenants
    limits: TenantLimits
    usage: SearchUsage
    table_usage: TableUsage
    collector: UsageCollector | None
    exports: ExportJobs
    erasures: Erasures
    alerts: Alerts
    boards: BoardStore
    saved: SavedSearches
    sql_readers: SqlReaders
    trail: AuditTrail | None

    @classmethod
    def open(cls, settings: QuerySettings) -> "Services":
        """Opens everything; exports, erasures, rules of alerts and the trail go on from where they stood.
        Raises SettingsError, PrerequisiteError."""
        storage, state, clock = open_storage(), private_folder(Path(settings.state)), SystemClock()
        own, index, lag = _own_catalog(settings), FileIndex(storage), _lag(settings)
        cache = FileCache(storage, state / "files", settings.embedded.file_cache_bytes_max)
        filters = _filters(settings, storage, state)
        embedded = EmbeddedExecutor(
            settings, cache.local_paths, lambda: _folders_of_files(own, state / "files")
        )
        engines = (embedded, _trino(settings, own))
        limits = TenantLimits(Policies(own, clock, ASK_TIMEOUT_S), clock)
        usage, table_usage = SearchUsage(state / "usage.db", clock), TableUsage(state / "table-usage.db")
        ingest, work_list = IngestGateway(settings), work_list_of(own, settings.control)

        def searcher_of(tables: TableSource) -> Searcher:
            return Searcher(tables, index, engines, settings, lag, clock, filters)

        exports = _exports(settings, state, searcher_of(own), usage, limits)
        erasures = Erasures(
            state / "erasures",
            Tools(own, work_list, storage, index, embedded, settings.erasure.grace_s),
            OutsideTables(exports, ingest, embedded, own),
            lambda uris: _forget(cache, filters, uris),
            settings.erasure.wait_s,
        )
        trail = _trail(settings, state)
        collector = _collector(settings, own, table_usage, usage, ingest, clock)
        searching = Searching(index, searcher_of, lag, usage, limits.of)
        alerts = open_alerts(settings, own, work_list, searching, clock)
        exports.start()
        erasures.start()
        return cls(
            settings=settings,
            storage=storage,
            access=Access(settings),
            trino=engines[1],
            embedded=embedded,
            index=index,
            filters=filters,
            counts=FileCounts(state / "counts.db"),
            lag=lag,
            ingest=ingest,
            own_catalog=own,
            tails=Tails(settings.search.tails_per_tenant),
            clock=clock,
            reached=ReachedTenants(clock),
            limits=limits,
            usage=usage,
            table_usage=table_usage,
            collector=collector,
            exports=exports,
            erasures=erasures,
            alerts=alerts,
            boards=BoardStore(work_list),
            saved=SavedSearches(state / "saved-searches"),
            trail=trail,
            sql_readers=SqlReaders(
                settings.sql.readers, settings.sql.parse_cpu_s, settings.search.queue_timeout_s
            ),
            requests=_lane("query", settings.search, settings),
            statements=_lane("sql", settings.sql, settings),
            doorkeepers=ThreadPoolExecutor(DOORKEEPERS, thread_name_prefix="doorkeeper"),
            readers=ThreadPoolExecutor(READERS, thread_name_prefix="tables"),
        )

    def close(self) -> None:
        self.alerts.stop()
        self.exports.stop()
        self.erasures.stop()
        for pool in (self.requests.threads, self.statements.threads, self.doorkeepers, self.readers):
            pool.shutdown(wait=False, cancel_futures=True)
        self.sql_readers.close()
        self.counts.close()
        if self.trail is not None:
            self.trail.stop()
        if self.collector is not None:
            self.collector.stop()
        self.usage.close()
        self.table_usage.close()
        self.ingest.close()
        self.own_catalog.close()

    def searcher(self, caller: Caller, tables: TableSource | None = None) -> Searcher:
        """Searches with the caller's own key. `tables`: those that were loaded with it already."""
        lag = UntoldLag(self.lag) if caller.who.is_bound else self.lag
        return Searcher(
            tables or caller.catalog,
            self.index,
            (self.embedded, self.trino),
            self.settings,
            lag,
            self.clock,
            self.filters,
        )

    def whose(self, caller: Caller, tenant: str, *, whole: bool = True) -> TenantId | None:
        """The tenant that is asked about; None (all) only for keys that are not bound to one. `whole`: what
        is asked is not told apart by streams. Raises ForbiddenError, BadRequestError."""
        if not tenant:
            self.access.check_operator(caller)
            return None
        wanted = table_id(tenant, "logs").tenant
        (self.access.check_whole if whole else self.access.check_tenant)(caller, wanted)
        return wanted

    def reached_by(self, caller: Caller, *, anew: bool) -> Reached:
        """The tenants that the caller's key reaches; `anew`: as they are now. Raises UnavailableError."""

        def ask() -> Iterator[TenantId]:
            knows_system = self.access.is_administrator(caller)
            return (each for each in tenants(caller.catalog) if knows_system or each != SYSTEM_TENANT)

        return self.reached.of(caller.key, ask, anew=anew)

    def for_tenant(self, caller: Caller, tenant: TenantId, ask: Callable[[], Answer]) -> Answer:
        """Runs after checking that the caller reaches the tenant."""
        self.access.check_tenant(caller, tenant)
        return ask()

    async def limits_of(self, namespace: str) -> Mapping[Limit, Bound]:
        """What a tenant may use, as far as somebody says it."""
        known = self.limits.known(namespace)
        if known is not None:
            return known
        return await asyncio.get_running_loop().run_in_executor(self.doorkeepers, self.limits.of, namespace)

    async def admit(self, authorization: str | None) -> Caller:
        """The caller behind an Authorization header. Raises UnauthorizedError, ForbiddenError."""
        known = self.access.known(authorization)
        if known is not None:
            return known
        return await asyncio.get_running_loop().run_in_executor(
            self.doorkeepers, self.access.caller, authorization
        )


def _own_catalog(settings: QuerySettings) -> CatalogClient:
    """With the room's own key: exports and erasures go on after a restart, when nobody's key is at hand, and
    the asker's was checked before."""
    token = settings.catalog.token
    return CatalogClient(settings.catalog.uri, token=None if token is None else token.get_secret_value())


def _lag(settings: QuerySettings) -> LagSource:
    if not settings.ingest.uri:
        return UnknownLag()
    token = settings.ingest.token
    return IngestLag(settings.ingest.uri, token.get_secret_value() if token else None)


def _filters(settings: QuerySettings, storage: AnyStorage, state: Path) -> TokenFilters | None:
    most_bytes = settings.search.filter_cache_bytes_max
    return TokenFilters(storage, PackFolder(state / "filters", most_bytes)) if most_bytes else None


def _trino(settings: QuerySettings, catalog: CatalogClient) -> TrinoExecutor:
    trino = settings.trino
    if trino.access is None:
        return TrinoExecutor(settings, None)
    return TrinoExecutor(
        settings, TrinoRules(trino.access, trino.catalog, trino.user, lambda: tenants(catalog))
    )


def _exports(
    settings: QuerySettings, state: Path, searcher: Searcher, usage: SearchUsage, limits: TenantLimits
) -> ExportJobs:
    return ExportJobs(
        state / "exports",
        lambda job: SearchRows(searcher, job, usage),
        kept_s=settings.export.kept_s,
        quota=Quota(settings.export.count_per_tenant, settings.export.bytes_per_tenant),
        number_of=lambda tenant: _exports_of(limits, tenant),
    )


def _lane(name: str, of: SearchSettings | SqlSettings, settings: QuerySettings) -> Lane:
    """What waits for turns of its own."""
    return Lane(name, of.requests_max, of.concurrent_per_tenant, settings.search.queue_timeout_s)


def _trail(settings: QuerySettings, state: Path) -> AuditTrail | None:
    """The audit trail, which begins with the settings; None where there is none. Raises SettingsError,
    PrerequisiteError."""
    if not settings.audit.enabled:
        return None
    if not settings.ingest.uri:
        raise SettingsError(
            "audit.enabled needs ingest.uri: the trail goes to Kafka by `python -m ingest serve`"
        )
    trail = AuditTrail(
        Spool(state / "audit", settings.audit.spool_bytes_max),
        EventSender(
            settings.ingest.uri, settings.ingest.token.get_secret_value() if settings.ingest.token else None
        ),
        required=settings.audit.required,
    )
    trail.note(start_of("query", settings))
    trail.start()
    return trail


def _collector(
    settings: QuerySettings,
    catalog: CatalogClient,
    tables: TableUsage,
    searches: SearchUsage,
    ingest: IngestGateway,
    clock: Clock,
) -> UsageCollector | None:
    """What tells `system.usage`, at work; None where that is not wanted. Raises SettingsError."""
    if not settings.usage.enabled:
        return None
    if not settings.ingest.uri:
        raise SettingsError(
            "usage.enabled needs ingest.uri: what tenants used goes to Kafka by `python -m ingest serve`"
        )
    interval_s = settings.usage.interval_s
    collector = UsageCollector(catalog, tables, searches, ingest.usage_rows, interval_s, clock)
    collector.start()
    return collector


def _exports_of(limits: TenantLimits, tenant: str) -> Bound:
    """How many exports are kept of a tenant, where tenant or lake says it."""
    return limits.of(table_id(tenant, "logs").tenant.namespace).get(Limit.EXPORTS, UNBOUND)


def _folders_of_files(catalog: CatalogClient, cache: Path) -> list[Path]:
    """Where data files are on this machine: the warehouse, where it is on a disk, and the copies of what lies
    on S3."""
    try:
        warehouse = catalog.warehouse
    except RefusedError:  # the room has no key that is in force; callers may have
        warehouse = None
    return (
        [cache]
        if warehouse is None or not canonical(warehouse).startswith("file:")
        else [cache, local_path(warehouse)]
    )


def _forget(cache: FileCache, filters: TokenFilters | None, uris: Sequence[str]) -> None:
    """Removes what is kept here of files whose rows must not stay anywhere."""
    cache.forget(uris)
    if filters is not None:
        filters.forget(uris)


def services_of(request: Request) -> Services:
    """The process's services."""
    return cast("Services", request.app.state.services)


def caller_of(request: Request) -> Caller:
    """Who asks, whom the doorkeeper let in."""
    return cast("Caller", request.state.caller)


async def _services(request: Request) -> Services:
    """The same as a dependency. Async though it awaits nothing: FastAPI runs any other in a thread, and two
    ways to a thread and back were a tenth of a request."""
    return services_of(request)


async def _caller(request: Request) -> Caller:
    return caller_of(request)


ServicesOf = Annotated[Services, Depends(_services)]
CallerOf = Annotated[Caller, Depends(_caller)]
