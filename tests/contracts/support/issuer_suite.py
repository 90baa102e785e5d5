"""What every issuer of tokens has to do, for the catalog to take them."""

import asyncio

from catalog.access.roles import Grant, Role
from catalog.access.tokens import TokenVerifier
from lake.settings.oidc import OidcSettings

SUBJECT, NAME = "contract-ann", "ann"
CLAIMS = {"preferred_username": NAME, "groups": ["readers"]}


class IssuerContract:
    """The suite. A subclass gives the fixtures `url`, `audience` and `token` (of SUBJECT, with CLAIMS)."""

    def test_its_tokens_say_who_somebody_is_and_which_groups_they_are_in(
        self, url: str, audience: str, token: str
    ) -> None:
        """By its documents and keys, as the catalog asks for them."""
        grants = {"readers": {"role": "reader", "tenants": "all"}}
        given = {"issuer": url, "audiences": [audience], "grants": grants}
        verifier = TokenVerifier(OidcSettings.model_validate(given))
        try:
            person = asyncio.run(verifier.person(token))
        finally:
            verifier.close()
        assert (person.key_id, person.name) == (f"{url}#{SUBJECT}", NAME)
        assert person.grants == (Grant(Role.READER),)
