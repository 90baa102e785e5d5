"""How long rows are kept: of a stream, and of all streams of a tenant that say nothing themselves."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.holds import TableHolds
from lake.retention import PROPERTY, Level, spell_retention
from lake.tenant import TenantId
from query.access.access import Caller
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.api.wire import EffortAnswer, effort_answer
from query.model.cancellation import Run
from query.model.instant import rfc3339
from query.model.table_view import TableView, load_view, streams, table_id
from query.search.file_planner import Effort
from query.tables.retention import (
    check_has_hours,
    foretell,
    keep_rows,
    keep_rows_of_tenant,
    retention_in_force,
    set_by,
    wanted,
)

router = APIRouter(prefix="/v1", tags=["retention"])
Text = Annotated[
    str | None, Field(max_length=40, description="like 30d or 720h; forever; null: says nothing itself")
]


class RetentionAnswer(BaseModel):
    """What a retention does. `goes` is what maintenance takes away at its next daily round, and nothing was
    taken by asking."""

    retention: Annotated[
        str | None, Field(description="as the stream says it; null: its tenant does, or the lake")
    ]
    in_force: Annotated[str, Field(description="what holds: like 30d, or forever")]
    said_by: Annotated[
        Level | None, Field(description="who says what holds; null: nobody says anything, so for ever")
    ]
    set_by: Annotated[str | None, Field(description="who set the stream's own, and when")]
    goes: EffortAnswer
    stays: EffortAnswer
    held: Annotated[
        EffortAnswer, Field(description="what is past it and stays all the same, because of `holds`")
    ]
    holds: Annotated[list[str], Field(description="legal holds on the stream, one a sentence")]
    oldest_row: str | None
    first_kept: Annotated[str | None, Field(description="rows from this time on stay")]


class StreamRetentionBody(BaseModel):
    """How long rows of a stream are kept; `dry_run` says what that would take, and changes nothing."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    stream: Annotated[str, Field(max_length=400)]
    retention: Text
    dry_run: bool = False


class TenantRetentionBody(BaseModel):
    """How long rows are kept of the tenant's streams that say nothing themselves; `dry_run` says what that
    would take, and changes nothing."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    retention: Text
    dry_run: bool = False


class StreamOfTenant(BaseModel):
    stream: str
    in_force: str
    said_by: Level | None
    goes: EffortAnswer
    stays: EffortAnswer
    held: EffortAnswer
    holds: list[str]


class TenantRetentionAnswer(BaseModel):
    """What holds for each stream of a tenant, and what that takes at the next daily round. Streams that
    follow a database have no retention, and are not here."""

    retention: Annotated[str | None, Field(description="as the tenant says it; null: the lake does")]
    set_by: Annotated[str | None, Field(description="who set that, and when")]
    of_lake: Annotated[str | None, Field(description="what the lake says; null: nothing")]
    goes: EffortAnswer
    stays: EffortAnswer
    held: Annotated[EffortAnswer, Field(description="what is past it and stays because of legal holds")]
    streams: list[StreamOfTenant]


@router.post("/streams/retention")
async def set_retention(
    request: Request, body: StreamRetentionBody, services: ServicesOf, caller: CallerOf
) -> RetentionAnswer:
    """Sets how long rows are kept. Whole hours (UTC) past it go with maintenance's next daily round, not
    before."""
    table = table_id(body.tenant, body.stream)
    if body.retention is not None:
        wanted(body.retention)

    def ask(_: Run) -> RetentionAnswer:
        (services.access.check_tenant if body.dry_run else services.access.check_writer)(caller, table.tenant)
        view = load_view(caller.catalog, table)
        if body.retention is not None:
            check_has_hours(view)
        if body.dry_run:
            return retention_answer(services, caller, view, said=(body.retention,))
        keep_rows(caller.catalog, view, body.retention, caller.who.key_id, services.clock.now())
        return retention_answer(services, caller, load_view(caller.catalog, table))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=table.tenant)


@router.get("/tenants/retention")
async def get_tenant_retention(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Annotated[str, Query(max_length=400)]
) -> TenantRetentionAnswer:
    """What tenant and lake say, and what holds for each stream."""
    whose = table_id(tenant, "logs").tenant

    def ask(current: Run) -> TenantRetentionAnswer:
        services.access.check_tenant(caller, whose)
        return _of_tenant(services, caller, whose, current)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("/tenants/retention")
async def set_tenant_retention(
    request: Request, body: TenantRetentionBody, services: ServicesOf, caller: CallerOf
) -> TenantRetentionAnswer:
    """Sets how long rows are kept of all streams of a tenant that say nothing themselves, those that are yet
    to come among them. Whole hours (UTC) past it go with maintenance's next daily round, not before."""
    whose = table_id(body.tenant, "logs").tenant
    if body.retention is not None:
        wanted(body.retention)

    def ask(current: Run) -> TenantRetentionAnswer:
        (services.access.check_tenant if body.dry_run else services.access.check_writer)(caller, whose)
        if body.dry_run:
            return _of_tenant(services, caller, whose, current, said=(body.retention,))
        keep_rows_of_tenant(caller.catalog, whose, body.retention, caller.who.key_id, services.clock.now())
        return _of_tenant(services, caller, whose, current)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


def retention_answer(
    services: Services, caller: Caller, view: TableView, *, said: tuple[str | None] | None = None
) -> RetentionAnswer:
    """Of a stream. `said`: as if it said that."""
    properties = {**view.properties, PROPERTY: said[0] or ""} if said else view.properties
    of_namespace = caller.catalog.namespace_properties(view.name.namespace)
    of_tenant, holds = of_namespace.get(PROPERTY), TableHolds.of(view.name.name, of_namespace)
    in_force = retention_in_force(properties, of_tenant, caller.catalog.config_now().get(PROPERTY))
    told = foretell(services.index.files(view), in_force.hours, services.clock.now(), holds)
    return RetentionAnswer(
        retention=view.properties.get(PROPERTY) or None,
        in_force=spell_retention(in_force.hours),
        said_by=in_force.level,
        set_by=set_by(view.properties),
        goes=effort_answer(told.gone),
        stays=effort_answer(told.kept),
        held=effort_answer(told.held),
        holds=[str(hold) for hold in holds.holds],
        oldest_row=_text(told.oldest),
        first_kept=_text(told.first_kept),
    )


def _of_tenant(
    services: Services,
    caller: Caller,
    tenant: TenantId,
    current: Run,
    *,
    said: tuple[str | None] | None = None,
) -> TenantRetentionAnswer:
    """`said`: as if the tenant said that."""
    properties = caller.catalog.namespace_properties(tenant.namespace)
    of_lake = caller.catalog.config_now().get(PROPERTY)
    of_tenant = said[0] if said else properties.get(PROPERTY)
    goes, stays, held, told = Effort(), Effort(), Effort(), list[StreamOfTenant]()
    for view in streams(caller.catalog, tenant):
        current.check()
        if view.is_keyed:
            continue
        in_force = retention_in_force(view.properties, of_tenant, of_lake)
        holds = TableHolds.of(view.name.name, properties)
        foretold = foretell(services.index.files(view), in_force.hours, services.clock.now(), holds)
        goes, stays, held = goes + foretold.gone, stays + foretold.kept, held + foretold.held
        told.append(
            StreamOfTenant(
                stream=view.id.stream,
                in_force=spell_retention(in_force.hours),
                said_by=in_force.level,
                goes=effort_answer(foretold.gone),
                stays=effort_answer(foretold.kept),
                held=effort_answer(foretold.held),
                holds=[str(hold) for hold in holds.holds],
            )
        )
    return TenantRetentionAnswer(
        retention=properties.get(PROPERTY) or None,
        set_by=set_by(properties),
        of_lake=of_lake or None,
        goes=effort_answer(goes),
        stays=effort_answer(stays),
        held=effort_answer(held),
        streams=told,
    )


def _text(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment else None
