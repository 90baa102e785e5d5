"""HTTP at the edge: bodies in, bodies out, errors in Iceberg's form, and routes without the framework's cost
per request.

Handlers take the raw request and return bytes: on the hot paths validating and serialising through models
would cost more than the work itself. They are still ordinary FastAPI routes, so they appear in the OpenAPI
document; what they take is stated there by `describe`.
"""

import base64
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
import structlog
from fastapi import Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.access import key_lifetime
from catalog.access.access import EVERYBODY, Principal
from catalog.access.roles import Person
from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply, RequestKey, check_key, fingerprint
from catalog.extras.leases import LeaseToken, parse_lease
from catalog.http.acts import ACTS, ActTold, is_act, object_of
from catalog.http.services import Services
from catalog.model import metrics
from catalog.model.error_response import CatalogError, bad_request, outcome_unknown, unavailable
from catalog.model.identifier import identifier_from_path, namespace_from_path
from catalog.store.tables import TABLE, VIEW
from lake.clock import SYSTEM_CLOCK
from lake.errors import FirnError

log = structlog.get_logger()
JSON_TYPE = "application/json"
PAGE_SIZE_DEFAULT = 1_000
PAGE_SIZE_MAX = 10_000
# A value takes some sixty bytes of memory however short its text is: a body of commas would grow thirtyfold.
VALUES_MAX = 4_000_000
Json = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]


class RawRoute(APIRoute):
    """A route whose function is called with the request and nothing else."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        endpoint = cast("Handler", self.endpoint)
        operation = self.name
        need = Need((self.openapi_extra or {}).get("x-firn-needs", Need.ADMIN))
        # The same for all of its methods, of which acts have one.
        action = next((ACTS[m, self.path] for m in self.methods or () if (m, self.path) in ACTS), None)

        async def handle(request: Request) -> Response:
            started = SYSTEM_CLOCK.monotonic_s()
            try:
                trail = None if action is None else services_of(request).trail
                if action is None or trail is None:
                    await admit(request, need)
                    response = await endpoint(request)
                else:
                    response = await _told(ActTold(request, action, trail), need, endpoint)
            except CatalogError as error:
                response = error_response(error)
            except DataError as error:
                response = error_response(
                    bad_request(
                        f"the database cannot keep such a value ({error.orig}); leave out control characters"
                    )
                )
            except (SQLAlchemyError, FirnError) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                log.warning("catalog.request_failed", operation=operation, error=str(cause))
                response = error_response(unavailable(f"{cause}; try again"))
            except Exception as error:  # a defect of ours: the caller must not take it for a refusal
                log.exception("catalog.defect", operation=operation)
                response = error_response(
                    outcome_unknown(
                        f"the catalog failed ({error!r}); load what you changed to see whether it happened"
                    )
                )
            metrics.requests.labels(operation, response.status_code).inc()
            metrics.request_seconds.labels(operation).observe(SYSTEM_CLOCK.monotonic_s() - started)
            return response

        return handle


async def _told(act: ActTold, need: Need, work: Handler) -> Response:
    """Does an act and has the audit trail told before and afterwards. Raises CatalogError; 503 where that
    cannot be told, and has to be."""
    request = act.request
    try:
        await admit(request, need)
        request.state.body = body = await read_body(request)
    except CatalogError as error:
        if hasattr(request.state, "principal"):  # else nobody knows who it was
            act.ended(principal_of(request), {}, error.status, error.message)
        raise
    who, given = principal_of(request), object_of(body)
    if not is_act(act.action, given):
        return await work(request)
    await act.begin(who, given)
    status, reason, made = 500, "", ""
    try:
        response = await work(request)
        status, made = response.status_code, act.made(bytes(response.body))
    except CatalogError as error:
        status, reason = error.status, error.message
        raise
    finally:
        act.ended(who, given, status, reason, made)
    return response


async def admit(request: Request, need: Need) -> None:
    """Finds out who asks and whether the route and the namespace in its path are open to them. Raises
    CatalogError 401 or 403."""
    services = services_of(request)
    if need is Need.NOTHING:
        return
    principal = EVERYBODY if services.settings.access.anonymous else await _principal(request, services)
    request.state.principal = principal
    namespace = None if principal.is_everywhere else request.path_params.get("namespace")
    if principal.streams is not None and namespace is not None:
        for kind in {TABLE, VIEW} & request.path_params.keys():
            identifier = identifier_from_path(namespace, request.path_params[kind])
            principal.require_table(need, identifier, kind)
    principal.require(need, None if namespace is None else namespace_from_path(namespace))


async def _principal(request: Request, services: Services) -> Principal:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not bearer:
        raise CatalogError(
            401,
            "NotAuthorizedException",
            "send a key as `Authorization: Bearer firn_...`; an administrator makes one with `python -m "
            "catalog key create`",
        )
    principal = await services.whose(bearer)
    if principal is None:
        raise CatalogError(
            401, "NotAuthorizedException", "the key or token is unknown, revoked or expired; get a new one"
        )
    now_ms = services.now_ms()
    if principal.has_expired(now_ms):
        told = principal.told_expired() if isinstance(principal, Person) else key_lifetime.expired(principal)
        raise CatalogError(401, "NotAuthorizedException", told)
    if not isinstance(principal, Person):
        services.uses.note(principal.key_id, now_ms)
    return principal


def lease_of(request: Request) -> LeaseToken | None:
    """The lease under which a commit is made. Raises CatalogError 400."""
    return parse_lease(request.headers.get("x-firn-lease"))


def principal_of(request: Request) -> Principal:
    """Who asks."""
    return cast("Principal", request.state.principal)


class RawPath:
    """Routes by the path as it was sent: a percent-encoded slash belongs to a name, it does not end one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope["path"] = scope["raw_path"].split(b"?", 1)[0].decode("latin-1")
        await self._app(scope, receive, send)


def services_of(request: Request) -> Services:
    """The process's services."""
    return cast("Services", request.app.state.services)


async def read_body(request: Request) -> bytes:
    """The body, never more than the setting allows. Raises CatalogError 413."""
    known: bytes | None = getattr(request.state, "body", None)
    if known is not None:  # of an act, whose body was looked at before
        return known
    limit = services_of(request).settings.http.request_bytes_max
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> CatalogError:
    return CatalogError(
        413,
        "BadRequestException",
        (
            f"the request is larger than {limit:,} bytes; send fewer tables at once or raise "
            "http.request_bytes_max"
        ),
    )


def parse_object(body: bytes) -> Json:
    """The body as a JSON object. Raises CatalogError 400 or 413."""
    if body.count(b",") > VALUES_MAX:
        raise CatalogError(
            413,
            "BadRequestException",
            f"the request holds more than {VALUES_MAX:,} values; send fewer tables at once",
        )
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    try:
        orjson.dumps(value)  # what cannot be written again could not be kept
    except TypeError as error:
        raise bad_request(
            "the body is nested deeper than 254 levels; put deep structures into a text"
        ) from error
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    return value


async def read_object(request: Request) -> Json:
    """The request's body as a JSON object. Raises CatalogError 400 or 413."""
    return parse_object(await read_body(request))


def request_key(request: Request, body: bytes, item: int = 0) -> RequestKey | None:
    """What the Idempotency-Key header says about this request, None where there is none. Raises CatalogError
    400."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    return RequestKey(
        check_key(key),
        item,
        fingerprint(request.method.encode(), request.url.path.encode(), request.url.query.encode(), body),
    )


def json_response(value: object, status: int = 200) -> Response:
    """JSON as bytes."""
    return Response(orjson.dumps(value), status, media_type=JSON_TYPE)


def error_response(error: CatalogError) -> Response:
    """A refusal as bytes."""
    return json_response(error.body(), error.status)


def reply_response(reply: Reply | None) -> Response:
    """A kept or fresh answer as bytes."""
    if reply is None:
        raise bad_request("the request asks for nothing")
    return Response(reply.body, reply.status, media_type=JSON_TYPE if reply.body else None)


def json_reply(value: object, status: int = 200) -> Reply:
    """JSON as an answer that can be kept."""
    return Reply(status, orjson.dumps(value))


def page_of(request: Request) -> tuple[str, int | None]:
    """(the last name of the page before, how many to give); (\"\", None) where the caller wants everything at
    once. Raises CatalogError 400."""
    token, size = request.query_params.get("pageToken"), request.query_params.get("pageSize")
    if token is None and size is None:
        return "", None
    if size is not None and not (size.isascii() and size.isdigit() and 0 < len(size) < 10 and int(size) > 0):
        raise bad_request(f"pageSize must be a whole number above 0, not {size!r}")
    try:
        after = base64.urlsafe_b64decode(token.encode("ascii")).decode() if token else ""
    except ValueError as error:
        raise bad_request(
            "pageToken is not one that this catalog gave; start the listing again without it"
        ) from error
    return after, min(int(size) if size is not None else PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def next_page(names: list[str], limit: int | None) -> str | None:
    """The token for the page after this one, None after the last."""
    return (
        base64.urlsafe_b64encode(names[-1].encode()).decode()
        if limit is not None and len(names) == limit
        else None
    )


def describe(
    summary: str,
    *,
    body: Json | None = None,
    query: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    needs: Need = Need.READ,
    status: int = 200,
) -> Json:
    """A raw handler's entry in the OpenAPI document, as keyword arguments of a route."""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in path
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in query
    ]
    refusals = {
        str(code): {"description": text, "content": _ERROR_CONTENT} for code, text in _REFUSALS.items()
    }
    extra: Json = {
        "x-firn-needs": needs.value,
        "parameters": parameters,
        "responses": {str(status): {"description": "Done"}, **refusals},
    }
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": body}}}
    return {"summary": summary, "openapi_extra": extra, "status_code": status}


_ERROR_CONTENT: Json = {
    JSON_TYPE: {
        "schema": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["message", "type", "code"],
                    "properties": {
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                        "code": {"type": "integer"},
                    },
                }
            },
        }
    }
}
_REFUSALS = {
    400: "The request is wrong; the sentence says what to change",
    401: "No valid key",
    403: "The key does not allow it",
    404: "Named thing does not exist",
    409: "A requirement failed or the name is taken",
    413: "Too large",
    422: "Contradicts itself or its Idempotency-Key",
    503: "Nothing was changed; try again",
}
