"""Tenants and their streams: rows, files, bytes, freshness."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lake.errors import FirnError
from lake.tenant import TenantId, from_identifier
from query.access.access import Caller
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.instant import rfc3339
from query.model.table_view import TableView, UnreadableTable, every_stream, table_id
from query.tables.row_changes import key_of, mode_of

router = APIRouter(prefix="/v1", tags=["tenants"])
TENANTS_PAGE_MAX = 1_000
NAMES_PAGE_MAX = 100_000
PartOfName = Annotated[
    str, Query(max_length=400, description="only tenants that have this in their names, in any case")
]


class StreamAnswer(BaseModel):
    """One stream: a table."""

    tenant: str
    stream: str
    table: Annotated[str, Field(description="its name in Trino's catalog, namespace.table")]
    mode: Annotated[
        str | None,
        Field(
            description=(
                "append: records; history: every change of a row is a row; upsert, delete_only, first_wins: "
                "one row per key; null: not known"
            )
        ),
    ] = None
    key: Annotated[list[str], Field(description="columns of its key, in order; none: it has no key")] = []
    rows: Annotated[int, Field(description="without those that are deleted by position")] = 0
    files: int = 0
    bytes: int = 0
    newest_row: str | None = None
    oldest_row: str | None = None
    committed_at: str | None = None
    columns: int = 0
    problem: Annotated[str | None, Field(description="why nothing more is known of it")] = None


class TenantAnswer(BaseModel):
    """One tenant, all its streams together."""

    tenant: str
    namespace: str
    streams: list[StreamAnswer]
    rows: int
    files: int
    bytes: int
    newest_row: str | None
    warnings: Annotated[
        list[str],
        Field(
            description=(
                "why this name may be mistaken for another: what is peculiar about it, whom it looks like"
            )
        ),
    ] = []


class TenantsAnswer(BaseModel):
    tenants: list[TenantAnswer]
    next: Annotated[str | None, Field(description="`after` of the next page; null: this was the last")]


class NamesAnswer(BaseModel):
    tenants: list[str]
    warnings: Annotated[
        dict[str, list[str]], Field(description="by name, of those that may be mistaken for another")
    ] = {}
    next: Annotated[str | None, Field(description="`after` of the next page; null: this was the last")]


class StreamsAnswer(BaseModel):
    streams: list[StreamAnswer]


@router.get("/tenants")
async def get_tenants(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    after: Annotated[str, Query(max_length=400, description="`next` of the page before")] = "",
    limit: Annotated[int, Query(ge=1, le=TENANTS_PAGE_MAX)] = 100,
    contains: PartOfName = "",
) -> TenantsAnswer:
    """The tenants that the caller's key reaches, in the order of their namespaces."""

    def ask(current: Run) -> TenantsAnswer:
        known, following, warnings = _page(services, caller, after, limit, contains)

        def told(tenant: TenantId) -> TenantAnswer:
            current.check()
            answer = _tenant(
                tenant,
                [stream_answer(services, tenant, stream) for stream in every_stream(caller.catalog, tenant)],
            )
            return answer.model_copy(update={"warnings": warnings.get(tenant.name, [])})

        # The key of a tenant shows one; only those that show many share the readers.
        return TenantsAnswer(
            tenants=[*map(told, known)] if len(known) < 2 else list(services.readers.map(told, known)),
            next=following,
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.get("/tenants/names")
async def get_tenant_names(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    after: Annotated[str, Query(max_length=400, description="`next` of the page before")] = "",
    limit: Annotated[int, Query(ge=1, le=NAMES_PAGE_MAX)] = 10_000,
    contains: PartOfName = "",
) -> NamesAnswer:
    """The names alone: no table is loaded, which counts where there are thousands."""

    def ask(_: Run) -> NamesAnswer:
        known, following, warnings = _page(services, caller, after, limit, contains)
        return NamesAnswer(tenants=[tenant.name for tenant in known], warnings=warnings, next=following)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.get("/streams")
async def get_streams(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Annotated[str, Query(max_length=400)]
) -> StreamsAnswer:
    """The streams of one tenant; none for a tenant nobody has heard of."""
    wanted = table_id(tenant, "logs").tenant

    def ask(_: Run) -> StreamsAnswer:
        views = services.for_tenant(caller, wanted, lambda: list(every_stream(caller.catalog, wanted)))
        return StreamsAnswer(streams=[stream_answer(services, wanted, view) for view in views])

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=wanted)


def _page(
    services: Services, caller: Caller, after: str, limit: int, part: str
) -> tuple[list[TenantId], str | None, dict[str, list[str]]]:
    """The next tenants in the order of their namespaces, where the page after them begins, and the warnings
    about them.

    They are compared with all that the caller's key reaches, and with no others: who else there is, is
    nobody's business.
    """
    reached = services.reached_by(caller, anew=not after)
    page, following = reached.page(after, limit, part)
    warnings = {
        each.name: list(reached.warnings[each.name]) for each in page if each.name in reached.warnings
    }
    return [*page], following, warnings


def stream_answer(services: Services, tenant: TenantId, stream: TableView | UnreadableTable) -> StreamAnswer:
    """A stream's size and freshness, from its metadata and manifests; of one that cannot be read, why."""
    if isinstance(stream, UnreadableTable):
        return StreamAnswer(
            tenant=tenant.name,
            stream=from_identifier(stream.name.name) or stream.name.name,
            table=str(stream.name),
            problem=stream.problem,
        )
    answer = StreamAnswer(
        tenant=tenant.name,
        stream=stream.id.stream,
        table=str(stream.name),
        mode=mode_of(stream.properties),
        key=list(key_of(stream.properties)),
        rows=stream.totals.live_rows,
        files=stream.totals.files,
        bytes=stream.totals.size_bytes,
        committed_at=rfc3339(stream.committed_at) if stream.committed_at else None,
        columns=len(stream.schema.columns),
        problem=(
            f"the table lacks the columns {', '.join(stream.schema.lacks)}; add them again with ALTER TABLE"
        )
        if stream.schema.lacks
        else None,
    )
    if answer.problem is None:
        try:
            live = services.index.files(stream)
            answer.newest_row, answer.oldest_row = (
                rfc3339(at) if at else None for at in (live.newest, live.oldest)
            )
        except FirnError as error:
            answer.problem = str(error)
    return answer


def _tenant(tenant: TenantId, found: list[StreamAnswer]) -> TenantAnswer:
    return TenantAnswer(
        tenant=tenant.name,
        namespace=tenant.namespace,
        streams=found,
        rows=sum(stream.rows for stream in found),
        files=sum(stream.files for stream in found),
        bytes=sum(stream.bytes for stream in found),
        newest_row=max((stream.newest_row for stream in found if stream.newest_row), default=None),
    )
