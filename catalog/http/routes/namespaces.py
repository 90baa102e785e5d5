"""Namespaces over HTTP (Iceberg REST specification, `/v1/namespaces`)."""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.access import Principal, is_within
from catalog.access.locations import check_namespace_properties
from catalog.access.policies import known_properties
from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.commit.table_changes import namespace_location
from catalog.http.routes.request_schemas import CREATE_NAMESPACE, UPDATE_NAMESPACE
from catalog.http.wire import (
    RawRoute,
    describe,
    json_reply,
    json_response,
    next_page,
    page_of,
    parse_object,
    principal_of,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import no_such_namespace
from catalog.model.identifier import SEPARATOR, dotted, levels, namespace_from_path, parse_namespace
from catalog.model.json_fields import properties, strings
from catalog.store import namespaces
from catalog.store.holds import check_droppable

router = APIRouter(route_class=RawRoute, tags=["namespaces"])


@router.get(
    "/v1/namespaces",
    **describe("List the namespaces directly below a parent", query=("parent", "pageToken", "pageSize")),
)
async def list_namespaces(request: Request) -> Response:
    """Children of `parent`, of the root without one."""
    raw = request.query_params.get("parent")
    parent = parse_namespace(raw.split("\x1f")) if raw else ""
    after, limit = page_of(request)
    by = principal_of(request)
    if by.reached is not None and not (parent and by.streams is None and by.root_of(parent)):
        return json_response({"namespaces": await _paths_to(request, by, parent), "next-page-token": None})
    found = await services_of(request).read(
        lambda connection: namespaces.children(connection, parent, after=after, limit=limit)
    )
    return json_response(
        {"namespaces": [levels(path) for path in found], "next-page-token": next_page(found, limit)}
    )


async def _paths_to(request: Request, by: Principal, parent: str) -> list[list[str]]:
    """What the holder of a bound key sees above its own namespaces: the levels that lead to them."""
    depth = len(levels(parent)) + 1 if parent else 1
    children = {
        SEPARATOR.join(levels(own)[:depth])
        for own in by.namespaces
        if not parent or (own != parent and is_within(own, parent))
    }
    known = await services_of(request).read(
        lambda connection: [
            child for child in sorted(children) if namespaces.namespace_exists(connection, child)
        ]
    )
    return [levels(child) for child in known]


@router.post("/v1/namespaces", **describe("Create a namespace", body=CREATE_NAMESPACE, needs=Need.WRITE))
async def create_namespace(request: Request) -> Response:
    """Also creates the levels above it that are missing."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    principal_of(request).require_whole(Need.WRITE, parse_namespace(body.get("namespace")))
    path, given = (
        parse_namespace(body.get("namespace")),
        namespaces.check_properties(properties(body, "properties")),
    )
    check_namespace_properties(principal_of(request), path, given)
    now_ms = services.now_ms()

    def work(connection: Any) -> Reply:
        namespaces.create(connection, services.database, path, given, now_ms)
        return json_reply({"namespace": levels(path), "properties": given})

    return reply_response(await services.change_names(request_key(request, raw), work))


@router.get("/v1/namespaces/{namespace}", **describe("Load a namespace's properties", path=("namespace",)))
async def load_namespace(request: Request) -> Response:
    """Levels and properties. `location` is where engines that choose a table's location themselves put
    theirs, below a folder of its own."""
    services = services_of(request)
    path = namespace_from_path(request.path_params["namespace"])
    said = await services.read(lambda connection: namespaces.load_properties(connection, path))
    found = known_properties(principal_of(request), said)
    # Trino 476 chooses below this location, and without one it cannot create a table.
    return json_response(
        {
            "namespace": levels(path),
            "properties": {"location": namespace_location(services.store, path), **found},
        }
    )


@router.head(
    "/v1/namespaces/{namespace}",
    **describe("Say whether a namespace exists", path=("namespace",), status=204),
)
async def namespace_exists(request: Request) -> Response:
    """204 or 404."""
    path = namespace_from_path(request.path_params["namespace"])
    if not await services_of(request).read(lambda connection: namespaces.namespace_exists(connection, path)):
        raise no_such_namespace(dotted(path))
    return Response(status_code=204)


@router.delete(
    "/v1/namespaces/{namespace}",
    **describe("Drop an empty namespace", path=("namespace",), status=204, needs=Need.ADMINISTER),
)
async def drop_namespace(request: Request) -> Response:
    """409 where anything is in it, 403 where a legal hold is on it, or it has limits that the caller may not
    change."""
    services = services_of(request)
    path = namespace_from_path(request.path_params["namespace"])
    principal_of(request).require_whole(Need.ADMINISTER, path)
    may_limit = principal_of(request).allowed(Need.LIMIT, path)

    def work(connection: Any) -> Reply:
        check_droppable(connection, services.database, path, may_limit=may_limit)
        namespaces.drop(connection, path, locking=services.database.locking())
        return Reply(204)

    return reply_response(await services.change_names(request_key(request, b""), work))


@router.post(
    "/v1/namespaces/{namespace}/properties",
    **describe(
        "Set and remove properties of a namespace",
        body=UPDATE_NAMESPACE,
        path=("namespace",),
        needs=Need.ADMINISTER,
    ),
)
async def update_namespace(request: Request) -> Response:
    """Says which keys were updated, removed and missing."""
    services = services_of(request)
    path = namespace_from_path(request.path_params["namespace"])
    raw = await read_body(request)
    body = parse_object(raw)
    removals, updates = strings(body, "removals"), namespaces.check_properties(properties(body, "updates"))
    check_namespace_properties(principal_of(request), path, [*removals, *updates])
    if removals or updates:  # who changes nothing asks whether it might
        principal_of(request).require_whole(Need.ADMINISTER, path)

    def work(connection: Any) -> Reply:
        return json_reply(
            namespaces.update_properties(
                connection, path, removals, updates, locking=services.database.locking()
            )
        )

    return reply_response(await services.change_names(request_key(request, raw), work))
