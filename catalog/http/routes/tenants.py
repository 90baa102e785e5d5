"""Tenants over HTTP: namespaces that a tenant's name maps to."""

from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import text

from catalog.access.verbs import Need
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
    RawRoute,
    describe,
    json_response,
    next_page,
    page_of,
    services_of,
)
from catalog.store import namespaces
from lake.tenant import from_identifier

router = APIRouter(route_class=RawRoute, tags=["firn"])


@router.get(
    "/firn/v1/tenants", **describe("List the tenants", query=("pageToken", "pageSize"), needs=Need.SERVICE)
)
async def list_tenants(request: Request) -> Response:
    """Name, namespace and number of tables, in the order of the namespaces."""
    after, limit = page_of(request)
    size = limit or PAGE_SIZE_DEFAULT
    found, token = await services_of(request).read(lambda connection: tenants_page(connection, after, size))
    return json_response({"tenants": found, "next-page-token": token})


def tenants_page(connection: Any, after: str, size: int) -> tuple[list[dict[str, Any]], str | None]:
    """One page of tenants, and the token of the next."""
    paths = namespaces.children(connection, "", after=after, limit=size)
    counted = text(
        "SELECT namespace, COUNT(*) FROM tables WHERE kind = 'table' AND namespace >= :first AND namespace "
        "<= :last GROUP BY namespace"
    )
    counts = (
        {row[0]: row[1] for row in connection.execute(counted, {"first": paths[0], "last": paths[-1]})}
        if paths
        else {}
    )
    names = [(from_identifier(path), path) for path in paths]
    return [
        {"tenant": name, "namespace": path, "tables": counts.get(path, 0)}
        for name, path in names
        if name is not None
    ], next_page(paths, size)
