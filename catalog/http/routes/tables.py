"""Tables over HTTP (Iceberg REST specification, `/v1/namespaces/{namespace}/tables`)."""

from hashlib import blake2b
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from catalog.access.access import Principal
from catalog.access.verbs import Need
from catalog.commit.commits import CommitUnit, Outcome
from catalog.commit.idempotency import Reply, refused
from catalog.commit.requirements import is_creation
from catalog.commit.table_changes import TableChange, chosen_place, lies_apart
from catalog.commit.table_metadata import historical_snapshots_removed, is_staged, new_metadata
from catalog.http.routes.bound_commits import inspect
from catalog.http.routes.request_schemas import COMMIT, CREATE, REGISTER, RENAME, TRANSACTION
from catalog.http.wire import (
    RawRoute,
    describe,
    json_response,
    lease_of,
    next_page,
    page_of,
    parse_object,
    principal_of,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import CatalogError, bad_request, no_such_namespace
from catalog.model.identifier import (
    Identifier,
    dotted,
    identifier_from_path,
    levels,
    namespace_from_path,
    parse_identifier,
    parse_name,
)
from catalog.model.json_fields import boolean, objects, string
from catalog.store import tables
from catalog.store.metadata_store import parse_metadata
from catalog.store.namespaces import namespace_exists
from catalog.store.tables import TABLE

router = APIRouter(route_class=RawRoute, tags=["tables"])
TABLE_PATH = ("namespace", "table")
NAMES_READ = 1_000  # together, where a key knows of some of them


def load_result(location: str | None, data: bytes) -> bytes:
    """LoadTableResult around metadata bytes as they are stored."""
    if location is None:
        return b'{"metadata":' + data + b',"config":{}}'
    return b'{"metadata-location":' + orjson.dumps(location) + b',"metadata":' + data + b',"config":{}}'


def metadata_etag(location: str, mode: str = "all") -> str:
    """Changes with every version, because every version has a file of its own."""
    return f'"{blake2b(f"{mode}:{location}".encode(), digest_size=12).hexdigest()}"'


def render_table(outcome: Outcome) -> Reply:
    """The answer to a commit or creation of one table."""
    if isinstance(outcome, CatalogError):
        return refused(outcome)
    return Reply(200, load_result(outcome[0].location, outcome[0].data))


def render_nothing(outcome: Outcome) -> Reply:
    """The answer to a transaction: 204 or why not."""
    return refused(outcome) if isinstance(outcome, CatalogError) else Reply(204)


def path_identifier(request: Request, kind: str = TABLE) -> Identifier:
    """The table or view that the path names."""
    return identifier_from_path(request.path_params["namespace"], request.path_params[kind])


@router.get(
    "/v1/namespaces/{namespace}/tables/{table}",
    **describe("Load a table", path=TABLE_PATH, query=("snapshots",)),
)
async def load_table(request: Request) -> Response:
    """Metadata as stored, byte by byte; 304 where If-None-Match names this version. `snapshots=refs` leaves
    out what no ref points at."""
    services = services_of(request)
    identifier = path_identifier(request)
    mode = request.query_params.get("snapshots", "all")
    if mode not in ("all", "refs"):
        raise bad_request(f"snapshots must be all or refs, not {mode!r}")
    head = await services.read(lambda connection: tables.require(connection, identifier, TABLE))
    etag = metadata_etag(head.metadata_location, mode)
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"etag": etag})
    data = await services.metadata(head.metadata_location)
    if mode == "refs":
        data = orjson.dumps(historical_snapshots_removed(parse_metadata(data)))
    return Response(
        load_result(head.metadata_location, data), media_type="application/json", headers={"etag": etag}
    )


@router.post(
    "/v1/namespaces/{namespace}/tables/{table}",
    **describe("Commit to a table", body=COMMIT, path=TABLE_PATH, needs=Need.COMMIT),
)
async def commit_table(request: Request) -> Response:
    """Requirements are checked against the newest metadata; 409 only where one of them fails."""
    raw = await read_body(request)
    body = parse_object(raw)
    by = principal_of(request)
    change = TableChange(
        path_identifier(request),
        objects(body, "requirements", optional=True),
        objects(body, "updates", optional=True),
        by=by,
    )
    if is_creation(change.requirements):
        by.require_table(Need.WRITE, change.identifier, creates=True)
    await inspect(services_of(request), [change])
    unit = CommitUnit([change], render_table, request_key(request, raw), lease_of(request))
    await services_of(request).queue.submit([unit])
    return reply_response(unit.reply)


@router.head(
    "/v1/namespaces/{namespace}/tables/{table}",
    **describe("Say whether a table exists", path=TABLE_PATH, status=204),
)
async def table_exists(request: Request) -> Response:
    """204 or 404."""
    return await exists(request, TABLE)


async def exists(request: Request, kind: str) -> Response:
    """Says whether a table or view exists."""
    identifier = path_identifier(request, kind)
    await services_of(request).read(lambda connection: tables.require(connection, identifier, kind))
    return Response(status_code=204)


@router.delete(
    "/v1/namespaces/{namespace}/tables/{table}",
    **describe("Drop a table", path=TABLE_PATH, query=("purgeRequested",), status=204, needs=Need.ADMINISTER),
)
async def drop_table(request: Request) -> Response:
    """The table can be brought back for a while; its files are left to the purge, if one was requested."""
    return await drop(
        request, TABLE, purge=request.query_params.get("purgeRequested", "false").lower() == "true"
    )


async def drop(request: Request, kind: str, *, purge: bool) -> Response:
    """Drops a table or view."""
    services = services_of(request)
    identifier, now_ms = path_identifier(request, kind), services.now_ms()

    def work(connection: Connection) -> Reply:
        tables.drop(connection, services.database, identifier, kind, purge=purge, now_ms=now_ms)
        return Reply(204)

    return reply_response(await services.change_names(request_key(request, b""), work))


@router.get(
    "/v1/namespaces/{namespace}/tables",
    **describe("List the tables of a namespace", path=("namespace",), query=("pageToken", "pageSize")),
)
async def list_tables(request: Request) -> Response:
    """In the order of their names."""
    return await listing(request, TABLE)


async def listing(request: Request, kind: str) -> Response:
    """Lists tables or views."""
    namespace = namespace_from_path(request.path_params["namespace"])
    after, limit = page_of(request)
    by = principal_of(request)
    found = await services_of(request).read(
        lambda connection: _names(connection, by, namespace, kind, after, limit)
    )
    parts = levels(namespace)
    return json_response(
        {
            "identifiers": [{"namespace": parts, "name": name} for name in found],
            "next-page-token": next_page(found, limit),
        }
    )


def _names(
    connection: Connection, by: Principal, namespace: str, kind: str, after: str, limit: int | None
) -> list[str]:
    """A page of those that the key knows of, as if there were no others."""
    if by.streams is None:
        return tables.list_names(connection, namespace, kind, after=after, limit=limit)
    known = list[str]()
    while limit is None or len(known) < limit:
        page = tables.list_names(connection, namespace, kind, after=after, limit=NAMES_READ)
        known += [name for name in page if kind == TABLE and by.reaches(Identifier(namespace, name))]
        if len(page) < NAMES_READ:
            break
        after = page[-1]
    return known[:limit]


@router.post(
    "/v1/namespaces/{namespace}/tables",
    **describe(
        "Create a table, or prepare one (stage-create)", body=CREATE, path=("namespace",), needs=Need.WRITE
    ),
)
async def create_table(request: Request) -> Response:
    """Field ids are assigned anew; the answer has them."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    identifier = Identifier(
        namespace_from_path(request.path_params["namespace"]),
        parse_name(body.get("name"), "the table's name"),
    )
    principal_of(request).require_table(Need.WRITE, identifier, creates=True)
    if is_staged(body):
        return await _stage(request, identifier, body)
    unit = CommitUnit(
        [TableChange(identifier, create=body, by=principal_of(request))],
        render_table,
        request_key(request, raw),
    )
    await services.queue.submit([unit])
    return reply_response(unit.reply)


async def _stage(request: Request, identifier: Identifier, body: dict[str, Any]) -> Response:
    services = services_of(request)

    def check(connection: Connection) -> None:
        if not namespace_exists(connection, identifier.namespace):
            raise no_such_namespace(dotted(identifier.namespace))
        head = tables.find(connection, identifier)
        if head is not None:
            raise tables.taken(identifier, head.kind, TABLE)

    await services.read(check)
    table_uuid, location = chosen_place(body, services.store)
    lies_apart(principal_of(request), identifier, location, table_uuid, services.store)
    metadata = new_metadata(body, uuid=table_uuid, location=location, now_ms=services.now_ms())
    return Response(load_result(None, orjson.dumps(metadata)), media_type="application/json")


@router.post(
    "/v1/namespaces/{namespace}/register",
    **describe("Register a table by its metadata file", body=REGISTER, path=("namespace",), needs=Need.ADMIN),
)
async def register_table(request: Request) -> Response:
    """`overwrite` lets it take the place of a table of that name."""
    return await register(request, TABLE)


async def register(request: Request, kind: str) -> Response:
    """Registers a table or view."""
    raw = await read_body(request)
    body = parse_object(raw)
    identifier = Identifier(
        namespace_from_path(request.path_params["namespace"]), parse_name(body.get("name"), "the name")
    )
    change = TableChange(
        identifier,
        register=string(body, "metadata-location"),
        may_overwrite=boolean(body, "overwrite"),
        kind=kind,
        by=principal_of(request),
    )
    unit = CommitUnit([change], render_table, request_key(request, raw))
    await services_of(request).queue.submit([unit])
    return reply_response(unit.reply)


@router.post(
    "/v1/tables/rename", **describe("Rename a table", body=RENAME, status=204, needs=Need.ADMINISTER)
)
async def rename_table(request: Request) -> Response:
    """Its location stays."""
    return await rename(request, TABLE)


async def rename(request: Request, kind: str) -> Response:
    """Renames a table or view."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    source, destination = parse_identifier(body.get("source")), parse_identifier(body.get("destination"))
    by = principal_of(request)
    by.require_table(Need.ADMINISTER, destination, kind, creates=True)
    by.require_table(Need.ADMINISTER, source, kind)

    def work(connection: Connection) -> Reply:
        tables.rename(connection, services.database, source, destination, kind)
        return Reply(204)

    return reply_response(await services.change_names(request_key(request, raw), work))


@router.post(
    "/v1/transactions/commit",
    **describe("Commit to several tables, all or none", body=TRANSACTION, status=204, needs=Need.COMMIT),
)
async def commit_transaction(request: Request) -> Response:
    """One SQL transaction; the first failing requirement refuses everything."""
    raw, by = await read_body(request), principal_of(request)
    changes = [
        TableChange(
            parse_identifier(item.get("identifier")),
            objects(item, "requirements", optional=True),
            objects(item, "updates", optional=True),
            by=by,
        )
        for item in objects(parse_object(raw), "table-changes")
    ]
    if not changes:
        return Response(status_code=204)
    for change in changes:
        creates = is_creation(change.requirements)
        by.require_table(Need.WRITE if creates else Need.COMMIT, change.identifier, creates=creates)
    await inspect(services_of(request), changes)
    unit = CommitUnit(changes, render_nothing, request_key(request, raw), lease_of(request))
    await services_of(request).queue.submit([unit])
    return reply_response(unit.reply)
