"""Who asks, and whether they may: what other rooms want to know of a key or token before they act."""

from fastapi import APIRouter, Request, Response

from catalog.access.access import EVERYBODY, Principal
from catalog.access.roles import Person, verbs_of_roles
from catalog.access.verbs import Need, verbs_of
from catalog.http.wire import RawRoute, describe, json_response, principal_of
from catalog.model.error_response import bad_request
from catalog.model.identifier import levels, namespace_from_path

router = APIRouter(route_class=RawRoute, tags=["access"])


@router.get(
    "/firn/v1/whoami",
    **describe("Tell who asks: the key's id, scope, namespaces and end, or a person's roles", needs=Need.KEY),
)
async def whoami(request: Request) -> Response:
    """Tokens answer with the key they were bought with, those of an issuer with the person (`key-id`: issuer
    and subject; `scope` null). `namespaces` null: all; `namespace`: the first; `streams` null: all of them.
    `expires-ms`: of the key or token, or of the secret that a rotation replaced. Without keys everybody is
    `anonymous`."""
    who = principal_of(request)
    namespaces = None if who.reached is None else [levels(each) for each in who.reached]
    return json_response(
        {
            "key-id": who.key_id,
            "scope": None if isinstance(who, Person) else who.scope,
            "namespace": namespaces[0] if namespaces else None,
            "namespaces": namespaces,
            "streams": who.streams,
            "verbs": sorted(verbs_of(who.scope) if who.verbs is None else who.verbs),
            "expires-ms": who.expires_ms,
            "anonymous": who is EVERYBODY,
            **_person(who),
        }
    )


def _person(who: Principal) -> dict[str, object]:
    if not isinstance(who, Person):
        return {}
    roles = [
        {"role": grant.role, "namespace": None if grant.namespace is None else levels(grant.namespace)}
        for grant in who.grants
    ]
    verbs = sorted(verbs_of_roles(who.grants))
    return {"name": who.name, "issuer": who.issuer, "roles": roles, "verbs": verbs}


@router.get(
    "/firn/v1/permission",
    **describe("Say whether the caller may", query=("need", "namespace"), status=204, needs=Need.KEY),
)
async def get_permission(request: Request) -> Response:
    """204, or 403 with the reason. `need`: what a route asks for (`x-firn-needs`); `namespace`: where, with
    its levels as in paths."""
    need, namespace = request.query_params.get("need", ""), request.query_params.get("namespace")
    if need not in set(Need):
        raise bad_request(f"need must be one of {', '.join(Need)}, not {need!r:.50}")
    where = None if not namespace else namespace_from_path(namespace)
    principal_of(request).require(Need(need), where)
    return Response(status_code=204)
