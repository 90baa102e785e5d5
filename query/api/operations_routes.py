"""What an operator asks: values that did not fit, the state of the line, what maintenance does."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lake.catalog_client import CatalogClient
from lake.errors import FirnError
from lake.extras_client import ExtrasClient
from lake.retention import PROPERTY
from query.access.access import Caller, ForbiddenError
from query.api.audited import told_of
from query.api.search_routes import search_request_of
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.api.wire import RowAnswer, SearchBody
from query.model.cancellation import Run
from query.model.instant import rfc3339
from query.search.lag import IngestLag
from query.search.results import to_json
from query.search.search import SearchRequest
from query.tables.key_expiry import expiring_keys
from query.tables.maintenance_debt import MaintenanceDebt, maintenance_debt
from query.tables.maintenance_state import maintenance_history, maintenance_state

router = APIRouter(prefix="/v1", tags=["operations"])
ERROR_ROWS = 2_000
SAMPLES = 20
EXAMPLES = 5
PARKED_MAX = 1_000
# What ingest says of itself that names no tenant, and what of it is no sum over all of them.
OF_NOBODY = (
    "role",
    "ready",
    "buffered_bytes",
    "in_flight_bytes",
    "buffered_tables",
    "lag_records",
    "complete_until",
)
NO_SUM = ("role", "ready", "complete_until")


class ErrorGroup(BaseModel):
    """Values of one field that did not fit for one reason."""

    reason: str
    field: str
    rows: int
    examples: Annotated[list[str], Field(description="some of the values, the newest first")]


class ErrorsAnswer(BaseModel):
    groups: list[ErrorGroup]
    sample: list[RowAnswer]
    looked_at: int
    more: Annotated[bool, Field(description="true: older rows with errors were not looked at")]


class WaitingTable(BaseModel):
    """A table that maintenance left for later."""

    table: str
    state: str
    reason: str
    failures: int
    until: str | None


class MaintenanceEntry(BaseModel):
    """Something that maintenance did."""

    timestamp: str
    table: str
    action: str
    outcome: str
    files_before: int | None
    files_after: int | None
    bytes: int | None
    rows: int | None
    snapshots_expired: int | None


class MaintenanceAnswer(BaseModel):
    """What maintenance is doing, did, and has before it."""

    leader: Annotated[str | None, Field(description="who runs it now; null: nobody")]
    partitions_with_many_files: int
    waiting: list[WaitingTable]
    duties: Annotated[
        dict[str, str],
        Field(description="when a round, retention, purge and the search for orphan files were done last"),
    ]
    deletions_due: Annotated[
        int,
        Field(description="files whose grace is over, up to 1,000; 0 where only one tenant is asked about"),
    ]
    history: list[MaintenanceEntry]


class ServiceState(BaseModel):
    name: str
    up: bool
    says: str


class ParkedTable(BaseModel):
    table: str
    reason: str


class MaintenanceHealth(BaseModel):
    """Whether maintenance keeps up. Lists end at 1,000; null: the caller's key does not show it."""

    behind: bool
    says: str
    last_round: Annotated[str | None, Field(description="when its last round ended; null: there was none")]
    waiting_partitions: Annotated[
        int | None,
        Field(description="hours of tables with many small files that did not change for two hours"),
    ]
    waiting_since: Annotated[str | None, Field(description="since when the first of them waits")]


class HealthAnswer(BaseModel):
    """The line at a glance; what the caller's key may not see is left out: of a tenant's key all sums over
    all tenants."""

    services: list[ServiceState]
    lag_records: int | None
    complete_until: str | None
    ingest: dict[str, Any] | None
    partitions_with_many_files: int | None
    retention_of_lake: Annotated[
        str | None,
        Field(
            description=(
                "how long rows are kept of which nobody else says it; empty: the lake says nothing; null: it "
                "does not concern a tenant's key"
            )
        ),
    ]
    maintenance: Annotated[
        MaintenanceHealth | None, Field(description="null: the catalog keeps no state of maintenance")
    ]
    parked: list[ParkedTable] | None


@router.post("/errors")
async def post_errors(
    request: Request, body: SearchBody, services: ServicesOf, caller: CallerOf
) -> ErrorsAnswer:
    """Values that did not fit their columns, by reason and field, over the newest rows that have some; with a
    sample of rows."""
    asked = search_request_of(request, body, services)
    search_request = SearchRequest(
        asked.table,
        asked.start,
        asked.end,
        f"_errors:* AND ({body.query})" if body.query.strip() else "_errors:*",
        asked.pin,
        asked.engine,
    )

    def ask(current: Run) -> ErrorsAnswer:
        searcher = services.searcher(caller)
        page = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: searcher.page(search_request, current, limit=ERROR_ROWS),
        )
        told_of(request).found(len(page.rows), page.basis.scanned.size_bytes)
        rows = [to_json(row) for row in page.rows]
        groups = _groups(error for row in rows for error in row["errors"])
        sample = [RowAnswer.model_validate(row) for row in rows[:SAMPLES]]
        return ErrorsAnswer(groups=groups, sample=sample, looked_at=len(rows), more=page.next is not None)

    return await run(
        request, ask, timeout_s=services.settings.search.timeout_s, tenant=search_request.table.tenant
    )


def _groups(errors: Iterable[dict[str, Any]]) -> list[ErrorGroup]:
    values: dict[tuple[str, str], list[str]] = {}
    for error in errors:
        values.setdefault((error["reason"] or "", error["field"] or ""), []).append(error["value"] or "")
    by_number = sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [
        ErrorGroup(reason=r, field=f, rows=len(found), examples=list(dict.fromkeys(found))[:EXAMPLES])
        for (r, f), found in by_number
    ]


@router.get("/maintenance")
async def get_maintenance(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: Annotated[
        str, Query(max_length=400, description="empty: all, for keys that are not bound to a tenant")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="entries of the history")] = 50,
    hours: Annotated[int, Query(ge=1, le=24 * 366, description="how far back the history is read")] = 48,
) -> MaintenanceAnswer:
    """What maintenance is doing, what waits and why, what it did last."""

    def ask(current: Run) -> MaintenanceAnswer:
        whose = services.whose(caller, tenant)
        state = maintenance_state(services.own_catalog, whose)
        found = maintenance_history(
            services.own_catalog,
            services.index,
            services.embedded,
            services.clock,
            whose,
            current,
            limit=limit,
            hours=hours,
        )
        return MaintenanceAnswer(
            leader=state.leader,
            partitions_with_many_files=state.partitions_with_many_files,
            waiting=[WaitingTable(**{**asdict(each), "until": _text(each.until)}) for each in state.waiting],
            duties={name: rfc3339(moment) for name, moment in state.tasks.items()},
            deletions_due=state.deletions_due,
            history=[_entry(each) for each in found],
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


def _entry(row: dict[str, Any]) -> MaintenanceEntry:
    named = {
        "timestamp": rfc3339(row["timestamp"]),
        "table": row["tenant_table"],
        "bytes": row["size_bytes"],
        "rows": row["row_count"],
    }
    return MaintenanceEntry(
        **named,
        **{
            name: row[name]
            for name in ("action", "outcome", "files_before", "files_after", "snapshots_expired")
        },
    )


def _text(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment else None


@router.get("/health")
async def get_health(request: Request, services: ServicesOf, caller: CallerOf) -> HealthAnswer:
    """Which services answer, how far ingestion is behind, what waits for maintenance, what is parked."""

    def ask(_: Run) -> HealthAnswer:
        status = services.lag.status() if isinstance(services.lag, IngestLag) else None
        states = [
            ServiceState(name="catalog", up=True, says="answers"),
            ServiceState(
                name="trino",
                up=(trino := services.trino.ping()),
                says="answers" if trino else "does not answer: SQL and wide searches wait for it",
            ),
            ServiceState(
                name="ingest",
                up=status is not None,
                says="answers" if status is not None else _why_no_ingest(services),
            ),
        ]
        now = services.clock.now()
        debt = maintenance_debt(services.own_catalog, caller.catalog, now)
        if debt is not None:
            states.append(ServiceState(name="maintenance", up=not debt.problem(now), says=debt.says(now)))
        if expiring := expiring_keys(caller.catalog, now):
            says = f"{len(expiring)} expire within two weeks: {', '.join(expiring)}; rotate or replace them"
            states.append(ServiceState(name="keys", up=False, says=says))
        told = (
            status
            if _is_operator(services, caller)
            else _without(status, NO_SUM if caller.who.is_bound else OF_NOBODY)
        )
        lag, until = (told or {}).get("lag_records"), (told or {}).get("complete_until")
        return HealthAnswer(
            services=states,
            lag_records=lag if isinstance(lag, int) else None,
            complete_until=until if isinstance(until, str) else None,
            ingest=told,
            partitions_with_many_files=None if debt is None else debt.crowded,
            retention_of_lake=_retention_of_lake(caller),
            maintenance=None if debt is None else _maintenance(debt, now),
            parked=_parked(caller.catalog),
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


def _retention_of_lake(caller: Caller) -> str | None:
    return None if caller.who.is_bound else caller.catalog.config_now().get(PROPERTY, "")


def _without(status: dict[str, Any] | None, kept: tuple[str, ...]) -> dict[str, Any] | None:
    return {name: status[name] for name in kept if name in status} if status else None


def _is_operator(services: Services, caller: Caller) -> bool:
    try:
        services.access.check_operator(caller)
    except ForbiddenError:
        return False
    return True


def _why_no_ingest(services: Services) -> str:
    return (
        "does not answer"
        if services.settings.ingest.uri
        else "nobody said where it is: set FIRN_QUERY_INGEST__URI"
    )


def _maintenance(debt: MaintenanceDebt, now: datetime) -> MaintenanceHealth:
    behind, since = bool(debt.problem(now)), _text(debt.oldest)
    return MaintenanceHealth(
        behind=behind,
        says=debt.says(now),
        last_round=_text(debt.last_round),
        waiting_partitions=debt.waiting,
        waiting_since=since,
    )


def _parked(catalog: CatalogClient) -> list[ParkedTable] | None:
    try:
        found = islice(ExtrasClient(catalog).parked(), PARKED_MAX)
        return [ParkedTable(table=each.table.dotted, reason=each.reason) for each in found]
    except FirnError:
        return None
