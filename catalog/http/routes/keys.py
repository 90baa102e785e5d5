"""API keys over HTTP, and tokens bought with them (OAuth2 client credentials, as the Iceberg REST
specification has it)."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from catalog.access import access, key_lifetime, key_owners, keys
from catalog.access.access import EVERYBODY, Principal
from catalog.access.keys import Narrowing
from catalog.access.verbs import Need, Scope, Verb
from catalog.commit.idempotency import Reply, refused
from catalog.http.wire import (
    RawRoute,
    describe,
    json_response,
    parse_object,
    principal_of,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import CatalogError, bad_request, forbidden
from catalog.model.identifier import parse_namespace
from catalog.model.json_fields import optional_string, string, strings

router = APIRouter(route_class=RawRoute, tags=["access"])
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, not a secret
GRANT_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
KEY = {
    "type": "object",
    "required": ["scope"],
    "properties": {
        "scope": {"enum": [scope.value for scope in Scope]},
        "namespace": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        "namespaces": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            "description": "in place of namespace: several",
        },
        "streams": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "names of streams, or patterns with one *; left out: all",
        },
        "verbs": {
            "type": "array",
            "items": {"enum": [verb.value for verb in Verb]},
            "description": "what it may of its scope; left out: all",
        },
        "note": {"type": "string"},
        "expires": {
            "type": "string",
            "description": (
                "90d, 12h, an instant or never; left out: access.bound_key_lifetime_s for bound keys, never "
                "for others"
            ),
        },
    },
}
ROTATION = {
    "type": "object",
    "properties": {
        "overlap": {
            "type": "string",
            "description": "how long the former secret stays in force: 24h (left out), at most 30d, or 0",
        },
        "expires": {"type": "string", "description": "the key's new end; left out: as it was"},
    },
}
TOKEN_PATH = "/v1/oauth/tokens"  # noqa: S105 - a path, not a secret


@router.post(
    TOKEN_PATH, **describe("Buy a token with a key's id and secret (form-encoded)", needs=Need.NOTHING)
)
async def get_token(request: Request) -> Response:
    """client_credentials: client_id is the key's id, client_secret its secret or the whole key.
    token-exchange: a valid token gets a new one."""
    services = services_of(request)
    try:
        form = {
            key: values[-1]
            for key, values in parse_qs((await read_body(request)).decode(), max_num_fields=50).items()
        }
    except (UnicodeDecodeError, ValueError):
        return _oauth_error("invalid_request", "the body must be form-encoded")
    grant, now_ms = form.get("grant_type"), services.now_ms()
    if grant not in ("client_credentials", GRANT_EXCHANGE):
        return _oauth_error("unsupported_grant_type", "use client_credentials with a key's id and secret")
    principal = await services.read(lambda connection: _find(connection, form, now_ms))
    if principal is None:
        return _oauth_error("invalid_client", "no key in force has this id and secret", 401)
    if principal.has_expired(now_ms):
        return _oauth_error("invalid_client", key_lifetime.expired(principal), 401)
    services.uses.note(principal.key_id, now_ms)
    issued_to = principal
    reply = await services.change(
        None, lambda connection: Reply(200, access.issue_token(connection, issued_to, now_ms).encode())
    )
    body = {
        "access_token": reply.body.decode(),
        "token_type": "bearer",
        "expires_in": access.TOKEN_LIFETIME_S,
        "issued_token_type": TOKEN_TYPE,
    }
    return json_response(body)


def _find(connection: Any, form: Mapping[str, str], now_ms: int) -> Principal | None:
    """Who asks for a token; None where the form proves nobody."""
    if form["grant_type"] == GRANT_EXCHANGE:
        return access.find_by_bearer(connection, form.get("subject_token", ""), now_ms)
    secret = form.get("client_secret", "")
    if secret.startswith("firn_"):
        return access.find_by_bearer(connection, secret, now_ms)
    return access.find_by_credentials(connection, form.get("client_id", ""), secret)


def _oauth_error(kind: str, sentence: str, status: int = 400) -> Response:
    return json_response({"error": kind, "error_description": sentence}, status)


@router.get("/firn/v1/keys", **describe("List the API keys, without their secrets", needs=Need.KEYS))
async def list_keys(request: Request) -> Response:
    """Revoked ones too, each with its `state`. Who administers single tenants gets those that reach no
    other."""
    services = services_of(request)
    now_ms, listed = services.now_ms(), await services.read(keys.list_keys)
    found = key_owners.owned(principal_of(request), listed)
    return json_response({"keys": [{**key, "state": key_lifetime.state_of(key, now_ms)} for key in found]})


@router.post(
    "/firn/v1/keys",
    **describe("Make an API key; the answer is the only time it is shown", body=KEY, needs=Need.KEYS),
)
async def create_key(request: Request) -> Response:
    """`namespace` binds a read or write key to one tenant, `namespaces` to several. Who administers single
    tenants makes keys for these, with an end. A repetition under the same Idempotency-Key makes no second
    key: 409 names the first."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    _refuse_everybody(request, "key create --scope ...")
    scope, note = string(body, "scope"), optional_string(body, "note") or ""
    if scope not in set(Scope):
        raise bad_request(f"scope must be one of {', '.join(Scope)}, not {scope!r}")
    narrowing = _narrowing(body)
    now_ms = services.now_ms()
    longest_s = services.settings.access.bound_key_lifetime_s
    default_s = longest_s if narrowing.namespaces else 0
    expires_ms = key_lifetime.end_of(optional_string(body, "expires"), now_ms, default_s=default_s)
    key_owners.require_to_make(principal_of(request), narrowing.namespaces, expires_ms, now_ms, longest_s)
    return await _shown_once(
        request,
        raw,
        lambda connection: keys.create_key(
            connection, Scope(scope), None, note, now_ms, expires_ms, narrowing=narrowing
        ),
        {"expires-ms": expires_ms},
    )


@router.post(
    "/firn/v1/keys/{key}/rotate",
    **describe(
        "Give a key another secret; the answer is the only time it is shown",
        path=("key",),
        body=ROTATION,
        needs=Need.KEYS,
    ),
)
async def rotate_key(request: Request) -> Response:
    """The former secret, and tokens bought with it, stay in force for `overlap`; one before that ends at
    once."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw) if raw else {}
    _refuse_everybody(request, "key rotate ...")
    key_id, now_ms = request.path_params["key"], services.now_ms()
    overlap_ms = key_lifetime.overlap_of(optional_string(body, "overlap") or key_lifetime.OVERLAP)
    expires = optional_string(body, "expires")
    new_end = None if expires is None else (key_lifetime.end_of(expires, now_ms, default_s=0),)
    holder, longest_s = principal_of(request), services.settings.access.bound_key_lifetime_s

    def rotate(connection: Connection) -> str:
        key_owners.require_key(connection, holder, key_id)
        return keys.rotate_key(connection, key_id, now_ms, overlap_ms, new_end)

    if new_end is not None:
        key_owners.require_end(holder, new_end[0], now_ms, longest_s)
    return await _shown_once(request, raw, rotate, {"former-secret-until-ms": now_ms + overlap_ms})


async def _shown_once(
    request: Request, raw: bytes, make: Callable[[Connection], str], told: Mapping[str, Any]
) -> Response:
    """Makes a secret and answers with its key; a repetition under the same Idempotency-Key is refused."""
    made: list[str] = []

    def work(connection: Connection) -> Reply:
        made[:] = [make(connection)]
        # This is what is kept for a repetition under the same Idempotency-Key: never the secret.
        key_id = made[0].split("_")[1]
        return refused(
            CatalogError(
                409,
                "AlreadyExistsException",
                f"key {key_id} was given by this request before and cannot be shown again; rotate or revoke "
                "it",
            )
        )

    kept = await services_of(request).change(request_key(request, raw), work)
    return json_response({"key": made[0], **told}) if made else reply_response(kept)


def _narrowing(body: dict[str, Any]) -> Narrowing:
    """To what a body narrows a key. Raises CatalogError 400."""
    given = body.get("namespaces")
    if given is None:
        given = [] if body.get("namespace") is None else [body["namespace"]]
    elif body.get("namespace") is not None or not isinstance(given, list) or not given:
        raise bad_request("say namespace, or namespaces: a list with at least one")
    streams, verbs = (
        None if body.get(name) is None else strings(body, name) for name in ("streams", "verbs")
    )
    if verbs is not None and (unknown := set(verbs) - set(Verb)):
        raise bad_request(f"verbs are {', '.join(Verb)}, not {min(unknown)!r}")
    return Narrowing(
        tuple(map(parse_namespace, given)),
        None if streams is None else tuple(streams),
        None if verbs is None else frozenset(map(Verb, verbs)),
    )


def _refuse_everybody(request: Request, verb: str) -> None:
    """Who can reach the port is not who may hand out keys: keys made now would still be there when the
    catalog asks for them."""
    if principal_of(request) is EVERYBODY:
        raise forbidden(
            "callers without a key make and end no keys; do it on the catalog's machine with `python -m "
            f"catalog {verb}`"
        )


@router.delete(
    "/firn/v1/keys/{key}",
    **describe("Revoke an API key by its id", path=("key",), status=204, needs=Need.KEYS),
)
async def revoke_key(request: Request) -> Response:
    """In force everywhere within five seconds."""
    _refuse_everybody(request, "key revoke ...")
    services = services_of(request)
    key_id, now_ms, holder = request.path_params["key"], services.now_ms(), principal_of(request)

    def work(connection: Connection) -> Reply:
        key_owners.require_key(connection, holder, key_id)
        keys.revoke_key(connection, key_id, now_ms)
        return Reply(204)

    return reply_response(await services.change(request_key(request, b""), work))
