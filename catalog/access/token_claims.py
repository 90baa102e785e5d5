"""What the claims of an issuer's token say of a person: who it is, and by the settings, what they may do."""

from collections.abc import Iterator, Mapping
from typing import Any

from catalog.access.roles import Grant, Person, Role
from lake.settings.oidc import OidcGrant, OidcSettings
from lake.tenant import SYSTEM_TENANT, TenantId, parse_tenant

Claims = Mapping[str, Any]
NAME_CHARACTERS_MAX = 200
SUBJECT_CHARACTERS_MAX = 255  # OpenID Connect Core 1.0, section 2


def person_of(claims: Claims, settings: OidcSettings) -> Person:
    """The person of claims that were proved; those whose values no grant knows have no role."""
    said = _claim(claims, settings.roles_claim)
    values = said.split() if isinstance(said, str) else _texts(said)
    claimed = _claim(claims, settings.tenants_claim) if settings.tenants_claim else ()
    tenants = [claimed] if isinstance(claimed, str) else list(_texts(claimed))
    grants = [
        grant
        for value in values
        if value in settings.grants
        for grant in _grants(settings.grants[value], tenants)
    ]
    name = _claim(claims, settings.name_claim)
    return Person(
        key_id=f"{settings.issuer}#{claims['sub']}",
        expires_ms=int((claims["exp"] + settings.leeway_s) * 1_000),
        name=name[:NAME_CHARACTERS_MAX] if isinstance(name, str) else "",
        issuer=settings.issuer,
        grants=tuple(dict.fromkeys(grants)),
    )


def _grants(given: OidcGrant, claimed: list[str]) -> Iterator[Grant]:
    role = Role(given.role)
    if given.tenants == "all":
        yield Grant(role)
        return
    for name in claimed if given.tenants == "claimed" else given.tenants:
        tenant = parse_tenant(name)
        if isinstance(tenant, TenantId) and tenant != SYSTEM_TENANT:
            yield Grant(role, tenant.namespace)


def _claim(claims: Claims, path: str) -> Any:
    """A claim by its name, or by the names of the objects that lead to it; None where there is none."""
    if path in claims:  # names of claims may be addresses, which have dots
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _texts(value: Any) -> Iterator[str]:
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else iter(())
