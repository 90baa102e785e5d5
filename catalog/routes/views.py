"""Views over HTTP (Iceberg REST specification, `/v1/namespaces/{namespace}/views`)."""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog import tables
from catalog.access import Need
from catalog.commits import CommitUnit
from catalog.idempotency import Reply
from catalog.identifier import Identifier, identifier_from_path, levels, namespace_from_path, parse_identifier, parse_name
from catalog.json_fields import objects
from catalog.routes.namespaces import PROPERTIES
from catalog.routes.tables import COMMIT, OBJECT, REGISTER, RENAME, load_result, register, render_table
from catalog.table_changes import TableChange
from catalog.tables import VIEW
from catalog.wire import RawRoute, describe, json_response, next_page, page_of, parse_object, principal_of, read_body, reply_response, request_key, services_of

router = APIRouter(route_class=RawRoute, tags=["views"])
VIEW_PATH = ("namespace", "view")
CREATE = {
    "type": "object",
    "required": ["name", "schema", "view-version", "properties"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "location": {"type": "string"},
        "schema": OBJECT,
        "view-version": OBJECT,
        "properties": PROPERTIES,
    },
}


def path_identifier(request: Request) -> Identifier:
    """The view that the path names."""
    return identifier_from_path(request.path_params["namespace"], request.path_params["view"])


@router.get("/v1/namespaces/{namespace}/views", **describe("List the views of a namespace", path=("namespace",), query=("pageToken", "pageSize")))
async def list_views(request: Request) -> Response:
    """In the order of their names."""
    namespace = namespace_from_path(request.path_params["namespace"])
    after, limit = page_of(request)
    found = await services_of(request).read(lambda connection: tables.list_names(connection, namespace, VIEW, after=after, limit=limit))
    parts = levels(namespace)
    return json_response({"identifiers": [{"namespace": parts, "name": name} for name in found], "next-page-token": next_page(found, limit)})


@router.post("/v1/namespaces/{namespace}/views", **describe("Create a view", body=CREATE, path=("namespace",), needs=Need.WRITE))
async def create_view(request: Request) -> Response:
    """The first version comes with it."""
    raw = await read_body(request)
    body = parse_object(raw)
    identifier = Identifier(namespace_from_path(request.path_params["namespace"]), parse_name(body.get("name"), "the view's name"))
    return await _commit(request, TableChange(identifier, create=body, kind=VIEW), raw)


@router.get("/v1/namespaces/{namespace}/views/{view}", **describe("Load a view", path=VIEW_PATH))
async def load_view(request: Request) -> Response:
    """Metadata as stored."""
    services = services_of(request)
    identifier = path_identifier(request)
    head = await services.read(lambda connection: tables.require(connection, identifier, VIEW))
    return Response(load_result(head.metadata_location, await services.metadata(head.metadata_location)), media_type="application/json")


@router.post("/v1/namespaces/{namespace}/views/{view}", **describe("Replace a view or change its properties", body=COMMIT, path=VIEW_PATH, needs=Need.WRITE))
async def commit_view(request: Request) -> Response:
    """409 only where a requirement fails."""
    raw = await read_body(request)
    body = parse_object(raw)
    requirements, updates = objects(body, "requirements", optional=True), objects(body, "updates", optional=True)
    return await _commit(request, TableChange(path_identifier(request), requirements, updates, kind=VIEW), raw)


async def _commit(request: Request, change: TableChange, raw: bytes) -> Response:
    unit = CommitUnit([change], render_table, request_key(request, raw))
    await services_of(request).queue.submit([unit])
    return reply_response(unit.reply)


@router.head("/v1/namespaces/{namespace}/views/{view}", **describe("Say whether a view exists", path=VIEW_PATH, status=204))
async def view_exists(request: Request) -> Response:
    """204 or 404."""
    identifier = path_identifier(request)
    await services_of(request).read(lambda connection: tables.require(connection, identifier, VIEW))
    return Response(status_code=204)


@router.delete("/v1/namespaces/{namespace}/views/{view}", **describe("Drop a view", path=VIEW_PATH, status=204, needs=Need.WRITE))
async def drop_view(request: Request) -> Response:
    """Its metadata files are left to the orphan remover."""
    services = services_of(request)
    identifier, now_ms = path_identifier(request), services.now_ms()

    def work(connection: Any) -> Reply:
        tables.drop(connection, services.database, identifier, VIEW, purge=False, now_ms=now_ms)
        return Reply(204)

    return reply_response(await services.change(request_key(request, b""), work))


@router.post("/v1/views/rename", **describe("Rename a view", body=RENAME, status=204, needs=Need.WRITE))
async def rename_view(request: Request) -> Response:
    """Its location stays."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    source, destination = parse_identifier(body.get("source")), parse_identifier(body.get("destination"))
    for identifier in (source, destination):
        principal_of(request).require(Need.WRITE, identifier.namespace)

    def work(connection: Any) -> Reply:
        tables.rename(connection, services.database, source, destination, VIEW)
        return Reply(204)

    return reply_response(await services.change(request_key(request, raw), work))


@router.post(
    "/v1/namespaces/{namespace}/register-view", **describe("Register a view by its metadata file", body=REGISTER, path=("namespace",), needs=Need.ADMIN)
)
async def register_view(request: Request) -> Response:
    """409 where the name is taken."""
    return await register(request, VIEW)
