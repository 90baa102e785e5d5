"""The issuer, as the pages ask it: by Authlib for the flow, by one request for another token."""

import logging
from typing import Any

import httpx
from authlib.integrations.starlette_client import OAuth
from starlette.requests import Request
from starlette.responses import Response

from ui.login.pending import PendingLogin
from ui.login.sessions import RenewalFailedError, RenewalRefusedError
from ui.login.tokens import Tokens, TokensError, tokens_of
from ui.settings import LoginSettings, tls_context

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
LEEWAY_S = 120  # that the issuer's clock and this one's may differ by
TOKEN_ENDPOINT, LOGOUT_ENDPOINT = "token_endpoint", "end_session_endpoint"


class LoginError(Exception):
    """Nobody could be logged in; the message is for the log."""


class Issuer:
    """One issuer, and as whom it knows the pages."""

    def __init__(self, settings: LoginSettings) -> None:
        self._settings = settings

    async def sends_to(self, request: Request, state: str, pending: PendingLogin) -> Response:
        """Sends a browser to the issuer, which sends it back with a code; what has to be known then is put
        into `pending`. Raises LoginError."""
        try:
            answer: Response = await self._client(pending).authorize_redirect(
                request, self._settings.redirect_uri, state=state
            )
        except Exception as error:  # whatever the library's own HTTP client raises
            raise LoginError(_said(error)) from error
        return answer

    async def takes(self, request: Request, pending: PendingLogin) -> Tokens:
        """The tokens for the code that a browser has brought back to its login. State, nonce, and the ID
        token's signature, issuer, audience and times have been checked. Raises LoginError."""
        expected = {
            "iss": {"essential": True, "values": [self._settings.issuer]},
            "aud": {"essential": True, "values": [self._settings.client_id]},
        }
        try:
            answer = await self._client(pending).authorize_access_token(
                request, claims_options=expected, leeway=LEEWAY_S
            )
            return tokens_of(answer, self._settings.token)
        except Exception as error:  # see above
            raise LoginError(_said(error)) from error

    async def logout_uri(self, tokens: Tokens) -> str | None:
        """Where a browser ends the issuer's session; None where it offers that nowhere."""
        client = self._client(None)
        try:
            if LOGOUT_ENDPOINT not in await client.load_server_metadata():
                return None
            given = await client.create_logout_url(
                post_logout_redirect_uri=self._settings.redirect_uri,
                id_token_hint=tokens.id_token,
                client_id=self._settings.client_id,
            )
        except Exception as error:  # noqa: BLE001 - see above; the session here is over all the same
            log.warning("the issuer's session could not be ended: %s", _said(error))
            return None
        return str(given["url"])

    def renewed(self, tokens: Tokens) -> Tokens:
        """Other tokens of the same session. A refresh token that the issuer does not replace stays. Raises
        RenewalRefusedError, RenewalFailedError."""
        said = self._renewal(tokens.refresh_token)
        kept = {"id_token": tokens.id_token, "refresh_token": tokens.refresh_token}
        try:
            found = tokens_of({**kept, **said}, self._settings.token)
        except TokensError as error:
            raise RenewalRefusedError(str(error)) from error
        if found.subject != tokens.subject:
            raise RenewalRefusedError("the issuer gave the tokens of somebody else")
        if found.bearer == tokens.bearer:
            raise RenewalRefusedError(f"the issuer gave no other {self._settings.token} token")
        return found

    def _renewal(self, refresh_token: str) -> dict[str, Any]:
        """What the token endpoint says to a refresh token. Raises as `renewed`."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        known_as = (self._settings.client_id, self._settings.client_secret)
        try:
            with httpx.Client(timeout=TIMEOUT_S, verify=tls_context(), trust_env=False) as client:
                told = client.get(self._settings.discovery_uri).raise_for_status().json()
                answer = client.post(str(told[TOKEN_ENDPOINT]), data=form, auth=known_as)
                said = answer.json()
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise RenewalFailedError(_said(error)) from error
        if answer.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED):
            raise RenewalRefusedError(f"it answered {str(said)[:200]}")
        if not answer.is_success or not isinstance(said, dict):
            raise RenewalFailedError(f"it answered {answer.status_code}")
        return said

    def _client(self, pending: PendingLogin | None) -> Any:
        """A client that knows nothing yet: what the issuer says of itself may have changed. `pending`: the
        login that it is for."""
        settings = self._settings
        return OAuth(cache=pending).register(
            "issuer",
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            server_metadata_url=settings.discovery_uri,
            client_kwargs={
                "scope": settings.scope,
                "code_challenge_method": "S256",
                "timeout": TIMEOUT_S,
                "verify": tls_context(),
                "trust_env": False,
            },
        )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
