"""Dropped tables over HTTP: list, undo, purge."""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.extras import soft_delete
from catalog.http.routes.request_schemas import IDENTIFIER
from catalog.http.services import Services
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    RawRoute,
    describe,
    json_reply,
    json_response,
    parse_object,
    principal_of,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import bad_request
from catalog.model.identifier import parse_identifier
from catalog.model.json_fields import optional_integer
from catalog.store import name_journal

router = APIRouter(route_class=RawRoute, tags=["firn"])
UNDO = {
    "type": "object",
    "properties": {"identifier": IDENTIFIER, "id": {"type": "integer"}, "new-identifier": IDENTIFIER},
}


def _id(request: Request) -> int:
    value = request.path_params["dropped"]
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise bad_request("the id of a dropped table is a whole number; see the list")
    return int(value)


def _due_ms(services: Services) -> int:
    return services.now_ms() - int(services.settings.undo_window_s * 1_000)


@router.get(
    "/firn/v1/dropped-tables",
    **describe("List dropped tables", query=("purgeable", "pageToken", "pageSize"), needs=Need.SERVICE),
)
async def list_dropped(request: Request) -> Response:
    """`purge-due-ms`: from when on its files may go, null where nobody asked for that; `held-by`: the legal
    hold that keeps them all the same. `purgeable=true`: only those that are due, each with `location-shared`.
    `undo-window-ms`: how long what is dropped now can be brought back at least."""
    services = services_of(request)
    due = _due_ms(services) if request.query_params.get("purgeable", "false").lower() == "true" else None
    token, size = (
        request.query_params.get("pageToken") or "0",
        request.query_params.get("pageSize") or str(PAGE_SIZE_DEFAULT),
    )
    if not all(value.isascii() and value.isdigit() and len(value) < 19 for value in (token, size)):
        raise bad_request("pageToken and pageSize must be whole numbers")
    limit = max(1, min(int(size), PAGE_SIZE_MAX))

    def work(connection: Any) -> list[dict[str, Any]]:
        found = soft_delete.list_dropped(
            connection, purgeable_before_ms=due, after_id=int(token), limit=limit
        )
        soft_delete.mark_held(connection, found)
        if due is not None:
            soft_delete.mark_shared(connection, found)
        return found

    found = await services.read(work)
    window_ms = int(services.settings.undo_window_s * 1_000)
    for entry in found:
        wait_ms = 0 if entry["purge-at-once"] else window_ms
        entry["purge-due-ms"] = entry["dropped-ms"] + wait_ms if entry["purge-requested"] else None
    token_after = str(found[-1]["id"]) if len(found) == limit else None
    return json_response(
        {"dropped-tables": found, "next-page-token": token_after, "undo-window-ms": window_ms}
    )


@router.post(
    "/firn/v1/dropped-tables/undo", **describe("Bring a dropped table back", body=UNDO, needs=Need.ADMINISTER)
)
async def undo(request: Request) -> Response:
    """By identifier (the last one dropped) or by id; `new-identifier` where the old name is taken."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    dropped_id = optional_integer(body, "id")
    identifier = None if body.get("identifier") is None else parse_identifier(body["identifier"])
    new_name = None if body.get("new-identifier") is None else parse_identifier(body["new-identifier"])
    if dropped_id is None and identifier is None:
        raise bad_request("say which table: 'identifier' or 'id'")
    principal = principal_of(request)
    if dropped_id is not None:
        principal.require(Need.ADMIN)
    for name in (identifier, new_name):
        if name is not None:
            principal.require_table(Need.ADMINISTER, name, creates=True)

    def work(connection: Any) -> Reply:
        target = soft_delete.undo_drop(
            connection, services.database, identifier=identifier, dropped_id=dropped_id, new_name=new_name
        )
        name_journal.note_living(connection, target)
        return json_reply({"identifier": target.json()})

    return reply_response(await services.change_names(request_key(request, raw), work))


@router.post(
    "/firn/v1/dropped-tables/{dropped}/purge",
    **describe(
        "Ask for the purge of a dropped table",
        path=("dropped",),
        query=("atOnce",),
        status=204,
        needs=Need.ADMIN,
    ),
)
async def request_purge(request: Request) -> Response:
    """It is due when the time for undo is over; `atOnce=true`: now."""
    services, dropped_id = services_of(request), _id(request)
    at_once = request.query_params.get("atOnce", "false").lower() == "true"

    def work(connection: Any) -> Reply:
        soft_delete.request_purge(connection, services.database, dropped_id, at_once=at_once)
        return Reply(204)

    return reply_response(await services.change_names(request_key(request, b""), work))


@router.post(
    "/firn/v1/dropped-tables/{dropped}/purge-started",
    **describe("Begin a purge: no undo from here", path=("dropped",), needs=Need.SERVICE),
)
async def start_purge(request: Request) -> Response:
    """Answers with the location, and whether a living table shares it (then nothing may be deleted by
    prefix)."""
    services, dropped_id = services_of(request), _id(request)
    due, now_ms = _due_ms(services), services.now_ms()

    def work(connection: Any) -> Reply:
        return json_reply(
            soft_delete.start_purge(
                connection, services.database, dropped_id, purgeable_before_ms=due, now_ms=now_ms
            )
        )

    return reply_response(await services.change_names(request_key(request, b""), work))


@router.delete(
    "/firn/v1/dropped-tables/{dropped}",
    **describe("Say that a purge is finished", path=("dropped",), status=204, needs=Need.SERVICE),
)
async def finish_purge(request: Request) -> Response:
    """The name is free from here."""
    services, dropped_id = services_of(request), _id(request)

    def work(connection: Any) -> Reply:
        soft_delete.finish_purge(connection, services.database, dropped_id)
        return Reply(204)

    return reply_response(await services.change_names(request_key(request, b""), work))
