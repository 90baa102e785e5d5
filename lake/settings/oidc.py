"""Settings of people: the OpenID Connect issuer whose tokens the catalog takes beside its own keys."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lake.errors import Rejected
from lake.listening import is_loopback
from lake.settings.group import SettingsGroup
from lake.tenant import SYSTEM_TENANT, parse_tenant

DISCOVERY = "/.well-known/openid-configuration"
# By which tokens may be signed: by public keys alone.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    *("EdDSA", "Ed25519"),
)
KEY_TYPES = frozenset({"RSA", "EC", "OKP"})  # never `oct`: who proves by a secret could sign by it
RSA_BITS_MIN = 2_048
RoleName = Literal["reader", "writer", "operator", "administrator"]


class OidcGrant(BaseModel):
    """What a person may do in whose token a value of the claim of roles stands."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    role: Annotated[
        RoleName,
        Field(
            description=(
                "reader: searches and reads tables; writer: also commits and creates tables; operator: also "
                "retention, types, legal holds, dead letters, deleting and erasing; administrator: everything"
            )
        ),
    ]
    tenants: Annotated[
        Literal["all", "claimed"] | tuple[str, ...],
        Field(
            description=(
                "names of tenants; `all`: of every tenant, those to come too; `claimed`: of those that the "
                "token names under `tenants_claim`"
            )
        ),
    ]

    @model_validator(mode="after")
    def _check_tenants(self) -> Self:
        if not self.tenants:
            raise ValueError("tenants: name at least one, or write `all` or `claimed`")
        for name in () if isinstance(self.tenants, str) else self.tenants:
            if isinstance(parse_tenant(name), Rejected):
                raise ValueError(  # noqa: TRY004 - pydantic makes a message of a ValueError
                    f"tenants: {name[:100]!r} cannot be a tenant's name"
                )
            if name == SYSTEM_TENANT.name:
                raise ValueError("tenants: what Firn keeps of who did what is for administrators of all")
        return self


class OidcSettings(SettingsGroup):
    """People: whose tokens are taken beside API keys, and what they allow (people-and-roles.md)."""

    issuer: Annotated[
        str,
        Field(
            description=(
                "the issuer as its tokens name it, letter by letter, like https://id.example.org/realms/x; "
                "empty: nobody gets in by a token of one"
            )
        ),
    ] = ""
    audiences: Annotated[
        tuple[str, ...], Field(description="a token has to be meant for one of these (its claim `aud`)")
    ] = ()
    name_claim: Annotated[
        str, Field(description="claim that names the person to others; without it the subject does")
    ] = "preferred_username"
    roles_claim: Annotated[
        str,
        Field(
            description=(
                "claim with the values of `grants`: a list, or a text of words; dots lead into objects, like "
                "realm_access.roles"
            )
        ),
    ] = "groups"
    tenants_claim: Annotated[
        str, Field(description='claim with names of tenants, for grants with `tenants = "claimed"`')
    ] = ""
    grants: Annotated[
        dict[str, OidcGrant], Field(description="what each value of the claim of roles allows")
    ] = {}
    leeway_s: Annotated[
        float,
        Field(description="seconds that the issuer's clock and this one's may differ by", ge=0, le=600),
    ] = 30.0
    keys_kept_s: Annotated[
        float,
        Field(
            description=(
                "seconds after which the issuer's public keys are fetched anew; a key that it has withdrawn "
                "is taken for as long"
            ),
            gt=0,
            le=86_400,
        ),
    ] = 300.0
    fetch_interval_s: Annotated[
        float,
        Field(
            description="seconds between two fetches at the least, whatever keys tokens name", gt=0, le=3_600
        ),
    ] = 10.0
    timeout_s: Annotated[
        float, Field(description="seconds in which the issuer has to answer", gt=0, le=60)
    ] = 5.0
    token_bytes_max: Annotated[
        int, Field(description="bytes of a token; a larger one is not looked into", ge=1_024, le=65_536)
    ] = 16_384

    @model_validator(mode="after")
    def _check_issuer(self) -> Self:
        if not self.issuer:
            return self
        if not is_safe_uri(self.issuer):
            raise ValueError("issuer: it has to be an https address (http on this machine alone)")
        if not self.audiences or not all(self.audiences):
            raise ValueError("audiences: say for whom tokens have to be meant, like the client's id")
        if not self.grants:
            raise ValueError("grants: without one nobody may do anything")
        if not self.tenants_claim and any(grant.tenants == "claimed" for grant in self.grants.values()):
            raise ValueError("tenants_claim: a grant says `claimed`; name the claim")
        return self


def is_safe_uri(uri: str) -> bool:
    """Returns whether nobody between here and there can read or change what comes from an address: https, or
    http that does not leave this machine."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or parts.query or parts.fragment or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
