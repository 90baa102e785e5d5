"""Views over HTTP (Iceberg REST specification, `/v1/namespaces/{namespace}/views`). What they share with
tables is in `tables`."""

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.commits import CommitUnit
from catalog.commit.table_changes import TableChange
from catalog.http.routes.request_schemas import COMMIT_VIEW, CREATE_VIEW, REGISTER, RENAME
from catalog.http.routes.tables import (
    drop,
    exists,
    listing,
    load_result,
    path_identifier,
    register,
    rename,
    render_table,
)
from catalog.http.wire import (
    RawRoute,
    describe,
    parse_object,
    principal_of,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import forbidden
from catalog.model.identifier import Identifier, dotted, namespace_from_path, parse_name
from catalog.model.json_fields import objects
from catalog.store import tables
from catalog.store.tables import VIEW

router = APIRouter(route_class=RawRoute, tags=["views"])
VIEW_PATH = ("namespace", "view")


@router.get(
    "/v1/namespaces/{namespace}/views",
    **describe("List the views of a namespace", path=("namespace",), query=("pageToken", "pageSize")),
)
async def list_views(request: Request) -> Response:
    """In the order of their names."""
    return await listing(request, VIEW)


@router.post(
    "/v1/namespaces/{namespace}/views",
    **describe("Create a view", body=CREATE_VIEW, path=("namespace",), needs=Need.ADMINISTER),
)
async def create_view(request: Request) -> Response:
    """The first version comes with it."""
    _refuse_bound(request)
    raw = await read_body(request)
    body = parse_object(raw)
    identifier = Identifier(
        namespace_from_path(request.path_params["namespace"]), parse_name(body.get("name"), "the view's name")
    )
    return await _commit(
        request, TableChange(identifier, create=body, kind=VIEW, by=principal_of(request)), raw
    )


@router.get("/v1/namespaces/{namespace}/views/{view}", **describe("Load a view", path=VIEW_PATH))
async def load_view(request: Request) -> Response:
    """Metadata as stored."""
    services = services_of(request)
    identifier = path_identifier(request, VIEW)
    head = await services.read(lambda connection: tables.require(connection, identifier, VIEW))
    return Response(
        load_result(head.metadata_location, await services.metadata(head.metadata_location)),
        media_type="application/json",
    )


@router.post(
    "/v1/namespaces/{namespace}/views/{view}",
    **describe(
        "Replace a view or change its properties", body=COMMIT_VIEW, path=VIEW_PATH, needs=Need.ADMINISTER
    ),
)
async def commit_view(request: Request) -> Response:
    """409 only where a requirement fails."""
    _refuse_bound(request)
    raw = await read_body(request)
    body = parse_object(raw)
    requirements, updates = (
        objects(body, "requirements", optional=True),
        objects(body, "updates", optional=True),
    )
    return await _commit(
        request,
        TableChange(
            path_identifier(request, VIEW), requirements, updates, kind=VIEW, by=principal_of(request)
        ),
        raw,
    )


def _refuse_bound(request: Request) -> None:
    """Engines run a view's SQL with more rights than who reads it; what it may read cannot be told here.
    Raises CatalogError 403."""
    within = namespace_from_path(request.path_params["namespace"])
    namespace = principal_of(request).bound_to(Need.ADMINISTER, within)
    if namespace is not None:
        raise forbidden(
            f"who is bound to a namespace ({dotted(namespace)}) makes and changes no views: the SQL "
            "of a view may name tables of others; "
            "ask an administrator, who may"
        )


async def _commit(request: Request, change: TableChange, raw: bytes) -> Response:
    unit = CommitUnit([change], render_table, request_key(request, raw))
    await services_of(request).queue.submit([unit])
    return reply_response(unit.reply)


@router.head(
    "/v1/namespaces/{namespace}/views/{view}",
    **describe("Say whether a view exists", path=VIEW_PATH, status=204),
)
async def view_exists(request: Request) -> Response:
    """204 or 404."""
    return await exists(request, VIEW)


@router.delete(
    "/v1/namespaces/{namespace}/views/{view}",
    **describe("Drop a view", path=VIEW_PATH, status=204, needs=Need.ADMINISTER),
)
async def drop_view(request: Request) -> Response:
    """Its metadata files are left to the orphan remover."""
    return await drop(request, VIEW, purge=False)


@router.post("/v1/views/rename", **describe("Rename a view", body=RENAME, status=204, needs=Need.ADMINISTER))
async def rename_view(request: Request) -> Response:
    """Its location stays."""
    return await rename(request, VIEW)


@router.post(
    "/v1/namespaces/{namespace}/register-view",
    **describe("Register a view by its metadata file", body=REGISTER, path=("namespace",), needs=Need.ADMIN),
)
async def register_view(request: Request) -> Response:
    """409 where the name is taken."""
    return await register(request, VIEW)
