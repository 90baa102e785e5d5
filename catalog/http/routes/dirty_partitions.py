"""The dirty-partition index over HTTP: partition by partition, or several together."""

import base64
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from catalog.access.verbs import Need
from catalog.commit import partition_listing
from catalog.commit.dirty_partitions import count_uncounted
from catalog.commit.partition_counts import recount
from catalog.http.routes.request_schemas import IDENTIFIER
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    RawRoute,
    describe,
    json_response,
    read_object,
    services_of,
)
from catalog.model.error_response import bad_request, unavailable
from catalog.model.identifier import parse_identifier
from catalog.store import tables
from catalog.store.tables import TABLE

router = APIRouter(route_class=RawRoute, tags=["firn"])
RECOUNT = {"type": "object", "required": ["identifier"], "properties": {"identifier": IDENTIFIER}}
QUERY = (
    "changed-since-ms",
    "changed-before-ms",
    "min-files",
    "max-data-files",
    "min-bytes",
    "pageToken",
    "pageSize",
)
GROUPS = ("before", "characters", "max-bytes", "pageToken", "pageSize")
# A page looks at so many partitions for each that it may hold: by their last change they lie far apart, by
# table side by side.
LOOKED_AT = 5
GROUPED = 20
RECOUNT_ATTEMPTS = 5
_FAR_MS = 2**62


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise bad_request(f"{name} must be a whole number, not {value!r}")
    return int(value)


def _token(request: Request, *kinds: type[int] | type[str]) -> list[Any] | None:
    """The values of a page token, of these kinds; None where the first page is asked for."""
    token = request.query_params.get("pageToken")
    if not token:
        return None
    try:
        values = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        return [kind(value) for kind, value in zip(kinds, values, strict=True)]
    except (ValueError, TypeError) as error:
        raise bad_request(
            "pageToken is not one that this catalog gave; start the listing again without it"
        ) from error


def _to_token(*parts: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode()


@router.get(
    "/firn/v1/dirty-partitions",
    **describe("List partitions by their last change", query=QUERY, needs=Need.SERVICE),
)
async def list_dirty(request: Request) -> Response:
    """Oldest change first. `min-files` counts data and delete files. A page looks at 5 partitions for each
    of `pageSize`, and may be short and not the last one. `uncounted-tables` says for how many tables the
    index is not complete yet."""
    wanted = partition_listing.Wanted(
        since_ms=_number(request, "changed-since-ms", 0),
        before_ms=_number(request, "changed-before-ms", _FAR_MS),
        files_min=_number(request, "min-files", 1),
        data_files_max=_number(request, "max-data-files", _FAR_MS),
        bytes_min=_number(request, "min-bytes", 0),
    )
    limit = max(1, min(_number(request, "pageSize", PAGE_SIZE_DEFAULT), PAGE_SIZE_MAX))
    token = _token(request, int, int, str)
    after = None if token is None else (token[0], token[1], token[2])

    def work(connection: Connection) -> tuple[list[dict[str, Any]], partition_listing.At | None, int]:
        found, following = partition_listing.list_dirty(
            connection, wanted, after=after, limit=limit, looked_at=limit * LOOKED_AT
        )
        return found, following, count_uncounted(connection)

    found, following, waiting = await services_of(request).read(work)
    token_after = None if following is None else _to_token(*following)
    return json_response({"partitions": found, "next-page-token": token_after, "uncounted-tables": waiting})


@router.get(
    "/firn/v1/partition-groups",
    **describe("List partitions put together by how their names begin", query=GROUPS, needs=Need.SERVICE),
)
async def list_groups(request: Request) -> Response:
    """Partitions of one field with names before `before`, by the first `characters` of their names; groups of
    `max-bytes` and more are left out. By table. A page looks at 20 partitions for each of `pageSize`, and may
    be short and not the last one."""
    before = request.query_params.get("before", "")
    field, equals, _ = before.partition("=")
    if not (field and equals):
        raise bad_request("before must be the name of a partition, like timestamp_hour=2026-11-14")
    names = partition_listing.NameRange(before, max(1, _number(request, "characters", len(before))))
    bytes_max = _number(request, "max-bytes", _FAR_MS)
    limit = max(1, min(_number(request, "pageSize", PAGE_SIZE_DEFAULT), PAGE_SIZE_MAX))
    token = _token(request, int, str)

    def work(connection: Connection) -> tuple[list[dict[str, Any]], tuple[int, str] | None]:
        start = (0, "") if token is None else (token[0], token[1])
        return partition_listing.list_groups(
            connection, names, bytes_max=bytes_max, start=start, looked_at=limit * GROUPED
        )

    found, after = await services_of(request).read(work)
    following = None if after is None else _to_token(*after)
    return json_response({"groups": found, "next-page-token": following})


@router.post(
    "/firn/v1/dirty-partitions/recount",
    **describe("Count a table's partitions from its manifests", body=RECOUNT, status=204, needs=Need.SERVICE),
)
async def recount_table(request: Request) -> Response:
    """503 where the table changes faster than it can be counted."""
    services = services_of(request)
    identifier = parse_identifier((await read_object(request)).get("identifier"))
    for _ in range(RECOUNT_ATTEMPTS):
        head = await services.read(lambda connection: tables.require(connection, identifier, TABLE))
        if await services.run(
            recount, services.database, services.store, head.id, head.metadata_location, services.now_ms()
        ):
            return Response(status_code=204)
    raise unavailable(f"{identifier} changes faster than it can be counted; try again")
