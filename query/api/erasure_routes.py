"""Erasure over HTTP: ask for it, look at its report."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import NotFoundError
from query.access.access import ForbiddenError
from query.api.audited import told_of
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.api.wire import TIME_HELP
from query.erasure.erasure import NO_SUCH
from query.erasure.job import Erasure
from query.language.every_row import is_every_row
from query.language.search_language import parse_search
from query.model.cancellation import Run
from query.model.instant import EARLIEST, LATEST, parse_instant, rfc3339
from query.model.problem import refuse
from query.model.table_view import table_id
from query.tables.holds import check_may_erase

router = APIRouter(prefix="/v1/erasures", tags=["erasure"])


class ErasureBody(BaseModel):
    """Rows to erase. They are gone for good: from all streams named, from snapshots, from exports."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    query: Annotated[
        str,
        Field(
            description="which rows; a query that is every row is refused",
            examples=['user:"alice@example.org"'],
        ),
    ]
    streams: Annotated[
        list[Annotated[str, Field(max_length=400)]],
        Field(max_length=1_000, description="empty: all the tenant has"),
    ] = []
    from_: Annotated[
        str, Field(alias="from", max_length=60, description=TIME_HELP + "; empty: from the beginning")
    ] = ""
    to: Annotated[str, Field(max_length=60, description=TIME_HELP + "; empty: to the end")] = ""
    dry_run: Annotated[bool, Field(description="only count")] = False
    all_: Annotated[
        bool,
        Field(
            alias="all",
            description="the query may be every row; without it one that matches every row erases nothing",
        ),
    ] = False


class ErasedTable(BaseModel):
    """One table's part. The proof: `rows_left` matching rows are in the live files of `snapshot_id`, beside
    which no other snapshot is left."""

    stream: str
    table: str
    rows: int
    files_rewritten: int
    files_removed: int
    files_queued: int
    snapshots_expired: int
    files_live: int
    files_searched: Annotated[
        int,
        Field(description="live files that could hold a matching row, by their manifests; each was searched"),
    ]
    rows_left: Annotated[int | None, Field(description="null: nobody knows, see `problem`")]
    snapshot_id: str | None
    problem: Annotated[str | None, Field(description="why this table is not clean")]


class ErasureAnswer(BaseModel):
    """An erasure and its report."""

    id: str
    tenant: str
    streams: list[str]
    query: Annotated[str | None, Field(description="null when the erasure has ended: it is not kept")]
    query_hash: Annotated[
        str,
        Field(
            description=(
                "the same for the same query, under a key of this server's own; empty while the erasure runs"
            )
        ),
    ]
    from_: Annotated[str, Field(serialization_alias="from")]
    to: str
    dry_run: bool
    asked_by: Annotated[
        str, Field(description="id of the key that asked, as the catalog tells it, also of a token's")
    ]
    created: str
    finished: str | None
    waits_for: Annotated[
        list[str],
        Field(description="partitions of Kafka whose records are not in the tables yet; while it runs"),
    ]
    state: Annotated[
        str,
        Field(
            description=(
                "running, done, incomplete (something is named under `elsewhere` or as a table's "
                "problem), failed"
            )
        ),
    ]
    message: Annotated[
        str,
        Field(description="while it runs: how far the optimizer is, or that none has begun; why it failed"),
    ]
    rows: int
    tables: list[ErasedTable]
    exports_removed: list[str]
    elsewhere: Annotated[list[str], Field(description="what waits outside the tables and was not touched")]
    files_left: Annotated[
        int,
        Field(
            description=(
                "old files that nobody reaches and that are still on the storage, until their grace is over"
            )
        ),
    ]


class ErasuresAnswer(BaseModel):
    erasures: list[ErasureAnswer]


@router.post("", status_code=202)
async def create_erasure(
    request: Request, body: ErasureBody, services: ServicesOf, caller: CallerOf
) -> ErasureAnswer:
    """Begins an erasure. With `dry_run` its report says how many rows would go."""
    tenant = table_id(body.tenant, "logs").tenant
    for stream in body.streams:
        table_id(body.tenant, stream)
    if is_every_row(parse_search(body.query)) and not body.all_:
        raise refuse(
            "this would erase every row",
            suggestion="say which rows; to remove all of a stream, delete the stream; or say `all: true`",
        )
    now = services.clock.now()
    start = parse_instant(body.from_, now, what="from") if body.from_ else EARLIEST
    end = parse_instant(body.to, now, what="to") if body.to else LATEST
    if end <= start:
        raise refuse(
            "the time range is empty: its end must lie after its start",
            suggestion="swap the two, or choose a longer range",
        )
    asker = caller.who.key_id
    asked = Erasure(
        "",
        tenant.name,
        tuple(body.streams),
        body.query,
        rfc3339(start),
        rfc3339(end),
        body.dry_run,
        asker,
        "",
        body.all_,
    )

    def ask(_: Run) -> ErasureAnswer:
        services.access.check_whole(caller, tenant)  # dead letters and exports of all streams are searched
        services.access.check_writer(caller, tenant)
        if not body.dry_run:
            check_may_erase(caller.catalog, tenant, body.streams, start, end)
        made = services.erasures.create(asked)
        told_of(request).made(made.id)
        return _answer(services, made)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=tenant)


@router.get("")
async def list_erasures(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Annotated[str, Query(max_length=400)]
) -> ErasuresAnswer:
    """The erasures of a tenant, the newest first."""
    wanted = table_id(tenant, "logs").tenant

    def ask(_: Run) -> ErasuresAnswer:
        services.access.check_whole(caller, wanted)
        services.access.check_writer(caller, wanted)
        return ErasuresAnswer(
            erasures=[_answer(services, job) for job in services.erasures.all() if job.tenant == wanted.name]
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=wanted)


@router.get("/{erasure_id}")
async def get_erasure(
    request: Request, erasure_id: str, services: ServicesOf, caller: CallerOf
) -> ErasureAnswer:
    """One erasure with its report as it is now."""

    def ask(_: Run) -> ErasureAnswer:
        job = services.erasures.get(erasure_id)
        tenant = table_id(job.tenant, "logs").tenant
        try:
            services.access.check_whole(caller, tenant)
        except ForbiddenError as error:
            raise NotFoundError(NO_SUCH) from error  # nobody learns from an id what others have
        services.access.check_writer(caller, tenant)
        return _answer(services, job)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


def _answer(services: Services, job: Erasure) -> ErasureAnswer:
    plain = {
        name: getattr(job, name)
        for name in (
            "id",
            "tenant",
            "query_hash",
            "dry_run",
            "asked_by",
            "created",
            "finished",
            "state",
            "message",
            "rows",
        )
    }
    return ErasureAnswer(
        **plain,
        query=job.query or None,
        waits_for=[str(each) for each in job.awaited or ()] if _waits_for_kafka(job) else [],
        from_=job.start,
        to=job.end,
        streams=list(job.streams),
        tables=[ErasedTable(**asdict(table)) for table in job.tables],
        exports_removed=list(job.exports_removed),
        elsewhere=list(job.elsewhere),
        files_left=services.erasures.files_left(job),
    )


def _waits_for_kafka(job: Erasure) -> bool:
    """Between its two searches."""
    return job.state == "running" and bool(job.wait_until) and not job.searches_again
