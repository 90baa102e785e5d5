"""Live tail: a tenant's records as they reach Kafka, before any commit. Ingest reads and routes them; here it
is checked whose they are."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from lake.tenant import TenantId
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.model.limits import Tails
from query.model.table_view import table_id

router = APIRouter(prefix="/v1", tags=["tail"])
EVENT_STREAM: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/event-stream": {}}, "description": "events: open, record, rejected, dropped"}
}


@router.get("/tail", response_class=StreamingResponse, responses=EVENT_STREAM)
async def get_tail(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: Annotated[str, Query(max_length=400)],
    stream: Annotated[str, Query(max_length=400, description="empty: all streams of the tenant")] = "",
    words: Annotated[
        str, Query(max_length=1_000, description="only records that hold all of them, in any case")
    ] = "",
) -> StreamingResponse:
    """A tenant's records from now on, as server-sent events, until the caller leaves."""
    table = table_id(tenant, stream or "logs")
    await run(
        request,
        lambda _: (
            services.access.check_stream(caller, table)
            if stream
            else services.access.check_whole(caller, table.tenant)
        ),
        timeout_s=services.settings.search.timeout_s,
        tenant=table.tenant,
    )
    services.tails.check(table.tenant)
    events = await services.ingest.tail(table.tenant, stream or None, words)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _until_its_end(events, services.tails, table.tenant), media_type="text/event-stream", headers=headers
    )


async def _until_its_end(
    events: AsyncIterator[bytes], tails: Tails, tenant: TenantId
) -> AsyncIterator[bytes]:
    with tails.one_more(tenant):
        async with aclosing(cast("AsyncGenerator[bytes]", events)) as open_events:
            async for part in open_events:
                yield part
