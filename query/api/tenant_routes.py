"""A tenant's end: what is left of it once its streams are deleted."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from lake.errors import ConflictError
from lake.tenant import TenantId, from_identifier
from query.access.access import Caller
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.table_view import table_id
from query.tables.dropped_streams import dropped_streams

router = APIRouter(prefix="/v1/tenants", tags=["tenants"])
NAMED_MAX = 10


class TenantRemovedAnswer(BaseModel):
    """A tenant that is gone, with its retention and its limits."""

    removed: str
    deleted_streams: Annotated[
        list[str],
        Field(
            description=(
                "its deleted streams whose files are still there; they come back only where the tenant does"
            )
        ),
    ]


@router.delete("")
async def remove_tenant(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Annotated[str, Query(max_length=400)]
) -> TenantRemovedAnswer:
    """Removes a tenant that has no streams any more, with its retention, its limits and its boards. Refused
    while it has streams or legal holds. A record of it that comes later makes it anew."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> TenantRemovedAnswer:
        services.access.check_writer(caller, whose)
        services.access.check_whole(caller, whose)
        _drop(caller, whose)
        services.boards.drop_all(whose)
        services.limits.forget()
        left = dropped_streams(services.own_catalog, whose)
        return TenantRemovedAnswer(removed=whose.name, deleted_streams=sorted({each.stream for each in left}))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


def _drop(caller: Caller, tenant: TenantId) -> None:
    """Raises ConflictError that names what is in the way, RefusedError, NotFoundError."""
    try:
        caller.catalog.drop_namespace(tenant.namespace)
    except ConflictError as error:
        has = [from_identifier(each.name) or each.name for each in caller.catalog.tables(tenant.namespace)]
        if not has:  # views, or namespaces below it
            raise
        named = ", ".join(sorted(has)[:NAMED_MAX]) + (", ..." if len(has) > NAMED_MAX else "")
        raise ConflictError(
            f"tenant {tenant.name!r} is not removed: it has {len(has)} streams ({named}); delete them first"
        ) from error
