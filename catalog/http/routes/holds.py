"""Legal holds over HTTP: set one, lift one; and what namespaces say of them, of retention and of limits, for
all at once."""

from datetime import datetime
from typing import Any

import structlog
from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.http.routes.request_schemas import LEVELS, TEXT, record
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
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
from catalog.model.error_response import bad_request
from catalog.model.identifier import (
    decode_segment,
    dotted,
    levels,
    namespace_from_path,
    parse_name,
    parse_namespace,
)
from catalog.model.json_fields import optional_string, string
from catalog.store import holds
from lake.holds import Hold, moment_of
from lake.retention import PROPERTY as RETENTION_PROPERTY

router = APIRouter(route_class=RawRoute, tags=["firn"])
log = structlog.get_logger()
OPEN = {"type": ["string", "null"]}
HOLD = record(
    "namespace", "reason", namespace=LEVELS, stream=OPEN, reason=TEXT, **{"from": OPEN, "until": OPEN}
)


@router.post("/firn/v1/holds", **describe("Set a legal hold", body=HOLD, needs=Need.HOLD))
async def set_hold(request: Request) -> Response:
    """On a stream (null: on all that the namespace has and will have), from one event time until another,
    null for open: nothing of it is dropped, purged, erased or taken by retention until the hold is lifted."""
    services, by = services_of(request), principal_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    path, reason = parse_namespace(body.get("namespace")), string(body, "reason")
    by.require(Need.HOLD, path)
    stream = None if body.get("stream") is None else parse_name(body["stream"], "the stream's name")
    start, end = _moment(body, "from"), _moment(body, "until")
    set_at = services.clock.now().isoformat(timespec="seconds")
    hold = Hold(holds.new_id(), stream, start, end, reason.strip(), by.key_id, set_at)

    done: list[Hold] = []  # none where an answer is given once more

    def work(connection: Any) -> Reply:
        holds.set_hold(connection, services.database, path, hold)
        done[:] = [hold]
        return json_reply(hold.to_json())

    reply = await services.change_names(request_key(request, raw), work)
    for each in done:
        log.info("catalog.hold_set", namespace=dotted(path), hold=str(each), by=by.key_id)
    return reply_response(reply)


@router.delete(
    "/firn/v1/holds/{namespace}/{hold}",
    **describe("Lift a legal hold", path=("namespace", "hold"), needs=Need.HOLD),
)
async def lift_hold(request: Request) -> Response:
    """Answers with the hold as it was."""
    services, by = services_of(request), principal_of(request)
    path, hold_id = (
        namespace_from_path(request.path_params["namespace"]),
        decode_segment(request.path_params["hold"]),
    )
    lifted: list[Hold] = []

    def work(connection: Any) -> Reply:
        lifted[:] = [holds.lift_hold(connection, services.database, path, hold_id)]
        return json_reply(lifted[0].to_json())

    reply = await services.change_names(request_key(request, b""), work)
    for hold in lifted:
        log.info("catalog.hold_lifted", namespace=dotted(path), hold=str(hold), by=by.key_id)
    return reply_response(reply)


@router.get(
    "/firn/v1/policies",
    **describe(
        "List retention, legal holds and limits", query=("pageToken", "pageSize", "only"), needs=Need.SERVICE
    ),
)
async def list_policies(request: Request) -> Response:
    """`lake`: the settings `retention` and `limits.*`; `namespaces`: those that say anything, each with
    these of its properties. `only=limits`: those that say anything of limits, and that alone."""
    services = services_of(request)
    after, limit = page_of(request)
    size = limit or PAGE_SIZE_DEFAULT
    alone = request.query_params.get("only") == "limits"
    found = await services.read(
        lambda connection: holds.policies(connection, after, size, limits_alone=alone)
    )
    lake = services.settings.retention
    return json_response(
        {
            "lake": ({RETENTION_PROPERTY: lake} if lake else {}) | services.settings.limits.properties(),
            "namespaces": [{"namespace": levels(path), "properties": said} for path, said in found],
            "next-page-token": next_page([path for path, _ in found], size),
        }
    )


def _moment(body: dict[str, Any], key: str) -> datetime | None:
    try:
        return moment_of(optional_string(body, key))
    except ValueError as error:
        raise bad_request(f"{key!r}: {error}") from error
