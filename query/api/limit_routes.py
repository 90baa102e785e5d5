"""Limits of tenants: what they may use, and who says so."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import NotFoundError
from lake.limits import MEANING, Limit, limits_of, spell_limit
from lake.retention import Level
from query.access.access import Caller
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.table_view import table_id

router = APIRouter(prefix="/v1/tenants/limits", tags=["limits"])


class LimitsBody(BaseModel):
    """What a tenant may use from now on."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    limits: Annotated[
        dict[Limit, Annotated[int, Field(gt=0, lt=10**15)] | Literal["none"] | None],
        Field(
            description="by name; none: without a limit; null: the tenant says nothing, the lake's counts",
            examples=[{"search_s_per_day": 3_600, "exports": "none"}],
        ),
    ]


class LimitAnswer(BaseModel):
    limit: Limit
    most: Annotated[int | None, Field(description="null: without a limit, or as the room's settings say")]
    said_by: Annotated[Level | None, Field(description="null: neither the tenant nor the lake says anything")]
    meaning: str


class LimitsAnswer(BaseModel):
    limits: list[LimitAnswer]


@router.get("")
async def get_limits(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Annotated[str, Query(max_length=400)]
) -> LimitsAnswer:
    """What a tenant may use."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> LimitsAnswer:
        services.access.check_tenant(caller, whose)
        return _answer(caller, whose.namespace)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("")
async def set_limits(
    request: Request, body: LimitsBody, services: ServicesOf, caller: CallerOf
) -> LimitsAnswer:
    """Changes what a tenant may use; limits that are not named stay. It is in force within a minute. Needs a
    key that is bound to no tenant; the tenant need not be there yet."""
    whose = table_id(body.tenant, "logs").tenant
    removals = [limit.property for limit, most in body.limits.items() if most is None]
    updates = {
        limit.property: spell_limit(None if most == "none" else most)
        for limit, most in body.limits.items()
        if most is not None
    }

    def ask(_: Run) -> LimitsAnswer:
        services.access.check_limiter(caller, whose)
        _change(caller, whose.namespace, updates, removals)
        services.limits.forget()
        return _answer(caller, whose.namespace)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


def _change(caller: Caller, namespace: str, updates: Mapping[str, str], removals: list[str]) -> None:
    try:
        caller.catalog.update_namespace(namespace, updates, removals)
    except NotFoundError:
        caller.catalog.create_namespace(namespace, {})
        caller.catalog.update_namespace(namespace, updates, removals)


def _answer(caller: Caller, namespace: str) -> LimitsAnswer:
    try:
        properties = caller.catalog.namespace_properties(namespace)
    except NotFoundError:  # a tenant that has sent nothing yet
        properties = {}
    found = limits_of(namespace, properties, caller.catalog.config_now())
    told = []
    for limit in Limit:
        bound = found.get(limit)
        most, level = (bound.most, bound.level) if bound is not None else (None, None)
        told.append(LimitAnswer(limit=limit, most=most, said_by=level, meaning=MEANING[limit]))
    return LimitsAnswer(limits=told)
