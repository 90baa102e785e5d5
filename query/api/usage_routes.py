"""What tenants used: searches by day and stream, and what is stored of each stream now."""

import csv
import io
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from lake.tenant import SYSTEM_TENANT, TenantId, from_identifier
from query.access.access import Caller
from query.api.services import CallerOf, Services, ServicesOf, run
from query.export.export_formats import text_cell
from query.model.cancellation import Run
from query.model.problem import refuse
from query.model.table_view import TableView, every_stream, tenants

router = APIRouter(prefix="/v1/usage", tags=["limits"])
DAYS_DEFAULT = 30


class SearchesAnswer(BaseModel):
    """Searches of one stream on one day."""

    day: Annotated[str, Field(description="UTC")]
    tenant: str
    stream: Annotated[str, Field(description="empty: statements in SQL")]
    searches: int
    seconds: float
    bytes: Annotated[int, Field(description="of files that were read")]


class StoredAnswer(BaseModel):
    """What is stored of one stream now."""

    tenant: str
    stream: str
    rows: int
    bytes: int


class UsageAnswer(BaseModel):
    searches: list[SearchesAnswer]
    stored: list[StoredAnswer]


@router.get("", response_model=UsageAnswer, responses={200: {"content": {"text/csv": {}}}})
async def get_usage(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: Annotated[
        str, Query(max_length=400, description="empty: the tenant that the key is bound to, else all")
    ] = "",
    first: Annotated[str, Query(alias="from", max_length=10, description="first day, like 2026-11-01")] = "",
    last: Annotated[str, Query(alias="to", max_length=10, description="last day; empty: today")] = "",
    stored: Annotated[
        bool | None,
        Query(description="tell what is stored, too; empty: of one tenant, as of all it loads each table"),
    ] = None,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
) -> UsageAnswer | Response:
    """By day (UTC), tenant and stream, of the last 30 days where no first day is given."""
    until = _day(last, "to") if last else services.clock.now().date()
    since = _day(first, "from") if first else until - timedelta(days=DAYS_DEFAULT - 1)

    def ask(current: Run) -> UsageAnswer:
        whose = services.whose(caller, tenant or from_identifier(caller.who.namespace or "") or "")
        is_told = whose is not None if stored is None else stored
        hidden = "" if services.access.is_administrator(caller) else SYSTEM_TENANT.name
        searches = _searches(services, whose, since, until)
        return UsageAnswer(
            searches=[each for each in searches if each.tenant != hidden],
            stored=list(_stored(caller, whose, hidden, current)) if is_told else [],
        )

    told = await run(request, ask, timeout_s=services.settings.sql.timeout_s)
    return told if form == "json" else Response(_csv(told), media_type="text/csv; charset=utf-8")


def _day(text: str, what: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise refuse(f"{what}: {text!r} is no day; write one like 2026-11-01") from None


def _searches(
    services: Services, whose: TenantId | None, first: date, last: date
) -> Iterator[SearchesAnswer]:
    for each in services.usage.by_stream(None if whose is None else whose.namespace, first, last):
        yield SearchesAnswer(
            day=each.day,
            tenant=from_identifier(each.namespace) or each.namespace,
            stream=each.stream,
            searches=each.used.searches,
            seconds=round(each.used.seconds, 3),
            bytes=each.used.size_bytes,
        )


def _stored(caller: Caller, whose: TenantId | None, hidden: str, current: Run) -> Iterator[StoredAnswer]:
    reached = tenants(caller.catalog) if whose is None else (whose,)
    for tenant in (each for each in reached if each.name != hidden):
        for view in every_stream(caller.catalog, tenant):
            current.check()
            if isinstance(view, TableView):
                totals = view.totals
                yield StoredAnswer(
                    tenant=tenant.name,
                    stream=view.id.stream,
                    rows=totals.live_rows,
                    bytes=totals.size_bytes,
                )


def _csv(told: UsageAnswer) -> str:
    """A row for each stream and day, and one for what is stored of each stream, whose day is empty. Cells
    that a spreadsheet would calculate are marked as text: tenants choose their names."""
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(("day", "tenant", "stream", "searches", "search_seconds", "search_bytes", "rows", "bytes"))
    for found in told.searches:
        names = text_cell(found.tenant), text_cell(found.stream)
        rows.writerow((found.day, *names, found.searches, found.seconds, found.bytes, "", ""))
    for stream in told.stored:
        names = text_cell(stream.tenant), text_cell(stream.stream)
        rows.writerow(("", *names, "", "", "", stream.rows, stream.bytes))
    return written.getvalue()
