"""What the routes share, opened once per process, and how a request runs: in a thread, with a deadline,
stopped when the caller leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from lake.errors import FirnError, NotFoundError, RefusedError, SettingsError
from lake.limits import UNBOUND, Bound, Limit
from lake.private_files import private_folder
from lake.retention_policies import Policies
from lake.settings import QuerySettings
from lake.storage import AnyStorage, canonical, local_path, open_storage
from lake.tenant import SYSTEM_TENANT, TenantId
from query.access.access import Access, Caller, ForbiddenError
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
from query.model.cancellation import CancelledError, Run
from query.model.lane import Lane
from query.model.limits import Share, Tails
from query.model.problem import BadRequestError
from query.model.search_usage import SearchUsage, Used
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
NO_LIMITS: Mapping[Limit, Bound] = {}
READERS = 8  # of one list of tenants, each of whose tables is loaded
LOOK_EVERY_S = 0.2  # whether a caller is still there, and what there is to tell it


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
        storage, state, clock = open_storage(), private_folder(Path(settings.state)), SystemClock()
        cache = FileCache(storage, state / "files", settings.embedded.file_cache_bytes_max)
        token = settings.ingest.token.get_secret_value() if settings.ingest.token else None
        index, lag = (
            FileIndex(storage),
            IngestLag(settings.ingest.uri, token) if settings.ingest.uri else UnknownLag(),
        )
        # Exports and erasures go on after a restart, when nobody's key is at hand: they use the room's own,
        # after the asker's was checked.
        own = CatalogClient(
            settings.catalog.uri,
            token=settings.catalog.token.get_secret_value() if settings.catalog.token else None,
        )
        rules = None
        if settings.trino.access is not None:
            rules = TrinoRules(
                settings.trino.access, settings.trino.catalog, settings.trino.user, lambda: tenants(own)
            )
        embedded = EmbeddedExecutor(
            settings, cache.local_paths, lambda: _folders_of_files(own, state / "files")
        )
        trino = TrinoExecutor(settings, rules)
        filters = None
        if settings.search.filter_cache_bytes_max:
            filters = TokenFilters(
                storage, PackFolder(state / "filters", settings.search.filter_cache_bytes_max)
            )
        searcher = Searcher(own, index, (embedded, trino), settings, lag, clock, filters)
        limits = TenantLimits(Policies(own, clock, ASK_TIMEOUT_S), clock)
        usage, table_usage = SearchUsage(state / "usage.db", clock), TableUsage(state / "table-usage.db")
        quota = Quota(settings.export.count_per_tenant, settings.export.bytes_per_tenant)
        exports, ingest = (
            ExportJobs(
                state / "exports",
                lambda job: SearchRows(searcher, job, usage),
                kept_s=settings.export.kept_s,
                quota=quota,
                number_of=lambda tenant: _exports_of(limits, tenant),
            ),
            IngestGateway(settings),
        )
        work_list = work_list_of(own, settings.control)
        tools = Tools(own, work_list, storage, index, embedded, settings.erasure.grace_s)
        erasures = Erasures(
            state / "erasures",
            tools,
            OutsideTables(exports, ingest, embedded, own),
            lambda uris: _forget(cache, filters, uris),
            settings.erasure.wait_s,
        )
        trail = _trail(settings, state)
        collector = _collector(settings, own, table_usage, usage, ingest, clock)
        alerts = open_alerts(
            settings,
            own,
            work_list,
            Searching(
                index,
                lambda tables: Searcher(tables, index, (embedded, trino), settings, lag, clock, filters),
                lag,
                usage,
                limits.of,
            ),
            clock,
        )
        exports.start()
        erasures.start()
        return cls(
            settings=settings,
            storage=storage,
            access=Access(settings),
            trino=trino,
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
            requests=Lane(
                "query",
                settings.search.requests_max,
                settings.search.concurrent_per_tenant,
                settings.search.queue_timeout_s,
            ),
            statements=Lane(
                "sql",
                settings.sql.requests_max,
                settings.sql.concurrent_per_tenant,
                settings.search.queue_timeout_s,
            ),
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


ServicesOf = Annotated[Services, Depends(services_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]


def payer_of(caller: Caller, tenant: TenantId | None) -> str | None:
    """Whose limits a request counts against: the namespace that its key is bound to, whatever it asks about
    (of several the named one, or else the first); of other keys the named tenant's, None where they name
    none."""
    named, bound = None if tenant is None else tenant.namespace, caller.who.namespaces
    return named if not bound or named in bound else bound[0]


def shares_of(
    caller: Caller, payer: str | None, lane: Lane, limits: Mapping[Limit, Bound] = NO_LIMITS
) -> tuple[Share, ...]:
    """Whose turn a request takes: the payer's; of keys that are bound to no tenant their own, too."""
    holder = Share(
        "callers without a key" if caller.key is None else caller.who.share,
        lane.turns.total // 2,
    )
    if payer is None:
        return (holder,)
    bound = limits.get(Limit.SEARCHES_AT_ONCE, UNBOUND)
    share = Share(f"namespace {payer}", lane.at_once)
    if bound.most is not None:
        share = Share(share.name, bound.most, f", as the {bound.level} says")
    return (share,) if caller.who.namespace is not None else (share, holder)


@dataclass(frozen=True, slots=True)
class Turn:
    """Leave to run one request. What is `counted_as` a search of a stream counts as what its payer uses;
    None: it is no search."""

    give_back: Callable[[], None]
    usage: SearchUsage
    payer: str | None
    counted_as: str | None

    def counted(self, ask: Callable[[Run], Answer]) -> Callable[[Run], Answer]:
        """The same question, counted when it is answered, whatever comes of it."""
        if self.payer is None or self.counted_as is None:
            return ask

        def ask_and_count(current: Run) -> Answer:
            before_s = current.worked_s
            with self._counting(current, lambda: current.worked_s - before_s):
                return ask(current)

        return ask_and_count

    def counted_batches(self, batches: Callable[[Run], Iterator[bytes]]) -> Callable[[Run], Iterator[bytes]]:
        """The same of an answer in batches; the time between two of them, when its caller reads, counts for
        nothing."""
        if self.payer is None or self.counted_as is None:
            return batches

        def batches_and_count(current: Run) -> Iterator[bytes]:
            found, busy_s = iter(batches(current)), 0.0
            with self._counting(current, lambda: busy_s):
                while True:
                    before_s = current.worked_s
                    batch = next(found, None)
                    busy_s += current.worked_s - before_s
                    if batch is None:
                        return
                    yield batch

        return batches_and_count

    @contextmanager
    def _counting(self, current: Run, seconds: Callable[[], float]) -> Iterator[None]:
        """Counts what happens inside, unless it is refused: else whoever makes names up would fill the
        disk."""
        try:
            yield
        except (NotFoundError, ForbiddenError, BadRequestError):
            raise
        except BaseException:
            self._count(current, seconds())
            raise
        self._count(current, seconds())

    def _count(self, current: Run, seconds: float) -> None:
        assert self.payer is not None
        self.usage.add(self.payer, self.counted_as or "", Used(1, seconds, current.read_bytes))


async def _turn(
    request: Request, current: Run, tenant: TenantId | None, lane: Lane, counted_as: str | None
) -> Turn:
    """Waits for a turn of the run. Raises BusyError, DailyLimitError."""
    services, caller = services_of(request), caller_of(request)
    payer = payer_of(caller, tenant)
    limits = NO_LIMITS if payer is None else await services.limits_of(payer)
    if payer is not None and counted_as is not None:
        services.usage.check(payer, limits)
    give_back = await lane.turns.take(*shares_of(caller, payer, lane, limits))
    request.state.run = current
    return Turn(give_back, services.usage, payer, counted_as)


async def run(
    request: Request,
    ask: Callable[[Run], Answer],
    *,
    timeout_s: float,
    tenant: TenantId | None = None,
    lane: Lane | None = None,
    counted_as: str | None = None,
) -> Answer:
    """Runs a blocking question in a turn and a thread of a lane; when its caller disconnects the engine is
    told to stop.

    `tenant`: whom it is about; `counted_as`: the stream of which it is a search. The turn ends with the
    thread, not with the caller's patience. Raises BusyError.
    """
    lane = lane or services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    return await _answer_of(request, lane.start(turn.give_back, turn.counted(ask), current), current)


async def stream(
    request: Request,
    batches: Callable[[Run], Iterator[bytes]],
    *,
    timeout_s: float,
    tenant: TenantId | None = None,
    counted_as: str | None = None,
) -> AsyncIterator[bytes]:
    """The batches that a blocking generator gives, all within one turn. The first is there when this returns,
    so that what goes wrong before it is an error's answer. When the caller leaves the engine is told to
    stop."""
    lane = services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    steps = lane.steps(turn.give_back, turn.counted_batches(batches)(current))
    try:
        first = await _answer_of(request, steps.next(), current)
    except BaseException:
        _leave(current)
        steps.end()
        raise

    async def all_of_them() -> AsyncIterator[bytes]:
        try:
            batch = first
            while batch is not None:
                yield batch
                batch = await steps.next()
        finally:
            _leave(current)
            steps.end()

    return all_of_them()


async def watch(
    request: Request,
    ask: Callable[[Run], bytes],
    told: Callable[[Run], bytes],
    failed: Callable[[FirnError | BadRequestError], bytes],
    *,
    timeout_s: float,
    tenant: TenantId,
    counted_as: str | None = None,
) -> AsyncIterator[bytes]:
    """As `run`, and while the question runs what it has to tell, some times a second; its answer comes last.

    What goes wrong before there is anything to tell is an error's answer, later it is what `failed` makes of
    it.
    """
    lane = services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    future = lane.start(turn.give_back, turn.counted(ask), current)
    first = await _until_told(request, future, lambda: told(current), current)
    if first is None:
        future.result()  # an error is an error's answer

    async def all_of_it() -> AsyncIterator[bytes]:
        try:
            yield first or b""
            while not future.done():
                await asyncio.wait({future}, timeout=LOOK_EVERY_S)
                yield told(current)
            yield future.result()
        except (FirnError, BadRequestError) as error:
            yield failed(error)
        finally:
            if not future.done():
                _leave(current)

    return all_of_it()


async def _answer_of(request: Request, future: asyncio.Future[Answer], current: Run) -> Answer:
    await _until_told(request, future, lambda: b"", current)
    return future.result()


async def _until_told(
    request: Request, future: asyncio.Future[Answer], told: Callable[[], bytes], current: Run
) -> bytes | None:
    """The first that there is to tell; None where the future is done before. Raises CancelledError where the
    caller leaves."""
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=LOOK_EVERY_S)
            if not future.done() and await request.is_disconnected():
                _leave(current)
                raise CancelledError("the caller has gone; the query was stopped")
            if not future.done() and (said := told()):
                return said
    except asyncio.CancelledError:
        _leave(current)
        raise
    return None


def _leave(current: Run) -> None:
    """Tells the engine to stop, in a thread of its own: telling it is a request too, and an engine that hangs
    answers none."""
    threading.Thread(target=current.cancel, name="leave", daemon=True).start()
