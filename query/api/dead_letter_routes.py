"""Dead letters and parked streams: what waits outside the tables, and sending it again."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.extras_client import ExtrasClient
from lake.tenant import SYSTEM_TENANT, from_identifier
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.instant import parse_instant, rfc3339
from query.model.problem import refuse
from query.model.table_view import table_id

router = APIRouter(prefix="/v1", tags=["dead letters"])
TenantName = Annotated[
    str,
    Query(max_length=400, description="whose; empty: everybody's, for keys that are not bound to a tenant"),
]
LetterId = Annotated[
    str, Path(pattern=r"^\d{1,10}:\d{1,19}$", description="as the list gives it, partition:offset")
]
IDS_MAX = 1_000
PAGE_MAX = 1_000


class DeadLetterAnswer(BaseModel):
    """A message that could not be stored, and where it was read."""

    model_config = ConfigDict(extra="allow")

    id: str
    died: str
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    index: int | None
    timestamp: str
    table: str | None
    attempt: int
    bytes: int | None
    begins: Annotated[str | None, Field(description="the beginning of its value as text")]


class DeadLettersAnswer(BaseModel):
    dead_letters: list[DeadLetterAnswer]
    next: Annotated[str | None, Field(description="`before` of the next page; null: this was the last")]


class ReplayBody(BaseModel):
    """Letters by id, or all that fit the filter."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[
        str,
        Field(
            max_length=400,
            description=("whose dead letters; empty: everybody's, for keys that are not bound"),
        ),
    ] = ""
    ids: Annotated[
        list[Annotated[str, Field(pattern=r"^\d{1,10}:\d{1,19}$")]], Field(max_length=IDS_MAX)
    ] = []
    reason: Annotated[str, Field(max_length=100, description="only dead letters of this reason")] = ""
    topic: Annotated[str, Field(max_length=400, description="only dead letters from this topic")] = ""
    since: Annotated[str, Field(max_length=60)] = ""
    until: Annotated[str, Field(max_length=60)] = ""
    all: Annotated[bool, Field(description="has to be said where neither ids nor a filter is given")] = False
    to_tenant: Annotated[str, Field(max_length=400, description="where to, if not where the rules say")] = ""
    to_stream: Annotated[str, Field(max_length=400)] = ""
    dry_run: Annotated[bool, Field(description="only say what would happen")] = False
    look: Annotated[
        bool, Field(description="look whether they are rows of their tables already, and leave those alone")
    ] = True


class ReplayAnswer(BaseModel):
    dry_run: bool
    replayed: int
    tables: dict[str, int]
    left: Annotated[
        dict[str, int], Field(description="how many were left alone, by the sentence that says why")
    ]


class ParkedAnswer(BaseModel):
    """A stream whose records wait outside its table."""

    tenant: str
    stream: str
    table: str
    reason: str
    since: str | None


class ParkedListAnswer(BaseModel):
    parked: list[ParkedAnswer]


@router.get("/dead-letters")
async def list_dead_letters(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantName = "",
    reason: Annotated[str, Query(max_length=100)] = "",
    topic: Annotated[str, Query(max_length=400)] = "",
    since: Annotated[str, Query(max_length=60)] = "",
    until: Annotated[str, Query(max_length=60)] = "",
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    before: Annotated[str, Query(max_length=2_000, description="`next` of the page before")] = "",
) -> DeadLettersAnswer:
    """Dead letters, newest first, each with the beginning of its value."""
    wanted = {
        "reason": reason or None,
        "topic": topic or None,
        "since": _time(services, since, "since"),
        "until": _time(services, until, "until"),
    }

    def ask(_: Run) -> DeadLettersAnswer:
        whose = services.whose(caller, tenant)
        page = services.ingest.letters(whose, limit=limit, before=before or None, **wanted)
        if whose is None and not services.access.is_administrator(caller):
            page = {**page, "dead_letters": [each for each in page["dead_letters"] if not _is_system(each)]}
        return DeadLettersAnswer.model_validate(page)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.get("/dead-letters/{letter_id}")
async def show_dead_letter(
    request: Request, letter_id: LetterId, services: ServicesOf, caller: CallerOf, tenant: TenantName = ""
) -> dict[str, Any]:
    """One dead letter with everything it had: key, headers, value, as text and in base64."""

    def ask(_: Run) -> dict[str, Any]:
        letter = services.ingest.letter(letter_id, services.whose(caller, tenant))
        if _is_system(letter):
            services.access.check_administrator(caller)
        return letter

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.post("/dead-letters/replay")
async def replay_dead_letters(
    request: Request, body: ReplayBody, services: ServicesOf, caller: CallerOf
) -> ReplayAnswer:
    """Sends dead letters again, each once for each of its attempts, and none that is a row already; answers
    when all are acknowledged. They arrive as rows with the next flush."""
    times = {name: _time(services, getattr(body, name), name) for name in ("since", "until")}
    filters = {
        name: value for name, value in {"reason": body.reason, "topic": body.topic, **times}.items() if value
    }
    if not body.ids and not filters and not body.all:
        raise refuse("say which dead letters: ids, a filter, or all=true")

    def ask(current: Run) -> ReplayAnswer:
        whose = services.whose(caller, body.tenant)
        target = (
            table_id(body.to_tenant or body.tenant, body.to_stream or "logs").tenant
            if body.to_tenant or body.tenant
            else None
        )
        for each in (whose, target):
            if each is not None:
                services.access.check_writer(caller, each)
        if whose is not None:
            for letter_id in body.ids:
                current.check()
                services.ingest.letter(letter_id, whose)
        tenant = {"tenant": whose.name} if whose else {}
        to = {"to_tenant": body.to_tenant or None, "to_stream": body.to_stream or None}
        how = {"all": body.all, "dry_run": body.dry_run, "look": body.look}
        sent = services.ingest.replay({"ids": body.ids, "filter": {**filters, **tenant}, **how, **to})
        return ReplayAnswer.model_validate(sent)

    return await run(request, ask, timeout_s=services.settings.sql.timeout_s)


@router.get("/parked")
async def list_parked(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: TenantName = ""
) -> ParkedListAnswer:
    """Streams whose records wait outside their tables, and why."""

    def ask(_: Run) -> ParkedListAnswer:
        whose = services.whose(caller, tenant, whole=False)
        return ParkedListAnswer(
            parked=[
                each
                for each in _parked(services)
                if whose is None or (each.tenant == whose.name and caller.who.knows(each.stream))
            ]
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


def _is_system(letter: Mapping[str, Any]) -> bool:
    """Whether a dead letter was on its way to Firn's own tenant."""
    return str(letter.get("table")).startswith(f"{SYSTEM_TENANT.namespace}.")


def _time(services: Services, text: str, what: str) -> str | None:
    return rfc3339(parse_instant(text, services.clock.now(), what=what)) if text else None


def _parked(services: Services) -> list[ParkedAnswer]:
    found = []
    for entry in ExtrasClient(services.own_catalog).parked():
        namespace, table = entry.table.levels[0], entry.table.name
        tenant, stream = from_identifier(namespace), from_identifier(table)
        if tenant is not None and stream is not None:
            since = parse_instant(str(entry.changed_ms), services.clock.now(), what="since")
            found.append(
                ParkedAnswer(
                    tenant=tenant,
                    stream=stream,
                    table=f"{namespace}.{table}",
                    reason=entry.reason,
                    since=rfc3339(since),
                )
            )
    return found
