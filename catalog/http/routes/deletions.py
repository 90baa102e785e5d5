"""Deletion queue of the optimizer over HTTP. A body may carry `lease`; a stale one refuses the whole
request."""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.deletion_locations import DeletionLocations, heads_of, uuid_of
from catalog.commit.idempotency import Reply
from catalog.extras import work_lists
from catalog.http.routes.tasks import check_body_lease
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
    read_object,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import bad_request
from catalog.model.json_fields import integers, objects, optional_integer, string, strings
from lake.errors import SettingsError
from lake.storage import canonical

router = APIRouter(route_class=RawRoute, tags=["firn"])
DELETIONS = {
    "type": "object",
    "required": ["deletions"],
    "properties": {
        "lease": {"type": "string"},
        "deletions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["location"],
                "properties": {
                    "location": {"type": "string"},
                    "not-before-ms": {"type": "integer"},
                    "record": {},
                },
            },
        },
    },
}
LOCATIONS_MAX = 1_000  # of one question
QUEUED = {
    "type": "object",
    "required": ["locations"],
    "properties": {"locations": {"type": "array", "items": {"type": "string"}, "maxItems": LOCATIONS_MAX}},
}
ACKNOWLEDGE = {
    "type": "object",
    "required": ["ids"],
    "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
}


@router.post("/firn/v1/deletions", **describe("Queue files for deletion", body=DELETIONS, needs=Need.SERVICE))
async def add_deletions(request: Request) -> Response:
    """`not-before-ms` is a time since the epoch; a file queued twice, however it is spelled, is queued once.
    Each `record` names its `table-uuid`; a file that does not lie below that table's location is not queued
    but named in `refused`: it stays until somebody has looked."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    entries = [
        {
            "location": canonical(services.store.check_location(string(e, "location"))),
            "not-before-ms": optional_integer(e, "not-before-ms") or 0,
            "record": e.get("record"),
        }
        for e in objects(body, "deletions")
    ]

    heads = await services.read(
        lambda connection: heads_of(connection, services.database, filter(None, map(uuid_of, entries)))
    )
    kept, refused = await services.run(DeletionLocations(services.store, heads).split, entries)

    def work(connection: Any) -> Reply:
        check_body_lease(connection, services, body)
        return json_reply({"added": work_lists.add_deletions(connection, kept), "refused": refused})

    return reply_response(await services.change(request_key(request, raw), work))


@router.get(
    "/firn/v1/deletions",
    **describe("List files whose deletion is due", query=("pageToken", "pageSize"), needs=Need.SERVICE),
)
async def due_deletions(request: Request) -> Response:
    """In the order they were queued. `places`: prefixes below one of which the file has to lie to be deleted;
    none where it is not its table's."""
    services = services_of(request)
    after, limit = page_of(request)
    size, now_ms = limit or PAGE_SIZE_DEFAULT, services.now_ms()
    if after and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise bad_request("pageToken is not one that this catalog gave; start the listing again without it")
    found = await services.read(
        lambda connection: work_lists.due_deletions(
            connection, now_ms=now_ms, after_id=int(after or "0"), limit=size
        )
    )
    heads = await services.read(
        lambda connection: heads_of(connection, services.database, filter(None, map(uuid_of, found)))
    )
    await services.run(_add_locations, DeletionLocations(services.store, heads), found)
    return json_response(
        {
            "deletions": found,
            "next-page-token": next_page([str(entry["id"]) for entry in found], size) if found else None,
        }
    )


def _add_locations(locations: DeletionLocations, found: list[dict[str, Any]]) -> None:
    for entry in found:
        table_location = locations.table_location_of(entry)
        entry["places"] = [] if table_location is None else list(table_location.prefixes)


@router.post(
    "/firn/v1/deletions/queued",
    **describe("Tell which files are queued", body=QUEUED, needs=Need.SERVICE),
)
async def queued_deletions(request: Request) -> Response:
    """Those of `locations` that are queued, due or not, however engines spell them: nobody reaches them any
    more, but who began to read before that may."""
    services = services_of(request)
    locations = strings(await read_object(request), "locations")
    if len(locations) > LOCATIONS_MAX:
        raise bad_request(f"a request names at most {LOCATIONS_MAX} locations; send several")
    try:
        spelled = {location: canonical(location) for location in locations}
    except SettingsError as error:
        raise bad_request(f"locations: {error}") from error
    asked = list(spelled.values())
    found = set(await services.read(lambda connection: work_lists.queued_locations(connection, asked)))
    return json_response({"queued": [location for location in spelled if spelled[location] in found]})


@router.post(
    "/firn/v1/deletions/acknowledge",
    **describe("Say which files are gone", body=ACKNOWLEDGE, status=204, needs=Need.SERVICE),
)
async def acknowledge(request: Request) -> Response:
    """Ids that are unknown count as gone."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    ids = integers(body, "ids")

    def work(connection: Any) -> Reply:
        check_body_lease(connection, services, body)
        work_lists.acknowledge_deletions(connection, ids)
        return Reply(204)

    return reply_response(await services.change(request_key(request, raw), work))
