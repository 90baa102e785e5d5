"""What an issuer gives for a code, or for a refresh token."""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMES = ("preferred_username", "name", "email", "sub")  # claims that say what a person is called


class TokensError(Exception):
    """The issuer gave not what was asked for; the message says what."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """`bearer`: what the API gets, until `ends_s` (s since 1970; infinite where it does not say).
    `refresh_token`: empty where there is none. `subject`: whose they are."""

    bearer: str
    ends_s: float
    subject: str
    called: str
    id_token: str
    refresh_token: str


def tokens_of(answer: Mapping[str, Any], kind: str) -> Tokens:
    """The tokens of a token endpoint's answer. `kind`: `access` or `id`, which of them the API gets. Raises
    TokensError."""
    bearer, id_token = answer.get(f"{kind}_token"), answer.get("id_token")
    if not isinstance(bearer, str) or not isinstance(id_token, str):
        raise TokensError(f"the issuer gave no ID token, or no {kind} token")
    claims, refresh_token = _claims(id_token), answer.get("refresh_token")
    end = _claims(bearer).get("exp")
    return Tokens(
        bearer=bearer,
        ends_s=end if isinstance(end, int | float) else math.inf,
        subject=str(claims.get("sub", "")),
        called=next((str(claims[name]) for name in NAMES if claims.get(name)), ""),
        id_token=id_token,
        refresh_token=refresh_token if isinstance(refresh_token, str) else "",
    )


def _claims(token: str) -> dict[str, Any]:
    """What a token says. Nobody is let in by it: the API proves the token."""
    try:
        part = token.split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
