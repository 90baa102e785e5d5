"""What tenants used: what came in and searches by day and stream, and what is stored of each stream now."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from lake.tenant import SYSTEM_TENANT, TenantId, from_identifier
from query.access.access import Caller
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.export.export_formats import text_cell
from query.model.cancellation import Run
from query.model.problem import refuse
from query.model.table_usage import Came, came_into
from query.model.table_view import TableView, every_stream, tenants

router = APIRouter(prefix="/v1/usage", tags=["limits"])
DAYS_DEFAULT = 30
FIGURES = (
    "records",
    "bytes_in",
    "bytes_stored",
    "searches",
    "search_seconds",
    "search_bytes",
    "rows",
)


class SearchesAnswer(BaseModel):
    """Searches of one stream on one day."""

    day: Annotated[str, Field(description="UTC")]
    tenant: str
    stream: Annotated[str, Field(description="empty: statements in SQL")]
    searches: int
    seconds: float
    bytes: Annotated[int, Field(description="of files that were read")]


class IngestedAnswer(BaseModel):
    """What came into one stream on one day."""

    day: Annotated[str, Field(description="UTC, on which it was committed")]
    tenant: str
    stream: str
    records: Annotated[int, Field(description="rows that were committed")]
    bytes: Annotated[int, Field(description="of the values of the messages that came for them")]
    bytes_stored: Annotated[
        int | None, Field(description="of files, at the last look on the day; null: nobody looked")
    ]


class StoredAnswer(BaseModel):
    """What is stored of one stream now."""

    tenant: str
    stream: str
    rows: int
    bytes: int


class UsageAnswer(BaseModel):
    first: Annotated[str, Field(serialization_alias="from", description="first day that was asked about")]
    last: Annotated[str, Field(serialization_alias="to", description="last one")]
    searches: list[SearchesAnswer]
    ingested: list[IngestedAnswer]
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
    """By day (UTC), tenant and stream, of the last 30 days where no first day is given. What came in is as of
    the last look at the tables (`usage.interval_s`); of tables that are loaded for `stored` as of now."""
    until = _day(last, "to") if last else services.clock.now().date()
    since = _day(first, "from") if first else until - timedelta(days=DAYS_DEFAULT - 1)

    def ask(current: Run) -> UsageAnswer:
        whose = services.whose(
            caller, tenant or from_identifier(caller.who.namespace or "") or "", whole=False
        )
        is_told = whose is not None if stored is None else stored
        hidden = "" if services.access.is_administrator(caller) else SYSTEM_TENANT.name

        def is_told_of(each: SearchesAnswer | IngestedAnswer) -> bool:
            return each.tenant != hidden and caller.who.knows(each.stream)

        searches = _searches(services, whose, since, until)
        views = list(_views(caller, whose, hidden, current)) if is_told else []
        came = _came(services, whose, views, since, until)
        return UsageAnswer(
            first=since.isoformat(),
            last=until.isoformat(),
            searches=[each for each in searches if is_told_of(each)],
            ingested=[each for each in map(_ingested, came) if is_told_of(each)],
            stored=list(map(_stored, views)),
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


def _came(
    services: Services, whose: TenantId | None, views: Iterable[TableView], first: date, last: date
) -> list[Came]:
    """What came in by day: as it was when the tables were looked at last, and as those say that were loaded
    now."""
    namespace = None if whose is None else whose.namespace
    found = {
        (each.day, each.namespace, each.stream): each
        for each in services.table_usage.by_stream(namespace, first, last)
    }
    for view in views:
        for each in came_into(view, services.clock.now().date()):
            if first.isoformat() <= each.day <= last.isoformat():
                key = each.day, each.namespace, each.stream
                before = found.get(key)
                kept = before.bytes_stored if before is not None else None
                found[key] = each if each.bytes_stored is not None else replace(each, bytes_stored=kept)
    return [found[key] for key in sorted(found)]


def _ingested(came: Came) -> IngestedAnswer:
    return IngestedAnswer(
        day=came.day,
        tenant=from_identifier(came.namespace) or came.namespace,
        stream=came.stream,
        records=came.records,
        bytes=came.bytes_in,
        bytes_stored=came.bytes_stored,
    )


def _stored(view: TableView) -> StoredAnswer:
    totals = view.totals
    return StoredAnswer(
        tenant=view.id.tenant.name, stream=view.id.stream, rows=totals.live_rows, bytes=totals.size_bytes
    )


def _views(caller: Caller, whose: TenantId | None, hidden: str, current: Run) -> Iterator[TableView]:
    reached = tenants(caller.catalog) if whose is None else (whose,)
    for tenant in (each for each in reached if each.name != hidden):
        for view in every_stream(caller.catalog, tenant):
            current.check()
            if isinstance(view, TableView):
                yield view


def _csv(told: UsageAnswer) -> str:
    """A row for each stream and day, and one for what is stored of each stream, whose day is empty. Cells
    that a spreadsheet would calculate are marked as text: tenants choose their names."""
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(("day", "tenant", "stream", *FIGURES))
    by_day: dict[tuple[str, str, str], dict[str, object]] = {}
    for came in told.ingested:
        by_day.setdefault((came.day, came.tenant, came.stream), {}).update(
            records=came.records, bytes_in=came.bytes, bytes_stored=came.bytes_stored
        )
    for found in told.searches:
        by_day.setdefault((found.day, found.tenant, found.stream), {}).update(
            searches=found.searches, search_seconds=found.seconds, search_bytes=found.bytes
        )
    for stream in told.stored:
        by_day["", stream.tenant, stream.stream] = {"rows": stream.rows, "bytes_stored": stream.bytes}
    for (day, tenant, name), figures in by_day.items():
        cells = [figures.get(each) for each in FIGURES]
        rows.writerow(
            (day, text_cell(tenant), text_cell(name), *("" if each is None else each for each in cells))
        )
    return written.getvalue()
