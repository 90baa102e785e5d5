"""Whether people can log in: what the issuer says of itself, beside the settings of the catalog and the front
end's variables, where this process has them."""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms
from lake.clock import SYSTEM_CLOCK, Clock
from lake.settings.oidc import (
    ALGORITHMS,
    DISCOVERY,
    KEY_TYPES,
    RSA_BITS_MIN,
    OidcSettings,
    is_safe_uri,
)
from lake.tls import tls_context

NAME = "people"
ANSWER_S = 10.0
REDIRECT_VARIABLE, CALLBACK = "FIRN_UI_OIDC_REDIRECT_URI", "/oauth2callback"
PKCE = "S256"
HTTP_S = 1.0  # HTTP tells whole seconds
Json = Mapping[str, Any]


def look(rooms: Rooms, clock: Clock = SYSTEM_CLOCK) -> Iterator[Finding]:
    """Asks the issuer for its description and its keys. Raises httpx.HTTPError, ValueError."""
    settings = rooms.catalog.oidc
    if not settings.issuer:
        yield ok(NAME, "nobody logs in at an issuer: API keys alone let anybody in")
        return
    if uri := os.environ.get(REDIRECT_VARIABLE, ""):
        yield judge_redirect(uri)
    began = clock.now()
    answer = _asked(f"{settings.issuer.rstrip('/')}{DISCOVERY}")
    now = began + (clock.now() - began) / 2
    if answer.status_code != httpx.codes.OK:
        yield unknown(NAME, f"the issuer {settings.issuer} answers {answer.status_code}; nobody logs in now")
        return
    said = _object(answer)
    yield judge_issuer(settings.issuer, said)
    yield judge_algorithms(said)
    yield judge_clock(settings, answer.headers.get("date"), now)
    yield judge_claims(settings, said)
    keys = str(said.get("jwks_uri", ""))
    yield judge_keys(keys, _object(_asked(keys)).get("keys") or () if is_safe_uri(keys) else None)


def judge_redirect(uri: str) -> Finding:
    """`uri`: where the issuer sends browsers back to."""
    if not uri.endswith(CALLBACK):
        return unsafe(NAME, f"{REDIRECT_VARIABLE} is {uri}; it has to end with {CALLBACK}")
    if not is_safe_uri(uri):
        return unsafe(
            NAME, f"codes and cookies of sessions cross the network in the open: make {uri} an https address"
        )
    return ok(NAME, "the issuer sends browsers back to the front end by https, or on this machine")


def judge_issuer(issuer: str, said: Json) -> Finding:
    """`said`: by the issuer, of itself."""
    called = str(said.get("issuer"))[:200]
    if called != issuer:
        return unsafe(
            NAME,
            f"no token is taken: catalog.oidc.issuer is {issuer}, and the issuer calls itself {called};",
            "write it as its tokens do, letter by letter",
        )
    methods = said.get("code_challenge_methods_supported")
    if isinstance(methods, list) and PKCE not in methods:
        return warning(NAME, f"{issuer} does not say that it proves PKCE by {PKCE}; have it switched on")
    return ok(NAME, f"{issuer} answers, and calls itself so")


def judge_algorithms(said: Json) -> Finding:
    """`said`: as for `judge_issuer`."""
    offered = [str(each) for each in said.get("id_token_signing_alg_values_supported") or ()]
    taken = [each for each in offered if each in ALGORITHMS]
    if not taken:
        return unsafe(
            NAME,
            f"no token is taken: the issuer signs by {', '.join(offered) or 'what it does not say'}; have it",
            f"sign by one of {', '.join(ALGORITHMS)}",
        )
    return ok(NAME, f"the issuer can sign by {', '.join(taken)}")


def judge_clock(settings: OidcSettings, told: str | None, now: datetime) -> Finding:
    """`told`: the header Date, `now`: this machine's time when it was written."""
    if told is None:
        return unknown(NAME, "the issuer does not tell its time; compare it by hand")
    away_s = abs((parsedate_to_datetime(told) - now).total_seconds())
    if away_s <= max(HTTP_S, settings.leeway_s / 2):
        return ok(NAME, f"the issuer's clock and this one agree; {settings.leeway_s:g} s are allowed")
    tell = unsafe if away_s > settings.leeway_s else warning
    return tell(
        NAME,
        f"the issuer's clock is {away_s:.0f} s away from this one, and tokens are taken up to",
        f"catalog.oidc.leeway_s, {settings.leeway_s:g} s; run NTP on both",
    )


def judge_claims(settings: OidcSettings, said: Json) -> Finding:
    """`said`: as for `judge_issuer`. Issuers need not list all of their claims."""
    listed = said.get("claims_supported")
    asked = {"roles_claim": settings.roles_claim}
    if any(grant.tenants == "claimed" for grant in settings.grants.values()):
        asked["tenants_claim"] = settings.tenants_claim
    if not isinstance(listed, list):
        return unknown(NAME, "the issuer lists no claims; ask whoami with somebody's token")
    absent = [
        f"catalog.oidc.{name} = {claim}"
        for name, claim in asked.items()
        if claim not in listed and claim.partition(".")[0] not in listed
    ]
    if absent:
        return warning(
            NAME,
            f"perhaps nobody has a role: the issuer does not list {' and '.join(absent)} among its claims;",
            "have it put that into tokens, or ask whoami with somebody's token whether it does",
        )
    return ok(NAME, f"the issuer lists {' and '.join(asked.values())} among its claims")


def judge_keys(uri: str, keys: Sequence[Any] | None) -> Finding:
    """`keys`: what is at the address, None where it was not asked for."""
    if keys is None:
        return unsafe(NAME, f"no token is taken: its keys have no https address: {uri[:200]!r}")
    usable = [each for each in keys if isinstance(each, dict) and _is_usable(each)]
    if not usable:
        return unsafe(
            NAME,
            f"no token is taken: of {len(keys)} keys at {uri} none is a public one for signatures (RSA of at",
            f"least {RSA_BITS_MIN:,} bits, EC, Ed25519)",
        )
    if any(not each.get("kid") for each in usable) and len(usable) > 1:
        return warning(NAME, f"of {len(usable)} keys at {uri} some have no id; tokens by those are refused")
    return ok(NAME, f"{len(usable)} keys prove the issuer's tokens")


def _asked(uri: str) -> httpx.Response:
    return httpx.get(uri, timeout=ANSWER_S, verify=tls_context(), trust_env=False)


def _object(answer: httpx.Response) -> Json:
    """The JSON object of an answer. Raises ValueError."""
    said = answer.json()
    if not isinstance(said, dict):
        raise ValueError(f"{answer.url} gives no JSON object")  # noqa: TRY004 - as where it is no JSON
    return said


def _is_usable(key: Json) -> bool:
    if key.get("kty") not in KEY_TYPES or key.get("use", "sig") != "sig":
        return False
    return key["kty"] != "RSA" or _bits(str(key.get("n", ""))) >= RSA_BITS_MIN


def _bits(number: str) -> int:
    """Of a number as JSON Web Keys have it."""
    try:
        return int.from_bytes(base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
    except (binascii.Error, ValueError):
        return 0
