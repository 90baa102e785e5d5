"""Fields and their values, rows around a row, and what a search would cost."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lake.clock import epoch_us
from lake.errors import NotFoundError
from query.api.audited import told_of
from query.api.search_routes import search_request_of
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.api.wire import (
    EffortAnswer,
    FiltersAnswer,
    ProblemAnswer,
    RowAnswer,
    RowQuery,
    SearchBody,
    SearchStatsAnswer,
    basis_fields,
    effort_answer,
    filters_answer,
)
from query.facets.fields import list_fields, top_values
from query.model.cancellation import Run
from query.model.instant import EARLIEST, LATEST, parse_instant
from query.model.table_view import table_id
from query.search.cost import estimate
from query.search.results import Cursor, to_json
from query.search.search import SearchRequest

router = APIRouter(prefix="/v1", tags=["search"])


class FieldAnswer(BaseModel):
    name: str
    type: str
    coverage: Annotated[
        float | None,
        Field(description="part of the rows that have a value, 0 to 1; null where the files do not say"),
    ]
    path: Annotated[str | None, Field(description="where records carry it")]
    system: bool


class FieldsAnswer(SearchStatsAnswer):
    fields: list[FieldAnswer]


class ValuesBody(SearchBody):
    """The most frequent values of one field."""

    field: Annotated[str, Field(max_length=300, description="name of the field")]
    limit: Annotated[int, Field(ge=1, le=1_000)] = 10


class ValueAnswer(BaseModel):
    value: Any
    rows: int


class ValuesAnswer(SearchStatsAnswer):
    field: str
    values: list[ValueAnswer]
    sampled: Annotated[bool, Field(description="true: counted over the newest rows only")]


class ContextQuery(RowQuery):
    """A row, how many rows around it, and optionally a query that they match."""

    before: Annotated[int, Field(ge=0, le=1_000, description="older rows")] = 10
    after: Annotated[int, Field(ge=0, le=1_000, description="newer rows")] = 10
    query: Annotated[str, Field(description="only rows that match; empty: every row")] = ""


class ContextAnswer(BaseModel):
    """Rows around a row, oldest first; `at` is the row's place among them."""

    rows: list[RowAnswer]
    at: int


class CostAnswer(BaseModel):
    """What a search would cost, from manifests and token filters alone."""

    planned: EffortAnswer
    skipped: EffortAnswer
    filters: FiltersAnswer
    engine: str
    seconds: Annotated[float, Field(description="estimated seconds to open every planned file once")]
    advice: Annotated[
        str | None, Field(description="the filter that would cut it most; null where it is cheap")
    ]
    condition: Annotated[str, Field(description="the WHERE clause in the engine's dialect")]
    warnings: list[ProblemAnswer]


@router.post("/fields")
async def post_fields(
    request: Request, body: SearchBody, services: ServicesOf, caller: CallerOf
) -> FieldsAnswer:
    """The stream's fields with types and coverage in the time range. Nothing is opened."""
    search_request = search_request_of(request, body, services)

    def ask(current: Run) -> FieldsAnswer:
        fields, basis = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: list_fields(services.searcher(caller), search_request),
        )
        told_of(request).found(0, basis.scanned.size_bytes)
        listed = [
            FieldAnswer(name=f.name, type=f.kind, coverage=f.coverage, path=f.path, system=f.is_system)
            for f in fields
        ]
        return FieldsAnswer(
            **basis_fields(
                basis,
                search_request.start,
                search_request.end,
                current,
                pinned=search_request.pin is not None,
            ),
            fields=listed,
        )

    return await run(
        request, ask, timeout_s=services.settings.search.timeout_s, tenant=search_request.table.tenant
    )


@router.post("/values")
async def post_values(
    request: Request, body: ValuesBody, services: ServicesOf, caller: CallerOf
) -> ValuesAnswer:
    """The most frequent values of a field among the matching rows."""
    search_request = search_request_of(request, body, services)

    def ask(current: Run) -> ValuesAnswer:
        searcher = services.searcher(caller)
        found = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: top_values(searcher, search_request, body.field, current, limit=body.limit),
        )
        told_of(request).found(len(found.values), found.basis.scanned.size_bytes)
        basis = basis_fields(
            found.basis,
            search_request.start,
            search_request.end,
            current,
            pinned=search_request.pin is not None,
        )
        values = [ValueAnswer(value=value, rows=rows) for value, rows in found.values]
        return ValuesAnswer(**basis, field=body.field, values=values, sampled=found.sampled)

    return await run(
        request,
        ask,
        timeout_s=services.settings.search.timeout_s,
        tenant=search_request.table.tenant,
        counted_as=search_request.table.stream,
    )


@router.get("/context")
async def get_context(
    request: Request, where: Annotated[ContextQuery, Query()], services: ServicesOf, caller: CallerOf
) -> ContextAnswer:
    """The rows before and after a row, in order of time."""
    table = table_id(where.tenant, where.stream)
    at = parse_instant(where.timestamp, services.clock.now(), what="timestamp")
    here = Cursor(epoch_us(at), where.topic_id, where.partition, where.offset, where.index)
    search_request = SearchRequest(table, EARLIEST, LATEST, where.query)

    def ask(current: Run) -> ContextAnswer:
        searcher = services.searcher(caller)

        def around() -> ContextAnswer:
            row = searcher.row(table, here, current)
            if row is None:
                raise NotFoundError(
                    "there is no row with these coordinates at this time: retention or erasure removed it, "
                    "a later change replaced it, or the link is wrong"
                )
            older = (
                searcher.page(search_request, current, limit=where.before, after=here).rows
                if where.before
                else []
            )
            newer = (
                searcher.page(search_request, current, limit=where.after, after=here, newest_first=False).rows
                if where.after
                else []
            )
            rows = [*reversed(older), row, *newer]
            told_of(request).rows = len(rows)
            return ContextAnswer(
                rows=[RowAnswer.model_validate(to_json(each)) for each in rows], at=len(older)
            )

        return services.for_tenant(caller, table.tenant, around)

    return await run(
        request,
        ask,
        timeout_s=services.settings.search.timeout_s,
        tenant=table.tenant,
        counted_as=table.stream,
    )


@router.post("/explain")
async def post_explain(
    request: Request, body: SearchBody, services: ServicesOf, caller: CallerOf
) -> CostAnswer:
    """Plans a search without running it."""
    search_request = search_request_of(request, body, services)

    def ask(_: Run) -> CostAnswer:
        cost, prepared = services.for_tenant(
            caller, search_request.table.tenant, lambda: estimate(services.searcher(caller), search_request)
        )
        efforts = {"planned": effort_answer(cost.planned), "skipped": effort_answer(cost.skipped)}
        warnings = [ProblemAnswer(**problem.to_json()) for problem in prepared.warnings]
        return CostAnswer(
            **efforts,
            filters=filters_answer(prepared.plan.filters),
            engine=cost.engine,
            seconds=cost.seconds,
            advice=cost.advice,
            condition=cost.sql,
            warnings=warnings,
        )

    return await run(
        request, ask, timeout_s=services.settings.search.timeout_s, tenant=search_request.table.tenant
    )
