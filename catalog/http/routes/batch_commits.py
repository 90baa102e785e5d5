"""`POST /firn/v1/commits`: many independent table commits, creation included, one SQL transaction for those
that pass, a result for each."""

from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from catalog.access.access import Principal
from catalog.access.locations import check_namespace_properties
from catalog.access.verbs import Need
from catalog.commit.commits import CommitUnit, Outcome
from catalog.commit.idempotency import Reply, RequestKey, check_key, fingerprint
from catalog.commit.requirements import is_creation
from catalog.commit.table_changes import TableChange
from catalog.extras.leases import LeaseToken
from catalog.http.routes.bound_commits import inspect
from catalog.http.routes.request_schemas import COMMIT, CREATE, IDENTIFIER, PROPERTIES
from catalog.http.services import Services
from catalog.http.wire import RawRoute, describe, lease_of, parse_object, principal_of, read_body, services_of
from catalog.model.error_response import CatalogError, bad_request, unavailable
from catalog.model.identifier import Identifier, parse_identifier, parse_name
from catalog.model.json_fields import boolean, mapping, objects, optional_integer, properties
from catalog.store.namespaces import check_properties
from lake.errors import FirnError

router = APIRouter(route_class=RawRoute, tags=["firn"])
Json = dict[str, Any]
COMMITS_MAX = 10_000
BATCH: Json = {
    "type": "object",
    "required": ["commits"],
    "properties": {
        "commits": {
            "type": "array",
            "maxItems": COMMITS_MAX,
            "items": {
                "type": "object",
                "required": ["identifier"],
                "properties": {
                    "identifier": IDENTIFIER,
                    "requirements": COMMIT["properties"]["requirements"],
                    "updates": COMMIT["properties"]["updates"],
                    "deadline-ms": {"type": "integer", "minimum": 0},
                    "create": CREATE,
                    "create-namespace-properties": PROPERTIES,
                    "allow-recreate": {"type": "boolean"},
                    "return-metadata": {"type": "boolean"},
                },
            },
        }
    },
}
_STATUS_OF_TYPE = {
    "CommitFailedException": "conflict",
    "AlreadyExistsException": "conflict",
    "NoSuchTableException": "not-found",
    "NoSuchNamespaceException": "not-found",
    "NotFoundException": "failed",
    "TableDeletedException": "deleted",
    "CommitTimeoutException": "timeout",
    "CommitStateUnknownException": "unknown",
}


@router.post(
    "/firn/v1/commits", **describe("Commit to many tables independently", body=BATCH, needs=Need.COMMIT)
)
async def commit_batch(request: Request) -> Response:
    """Results come in the order of the commits: committed, conflict, not-found, deleted, invalid, failed,
    unknown or timeout.

    `deadline-ms` counts from the arrival of the request; a table that is not swapped by then is left
    unchanged (`timeout`). `create` is the body of createTable: the table begins and takes the updates in one
    commit. A namespace that is missing is created with it.
    """
    raw = await read_body(request)
    items = objects(parse_object(raw), "commits")
    if len(items) > COMMITS_MAX:
        raise bad_request(f"a batch holds at most {COMMITS_MAX} commits; send several")
    key = request.headers.get("idempotency-key")
    if key is not None:
        check_key(key)
    arrived = services_of(request).clock.monotonic_s()
    principal, lease = principal_of(request), lease_of(request)
    units = [_unit(item, at, key, arrived, principal, lease) for at, item in enumerate(items)]
    await _inspect(services_of(request), units)
    waiting = [unit for unit in units if isinstance(unit, CommitUnit) and unit.reply is None]
    if waiting:
        await services_of(request).queue.submit(waiting)
    bodies = [
        unit.body if isinstance(unit, Reply) else unit.reply.body if unit.reply is not None else b"null"
        for unit in units
    ]
    return Response(b'{"results":[' + b",".join(bodies) + b"]}", media_type="application/json")


async def _inspect(services: Services, units: Sequence[CommitUnit | Reply]) -> None:
    """What is found gives a commit its answer before it is tried."""
    for unit in units:
        if isinstance(unit, CommitUnit):
            try:
                await inspect(services, unit.changes)
            except CatalogError as error:
                unit.reply = unit.render(error)
            except FirnError as error:
                unit.reply = unit.render(unavailable(f"{error}; nothing was changed"))


def _unit(
    item: Json, at: int, key: str | None, arrived: float, principal: Principal, lease: LeaseToken | None
) -> CommitUnit | Reply:
    """One commit of the batch, or at once the result of one that cannot be understood."""
    try:
        identifier = parse_identifier(item.get("identifier"))
        creates = item.get("create") is not None
        principal.require_table(Need.WRITE if creates else Need.COMMIT, identifier, creates=creates)
    except CatalogError as error:
        return _result(item.get("identifier"), error)
    try:
        change = _change(item, identifier, principal)
        deadline_ms = optional_integer(item, "deadline-ms")
        wants_metadata = boolean(item, "return-metadata")
    except CatalogError as error:
        return _result(identifier.json(), error)

    def render(outcome: Outcome) -> Reply:
        if isinstance(outcome, CatalogError):
            return _result(identifier.json(), outcome)
        head = orjson.dumps(
            {"identifier": identifier.json(), "status": "committed", "metadata-location": outcome[0].location}
        )
        return Reply(200, head[:-1] + b',"metadata":' + outcome[0].data + b"}" if wants_metadata else head)

    request_key = None if key is None else RequestKey(key, at, fingerprint(b"commits", orjson.dumps(item)))
    return CommitUnit(
        [change], render, request_key, lease, None if deadline_ms is None else arrived + deadline_ms / 1_000
    )


def _change(item: Json, identifier: Identifier, by: Principal) -> TableChange:
    requirements, updates = (
        objects(item, "requirements", optional=True),
        objects(item, "updates", optional=True),
    )
    recreate = boolean(item, "allow-recreate")
    if item.get("create") is None:
        if is_creation(requirements):
            by.require_table(Need.WRITE, identifier, creates=True)
        return TableChange(identifier, requirements, updates, may_recreate=recreate, by=by)
    create = mapping(item, "create")
    if create.get("name") is not None and parse_name(create["name"], "the table's name") != identifier.name:
        raise bad_request("the name in 'create' differs from the identifier's")
    if any(requirement.get("type") != "assert-create" for requirement in requirements):
        raise bad_request("a commit with 'create' takes no requirement but assert-create")
    namespace_properties = check_properties(properties(item, "create-namespace-properties"))
    check_namespace_properties(by, identifier.namespace, namespace_properties)
    if namespace_properties:
        by.require_whole(Need.WRITE, identifier.namespace)
    return TableChange(
        identifier,
        requirements,
        updates,
        create,
        create_namespace=namespace_properties,
        may_recreate=recreate,
        by=by,
    )


def _result(identifier: object, error: CatalogError) -> Reply:
    """The result of a commit that did not happen; its HTTP status only tells whether a repetition gets the
    same."""
    status = _STATUS_OF_TYPE.get(error.kind) or ("invalid" if error.status < 500 else "failed")
    return Reply(
        error.status, orjson.dumps({"identifier": identifier, "status": status, "error": error.model()})
    )
