"""Tokens of the issuer (JSON Web Tokens, RFC 7519 and RFC 9068), proved here, so that whoever shows one is
who it names.

What a token says of how to prove it counts for nothing beyond which key of the issuer's is meant: algorithms
are those of public keys alone, and addresses or keys inside of a token are never looked at.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError

from catalog.access.issuer_keys import IssuerKeys, Key
from catalog.access.roles import Person
from catalog.access.token_claims import SUBJECT_CHARACTERS_MAX, person_of
from catalog.model.error_response import CatalogError
from lake.clock import SYSTEM_CLOCK, Clock
from lake.settings.oidc import ALGORITHMS, OidcSettings

# Beside these there are tokens that only look alike: of a logout, or of a proof of possession.
TYPES = frozenset({"JWT", "AT+JWT", "APPLICATION/AT+JWT"})
TIME_MAX = 2**40
THREADS = 4
Json = dict[str, Any]


class _Registry(jws.JWSRegistry):
    """Headers of more than the library expects are ignored; how large all may be is bounded before."""

    max_header_length = 65_536


_REGISTRY = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


class TokenVerifier:
    """Finds out whose a token is. Belongs to one event loop; what has to be asked of the issuer is asked in
    threads."""

    def __init__(self, settings: OidcSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = IssuerKeys(settings, clock)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="issuer")

    async def person(self, token: str) -> Person:
        """The person of a token. Raises CatalogError 401, or 503 where the issuer would have to be asked and
        does not answer."""
        kid = self._key_id(token)
        key = self._keys.peek(kid)
        if key is None:
            key = await asyncio.get_running_loop().run_in_executor(self._threads, self._keys.find, kid)
        return person_of(self._proved(token, key), self._settings)

    def close(self) -> None:
        """Ends what asks."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._keys.close()

    def _key_id(self, token: str) -> str | None:
        """Which key is said to have signed it, before anything is proved. Raises CatalogError 401."""
        most = self._settings.token_bytes_max
        if len(token) > most:
            raise refused(f"it is larger than {most:,} bytes; have the issuer put less into it")
        try:
            header = jws.extract_compact(token.encode("ascii"), registry=_REGISTRY).headers()
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise refused("it is no JSON Web Token") from error
        if not isinstance(header, dict) or "crit" in header or "b64" in header:
            raise refused("its header asks for what is not done here")
        algorithm, kind, kid = header.get("alg"), header.get("typ", "JWT"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise refused("its algorithm is none of those with public keys")
        if not isinstance(kind, str) or kind.upper() not in TYPES:
            raise refused("it is a token of another kind")
        if kid is not None and not isinstance(kid, str):
            raise refused("its key id is no text")
        return kid

    def _proved(self, token: str, key: Key) -> Json:
        """The claims, which the issuer has signed for us and for now. Raises CatalogError 401."""
        try:
            claims = jwt.decode(token, key, algorithms=ALGORITHMS, registry=_REGISTRY).claims
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise refused("its signature does not hold") from error
        self._check_times(claims)
        expected = jwt.JWTClaimsRegistry(
            now=int(self._clock.now().timestamp()),
            leeway=int(self._settings.leeway_s),
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "values": list(self._settings.audiences)},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            expected.validate(claims)
        except ExpiredTokenError as error:
            raise CatalogError(
                401, "NotAuthorizedException", "the session expired on its token's end; log in again"
            ) from error
        except MissingClaimError as error:
            raise refused(f"a claim is missing: {error.description or 'iss, aud, sub or exp'}") from error
        except InvalidClaimError as error:
            raise refused(f"a claim does not hold: {error.description}") from error
        if len(claims["sub"]) > SUBJECT_CHARACTERS_MAX:
            raise refused("its subject is longer than one may be")
        if "cnf" in claims:
            raise refused("it is bound to a key of its holder, which nobody proves here; get a bearer token")
        return claims

    def _check_times(self, claims: Json) -> None:
        for name in ("exp", "nbf", "iat"):
            moment = claims.get(name)
            if isinstance(moment, int | float) and not abs(moment) < TIME_MAX:
                raise refused(f"a claim does not hold: {name} is no time")


def is_token(bearer: str) -> bool:
    """Whether something looks like a token of an issuer; keys of the catalog and tokens bought with them
    never do."""
    return bearer.count(".") == 2 and not bearer.startswith("firn")


def refused(why: str) -> CatalogError:
    """401: a token that proves nobody."""
    return CatalogError(401, "NotAuthorizedException", f"the token is not taken: {why}")
