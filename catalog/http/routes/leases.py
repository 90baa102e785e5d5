"""Leases over HTTP."""

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.extras import leases
from catalog.extras.leases import LeaseToken
from catalog.http.wire import (
    RawRoute,
    describe,
    json_reply,
    json_response,
    parse_object,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.identifier import decode_segment, parse_name
from catalog.model.json_fields import integer, string

router = APIRouter(route_class=RawRoute, tags=["firn"])
ACQUIRE = {
    "type": "object",
    "required": ["holder", "ttl-ms"],
    "properties": {"holder": {"type": "string"}, "ttl-ms": {"type": "integer"}},
}
RENEW = {
    "type": "object",
    "required": ["token", "ttl-ms"],
    "properties": {"token": {"type": "integer"}, "ttl-ms": {"type": "integer"}},
}
RELEASE = {"type": "object", "required": ["token"], "properties": {"token": {"type": "integer"}}}


def _name(request: Request) -> str:
    return parse_name(decode_segment(request.path_params["lease"]), "the lease's name")


@router.get("/firn/v1/leases", **describe("List the leases", needs=Need.SERVICE))
async def list_leases(request: Request) -> Response:
    """With `in-force` by the database's clock."""
    services = services_of(request)
    return json_response({"leases": await services.read(leases.list_leases)})


@router.post(
    "/firn/v1/leases/{lease}/acquire",
    **describe("Acquire a lease", body=ACQUIRE, path=("lease",), needs=Need.SERVICE),
)
async def acquire(request: Request) -> Response:
    """A new token each time; 409 while another holder has it."""
    services, name = services_of(request), _name(request)
    raw = await read_body(request)
    body = parse_object(raw)
    holder, ttl_ms = string(body, "holder"), integer(body, "ttl-ms")

    def work(connection: Connection) -> Reply:
        return json_reply(leases.acquire(connection, services.database, name, holder, ttl_ms))

    return reply_response(await services.change(request_key(request, raw), work))


@router.post(
    "/firn/v1/leases/{lease}/renew",
    **describe("Renew a lease", body=RENEW, path=("lease",), needs=Need.SERVICE),
)
async def renew(request: Request) -> Response:
    """403 when it ran out or passed to another."""
    services, name = services_of(request), _name(request)
    raw = await read_body(request)
    body = parse_object(raw)
    lease, ttl_ms = LeaseToken(name, integer(body, "token")), integer(body, "ttl-ms")

    def work(connection: Connection) -> Reply:
        return json_reply(leases.renew(connection, services.database, lease, ttl_ms))

    return reply_response(await services.change(request_key(request, raw), work))


@router.post(
    "/firn/v1/leases/{lease}/release",
    **describe("Release a lease", body=RELEASE, path=("lease",), status=204, needs=Need.SERVICE),
)
async def release(request: Request) -> Response:
    """The next holder need not wait."""
    services, name = services_of(request), _name(request)
    raw = await read_body(request)
    lease = LeaseToken(name, integer(parse_object(raw), "token"))

    def work(connection: Connection) -> Reply:
        leases.release(connection, services.database, lease)
        return Reply(204)

    return reply_response(await services.change(request_key(request, raw), work))
