"""What an operator asks: values that did not fit, the state of the line, and the end of a stream."""

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lake.catalog_client import CatalogClient, TableName
from lake.errors import FirnError
from query.api.search_routes import question_of
from query.api.services import CallerOf, Services, ServicesOf, run
from query.api.wire import RowAnswer, SearchBody
from query.cancellation import Run
from query.lag import IngestLag
from query.results import to_json
from query.search import Question
from query.table_view import table_id

router = APIRouter(prefix="/v1", tags=["operations"])
ERROR_ROWS = 2_000
SAMPLES = 20
PARKED_MAX = 1_000


class ErrorGroup(BaseModel):
    """Values of one field that did not fit for one reason."""

    reason: str
    field: str
    rows: int


class ErrorsAnswer(BaseModel):
    groups: list[ErrorGroup]
    sample: list[RowAnswer]
    looked_at: int
    more: Annotated[bool, Field(description="true: older rows with errors were not looked at")]


class ServiceState(BaseModel):
    name: str
    up: bool
    says: str


class ParkedTable(BaseModel):
    table: str
    reason: str


class HealthAnswer(BaseModel):
    """The line at a glance; what the caller's key may not see is left out."""

    services: list[ServiceState]
    lag_records: int | None
    complete_until: str | None
    ingest: dict[str, Any] | None
    partitions_with_many_files: int | None
    parked: list[ParkedTable] | None


class DroppedAnswer(BaseModel):
    dropped: str
    undo: str


class UndoneAnswer(BaseModel):
    restored: str


class StreamBody(BaseModel):
    tenant: Annotated[str, Field(max_length=400)]
    stream: Annotated[str, Field(max_length=400)]


@router.post("/errors")
async def post_errors(request: Request, body: SearchBody, services: ServicesOf, caller: CallerOf) -> ErrorsAnswer:
    """Values that did not fit their columns, by reason and field, over the newest rows that have some; with a sample of rows."""
    asked = question_of(body, services)
    question = Question(asked.table, asked.start, asked.end, f"_errors:* AND ({body.query})" if body.query.strip() else "_errors:*", asked.pin, asked.engine)

    def ask(current: Run) -> ErrorsAnswer:
        searcher = services.searcher(caller)
        page = services.for_tenant(caller, question.table.tenant, lambda: searcher.page(question, current, limit=ERROR_ROWS))
        rows = [to_json(row) for row in page.rows]
        counts = Counter((error["reason"] or "", error["field"] or "") for row in rows for error in row["errors"])
        groups = [ErrorGroup(reason=reason, field=field, rows=count) for (reason, field), count in counts.most_common()]
        sample = [RowAnswer.model_validate(row) for row in rows[:SAMPLES]]
        return ErrorsAnswer(groups=groups, sample=sample, looked_at=len(rows), more=page.next is not None)

    return await run(request, ask, timeout_s=services.settings.search_timeout_s)


@router.get("/health")
async def get_health(request: Request, services: ServicesOf, caller: CallerOf) -> HealthAnswer:
    """Which services answer, how far ingestion is behind, what waits for maintenance, what is parked."""

    def ask(_: Run) -> HealthAnswer:
        status = services.lag.status() if isinstance(services.lag, IngestLag) else None
        states = [
            ServiceState(name="catalog", up=True, says="answers"),
            ServiceState(name="trino", up=(trino := services.trino.ping()), says="answers" if trino else "does not answer: SQL and wide searches wait for it"),
            ServiceState(name="ingest", up=status is not None, says="answers" if status is not None else _why_no_ingest(services)),
        ]
        lag, until = (status or {}).get("lag_records"), (status or {}).get("complete_until")
        return HealthAnswer(
            services=states,
            lag_records=lag if isinstance(lag, int) else None,
            complete_until=until if isinstance(until, str) else None,
            ingest=status,
            partitions_with_many_files=_debt(caller.catalog),
            parked=_parked(caller.catalog),
        )

    return await run(request, ask, timeout_s=services.settings.search_timeout_s)


def _why_no_ingest(services: Services) -> str:
    return "does not answer" if services.settings.ingest_uri else "nobody said where it is: set FIRN_QUERY_INGEST_URI"


def _debt(catalog: CatalogClient) -> int | None:
    """Partitions of at least three files that a first page lists; None where the catalog or the key does not tell."""
    try:
        return len(catalog.get("/firn/v1/dirty-partitions", **{"min-files": 3, "pageSize": PARKED_MAX}).get("partitions", []))
    except FirnError:
        return None


def _parked(catalog: CatalogClient) -> list[ParkedTable] | None:
    try:
        found = catalog.get("/firn/v1/parked", pageSize=PARKED_MAX).get("parked", [])
    except FirnError:
        return None
    return [ParkedTable(table=".".join([*each["identifier"]["namespace"], each["identifier"]["name"]]), reason=str(each.get("reason", ""))) for each in found]


@router.delete("/streams")
async def drop_stream(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: Annotated[str, Query(max_length=400)],
    stream: Annotated[str, Query(max_length=400)],
) -> DroppedAnswer:
    """Drops a stream's table. It can be brought back until its purge."""
    table = table_id(tenant, stream)

    def ask(_: Run) -> DroppedAnswer:
        services.access.check_tenant(caller, table.tenant)
        caller.catalog.drop_table(TableName(table.tenant.namespace, table.table))
        return DroppedAnswer(dropped=str(table), undo="POST /v1/streams/undo brings it back until its purge")

    return await run(request, ask, timeout_s=services.settings.search_timeout_s)


@router.post("/streams/undo")
async def undo_drop(request: Request, body: StreamBody, services: ServicesOf, caller: CallerOf) -> UndoneAnswer:
    """Brings a dropped stream back with all its rows."""
    table = table_id(body.tenant, body.stream)

    def ask(_: Run) -> UndoneAnswer:
        services.access.check_tenant(caller, table.tenant)
        caller.catalog.post("/firn/v1/dropped-tables/undo", {"identifier": TableName(table.tenant.namespace, table.table).to_json()})
        return UndoneAnswer(restored=str(table))

    return await run(request, ask, timeout_s=services.settings.search_timeout_s)
