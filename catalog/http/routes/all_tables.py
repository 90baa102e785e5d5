"""`GET /firn/v1/tables`: the tables of all namespaces in one list. By the protocol alone whoever goes through
a lake asks once for each tenant."""

from fastapi import APIRouter, Request, Response

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
from catalog.model.identifier import levels
from catalog.store import tables

router = APIRouter(route_class=RawRoute, tags=["firn"])


@router.get(
    "/firn/v1/tables",
    **describe("List the tables of all namespaces", query=("pageToken", "pageSize"), needs=Need.SERVICE),
)
async def list_tables(request: Request) -> Response:
    """In the order of their names; no views, no dropped tables."""
    after, limit = page_of(request)
    size = limit or PAGE_SIZE_DEFAULT
    found = await services_of(request).read(
        lambda connection: tables.list_all(connection, after=after, limit=size)
    )
    names = [{"namespace": levels(namespace), "name": name} for _, namespace, name in found]
    following = next_page([key for key, _, _ in found], size)
    return json_response({"identifiers": names, "next-page-token": following})
