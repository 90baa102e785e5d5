"""Legal holds: rows that nobody takes away while they are in force."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import NotFoundError
from lake.extras_client import ExtrasClient
from lake.holds import Hold
from query.api.audited import told_of
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.api.wire import TIME_HELP
from query.model.cancellation import Run
from query.model.instant import parse_instant, rfc3339
from query.model.problem import refuse
from query.model.table_view import table_id
from query.tables.holds import holds_of

router = APIRouter(prefix="/v1/holds", tags=["retention"])
TenantName = Annotated[str, Query(max_length=400)]


class HoldBody(BaseModel):
    """What may not go, and why."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    stream: Annotated[
        str | None, Field(max_length=400, description="null: all streams of the tenant, those to come too")
    ] = None
    from_: Annotated[
        str, Field(alias="from", max_length=60, description=TIME_HELP + "; empty: from the beginning")
    ] = ""
    to: Annotated[str, Field(max_length=60, description=TIME_HELP + "; empty: to the end")] = ""
    reason: Annotated[str, Field(min_length=1, max_length=1_000, description="for which case it is")]


class HoldAnswer(BaseModel):
    """A legal hold. `to` itself is not held; null: open."""

    id: str
    stream: Annotated[str | None, Field(description="null: all streams of the tenant")]
    from_: Annotated[str | None, Field(serialization_alias="from")]
    to: str | None
    reason: str
    set_by: Annotated[str, Field(description="id of the key, or of the person, that set it")]
    set_at: str


class HoldsAnswer(BaseModel):
    holds: list[HoldAnswer]


@router.get("")
async def list_holds(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: TenantName
) -> HoldsAnswer:
    """The legal holds of a tenant."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> HoldsAnswer:
        services.access.check_tenant(caller, whose)
        return HoldsAnswer(holds=[_answer(hold) for hold in holds_of(caller.catalog, whose)])

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("")
async def set_hold(request: Request, body: HoldBody, services: ServicesOf, caller: CallerOf) -> HoldAnswer:
    """Sets a legal hold: rows of that event time are not taken by retention and not erased, and their tables
    neither deleted nor purged, until it is lifted. Needs a key that is bound to no tenant, or
    the role operator."""
    whose = table_id(body.tenant, body.stream or "logs").tenant
    now = services.clock.now()
    start, end = (
        parse_instant(text, now, what=what) if text else None
        for text, what in ((body.from_, "from"), (body.to, "to"))
    )

    def ask(_: Run) -> HoldAnswer:
        services.access.check_holder(caller, whose)
        try:
            made = ExtrasClient(caller.catalog).set_hold(
                whose.namespace, stream=body.stream, start=start, end=end, reason=body.reason
            )
        except NotFoundError as error:
            raise _no_holds(error, caller.catalog.has_extras) from error
        told_of(request).made(made.id)
        return _answer(made)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.delete("/{hold_id}")
async def lift_hold(
    request: Request, hold_id: str, services: ServicesOf, caller: CallerOf, tenant: TenantName
) -> HoldAnswer:
    """Lifts a legal hold; the answer tells what it was. What was held goes like anything else from then on.
    Needs a key that is bound to no tenant, or
    the role operator."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> HoldAnswer:
        services.access.check_holder(caller, whose)
        return _answer(ExtrasClient(caller.catalog).lift_hold(whose.namespace, hold_id))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


def _no_holds(error: NotFoundError, has_extras: bool) -> Exception:
    """There is no such tenant, or no such list."""
    return error if has_extras else refuse("this catalog keeps no legal holds; Firn's own does")


def _answer(hold: Hold) -> HoldAnswer:
    return HoldAnswer(
        id=hold.id,
        stream=hold.stream,
        from_=_text(hold.start),
        to=_text(hold.end),
        reason=hold.reason,
        set_by=hold.set_by,
        set_at=hold.set_at,
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
