"""Search: pages, histograms, one row."""

from collections.abc import Iterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from lake.clock import epoch_us
from lake.errors import NotFoundError
from query.api.audited import told_of
from query.api.progress_lines import LINES, NDJSON, answered
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run, stream
from query.api.wire import (
    HistogramAnswer,
    HistogramBody,
    PageAnswer,
    PageBody,
    RowAnswer,
    RowQuery,
    SearchBody,
    SearchStatsAnswer,
    StreamBody,
    basis_fields,
)
from query.facets.histogram import histogram
from query.model.cancellation import Run
from query.model.instant import parse_instant, rfc3339
from query.model.point_in_time import parse_point_in_time
from query.model.problem import refuse
from query.model.table_view import table_id
from query.search.results import Cursor, parse_cursor, to_json
from query.search.search import Progress, SearchRequest, SearchStats

router = APIRouter(prefix="/v1", tags=["search"])
ROWS: dict[int | str, dict[str, object]] = {
    200: {"content": {NDJSON: {}}, "description": "rows, a JSON object per line"}
}


def search_request_of(request: Request, body: SearchBody, services: ServicesOf) -> SearchRequest:
    """The question behind a request, which the audit trail is told. Raises BadRequestError."""
    now = services.clock.now()
    start, end = parse_instant(body.from_, now, what="from"), parse_instant(body.to, now, what="to")
    pin = parse_point_in_time(body.pin) if body.pin else None
    asked = SearchRequest(table_id(body.tenant, body.stream), start, end, body.query, pin, body.engine)
    told_of(request).asked(asked)
    return asked


async def _page(
    request: Request, body: PageBody, services: ServicesOf, caller: CallerOf
) -> PageAnswer | StreamingResponse:
    search_request = search_request_of(request, body, services)
    if body.limit > services.settings.search.page_rows_max:
        raise refuse(
            f"limit: at most {services.settings.search.page_rows_max:,} rows a page; use `next` for more, "
            "or an export"
        )
    after = parse_cursor(body.cursor) if body.cursor else None

    def ask(current: Run, progress: Progress) -> PageAnswer:
        searcher = services.searcher(caller)
        page = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: searcher.page(
                search_request,
                current,
                limit=body.limit,
                after=after,
                newest_first=body.order == "newest",
                progress=progress,
            ),
        )
        told_of(request).found(len(page.rows), page.basis.scanned.size_bytes)
        basis = basis_fields(
            page.basis,
            search_request.start,
            search_request.end,
            current,
            pinned=search_request.pin is not None,
        )
        rows = [RowAnswer.model_validate(to_json(row)) for row in page.rows]
        return PageAnswer(**basis, rows=rows, next=page.next.to_text() if page.next else None)

    return await answered(request, services, search_request.table, ask)


@router.post("/search", response_model=PageAnswer, responses=LINES)
async def post_search(
    request: Request, body: PageBody, services: ServicesOf, caller: CallerOf
) -> PageAnswer | StreamingResponse:
    """One page of matching rows."""
    return await _page(request, body, services, caller)


@router.get("/search", response_model=PageAnswer, responses=LINES)
async def get_search(
    request: Request, body: Annotated[PageBody, Query()], services: ServicesOf, caller: CallerOf
) -> PageAnswer | StreamingResponse:
    """One page of matching rows, as a link."""
    return await _page(request, body, services, caller)


@router.post("/search/stream", response_class=StreamingResponse, responses=ROWS)
async def post_search_stream(
    request: Request, body: StreamBody, services: ServicesOf, caller: CallerOf
) -> StreamingResponse:
    """All matching rows, however many, a JSON object per line; the last line is `{"basis": ...}`, without it
    the answer broke off."""
    search_request = search_request_of(request, body, services)

    def batches(current: Run) -> Iterator[bytes]:
        services.access.check_tenant(caller, search_request.table.tenant)
        rows = 0
        for part in services.searcher(caller).stream(
            search_request, current, newest_first=body.order == "newest"
        ):
            if isinstance(part, SearchStats):
                basis = SearchStatsAnswer(
                    **basis_fields(
                        part,
                        search_request.start,
                        search_request.end,
                        current,
                        pinned=search_request.pin is not None,
                    )
                )
                told_of(request).found(rows, part.scanned.size_bytes)
                yield orjson.dumps(
                    {"basis": basis.model_dump(by_alias=True)}, option=orjson.OPT_APPEND_NEWLINE
                )
            else:
                rows += len(part)
                told_of(request).rows = rows
                yield b"".join(orjson.dumps(to_json(row), option=orjson.OPT_APPEND_NEWLINE) for row in part)

    found = await stream(
        request,
        batches,
        timeout_s=services.settings.sql.timeout_s,
        tenant=search_request.table.tenant,
        counted_as=search_request.table.stream,
    )
    return StreamingResponse(found, media_type=NDJSON)


async def _histogram(
    request: Request, body: HistogramBody, services: ServicesOf, caller: CallerOf
) -> HistogramAnswer | StreamingResponse:
    search_request = search_request_of(request, body, services)

    def ask(current: Run, progress: Progress) -> HistogramAnswer:
        searcher = services.searcher(caller)
        found = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: histogram(
                searcher,
                services.counts,
                search_request,
                current,
                width_s=body.width_s,
                by_level=body.by == "level",
                progress=progress,
            ),
        )
        told_of(request).found(found.rows, found.basis.scanned.size_bytes)
        basis = basis_fields(
            found.basis,
            search_request.start,
            search_request.end,
            current,
            pinned=search_request.pin is not None,
        )
        buckets: list[dict[str, Any]] = [
            {
                "start": rfc3339(b.start),
                "rows": b.rows,
                "levels": {level.value: count for level, count in b.levels.items()},
            }
            for b in found.buckets
        ]
        return HistogramAnswer.model_validate(
            {
                **basis,
                "width_s": found.width_s,
                "rows": found.rows,
                "rows_counted_from_metadata": found.kept_rows,
                "buckets": buckets,
            }
        )

    return await answered(request, services, search_request.table, ask)


@router.post("/histogram", response_model=HistogramAnswer, responses=LINES)
async def post_histogram(
    request: Request, body: HistogramBody, services: ServicesOf, caller: CallerOf
) -> HistogramAnswer | StreamingResponse:
    """Matching rows over time; buckets without rows are left out."""
    return await _histogram(request, body, services, caller)


@router.get("/histogram", response_model=HistogramAnswer, responses=LINES)
async def get_histogram(
    request: Request, body: Annotated[HistogramBody, Query()], services: ServicesOf, caller: CallerOf
) -> HistogramAnswer | StreamingResponse:
    """Matching rows over time, as a link."""
    return await _histogram(request, body, services, caller)


@router.get("/row")
async def get_row(
    request: Request, where: Annotated[RowQuery, Query()], services: ServicesOf, caller: CallerOf
) -> RowAnswer:
    """One row by its Kafka coordinates. Its time finds the file it is in."""
    table = table_id(where.tenant, where.stream)
    at = parse_instant(where.timestamp, services.clock.now(), what="timestamp")
    coordinates = Cursor(epoch_us(at), where.topic_id, where.partition, where.offset, where.index)

    def ask(current: Run) -> RowAnswer:
        row = services.for_tenant(
            caller, table.tenant, lambda: services.searcher(caller).row(table, coordinates, current)
        )
        if row is None:
            raise NotFoundError(
                "there is no row with these coordinates at this time: retention or erasure removed it, a "
                "later change replaced it, or the link is wrong"
            )
        told_of(request).rows = 1
        return RowAnswer.model_validate(to_json(row))

    return await run(
        request,
        ask,
        timeout_s=services.settings.search.timeout_s,
        tenant=table.tenant,
        counted_as=table.stream,
    )
