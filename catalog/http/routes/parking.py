"""Parked records over HTTP."""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.extras import parking
from catalog.extras.leases import check_lease, parse_lease
from catalog.http.routes.request_schemas import IDENTIFIER
from catalog.http.routes.tables import TABLE_PATH
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
    RawRoute,
    describe,
    json_reply,
    json_response,
    next_page,
    page_of,
    parse_object,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import CatalogError, bad_request
from catalog.model.identifier import identifier_from_path, parse_identifier
from catalog.model.json_fields import integer, objects, optional_string, string

router = APIRouter(route_class=RawRoute, tags=["firn"])
CHANGE = {
    "type": "object",
    "required": ["lease", "changes"],
    "properties": {
        "lease": {"type": "string", "description": "name:token"},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["identifier", "version"],
                "properties": {
                    "identifier": IDENTIFIER,
                    "version": {
                        "type": "integer",
                        "description": "the one last read, 0 where there was none",
                    },
                    "table-uuid": {"type": "string"},
                    "reason": {"type": "string"},
                    "record": {"description": "any JSON; null removes the record"},
                },
            },
        },
    },
}


@router.get(
    "/firn/v1/parked",
    **describe("List the parked records", query=("pageToken", "pageSize"), needs=Need.SERVICE),
)
async def list_parked(request: Request) -> Response:
    """By pages; the order is that of the identifiers."""
    after, limit = page_of(request)
    size = limit or PAGE_SIZE_DEFAULT
    found, last = await services_of(request).read(
        lambda connection: parking.list_parked(connection, after=after, limit=size)
    )
    return json_response({"parked": found, "next-page-token": None if last is None else next_page([last], 1)})


@router.get(
    "/firn/v1/parked/{namespace}/{table}",
    **describe("Read one parked record", path=TABLE_PATH, needs=Need.SERVICE),
)
async def load_parked(request: Request) -> Response:
    """404 where the table is not parked."""
    identifier = identifier_from_path(request.path_params["namespace"], request.path_params["table"])
    found = await services_of(request).read(lambda connection: parking.find_parked(connection, identifier))
    if found is None:
        raise CatalogError(404, "NotParkedException", f"{identifier} is not parked")
    return json_response(found)


@router.post(
    "/firn/v1/parked",
    **describe("Change parked records, each by compare-and-set", body=CHANGE, needs=Need.SERVICE),
)
async def change_parked(request: Request) -> Response:
    """A result per change, in order: its new version, or the error. A stale lease refuses everything with
    403."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    lease = parse_lease(string(body, "lease"))
    if lease is None:
        raise bad_request("'lease' is missing")
    changes = [
        (
            parse_identifier(item.get("identifier")),
            integer(item, "version"),
            optional_string(item, "reason") or "",
            optional_string(item, "table-uuid"),
            item.get("record"),
        )
        for item in objects(body, "changes")
    ]
    now_ms = services.now_ms()

    def work(connection: Any) -> Reply:
        check_lease(connection, services.database, lease)
        results = []
        for identifier, version, reason, uuid, record in changes:
            try:
                new = parking.change_parked(
                    connection,
                    identifier,
                    version=version,
                    reason=reason,
                    uuid=uuid,
                    record=record,
                    now_ms=now_ms,
                )
                results.append({"identifier": identifier.json(), "version": new})
            except CatalogError as error:
                results.append({"identifier": identifier.json(), "error": error.model()})
        return json_reply({"results": results})

    return reply_response(await services.change(request_key(request, raw), work))
