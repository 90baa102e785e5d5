"""The public keys of the issuer, by which its tokens are proved: fetched when they are needed, kept for a
while.

The issuer may change its keys at any time, and says so by a token with a key id that nobody has seen. So may
anybody else: whatever ids tokens name, it is asked once in `fetch_interval_s`. While it does not answer, the
keys that are known go on.
"""

import threading
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import structlog
from joserfc import jwk
from joserfc.errors import JoseError

from catalog.model import metrics
from catalog.model.error_response import CatalogError, unavailable
from lake.clock import SYSTEM_CLOCK, Clock
from lake.settings.oidc import DISCOVERY, KEY_TYPES, RSA_BITS_MIN, OidcSettings, is_safe_uri
from lake.tls import tls_context

log = structlog.get_logger()
ANSWER_BYTES_MAX = 1_000_000
KEYS_MAX = 100
Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey


class IssuerError(Exception):
    """The issuer does not answer, or not as one does."""


class IssuerKeys:
    """The keys of one issuer. Thread-safe; `peek` asks nobody."""

    def __init__(self, settings: OidcSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._http = httpx.Client(
            timeout=settings.timeout_s, verify=tls_context(), follow_redirects=False, trust_env=False
        )
        self._fetching = threading.Lock()
        self._keys: Mapping[str, Key] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._problem = ""

    def peek(self, kid: str | None) -> Key | None:
        """The key of this id, where it is known and need not be asked for; of none, the only one."""
        return self._known(kid) if not self._is_due() else None

    def find(self, kid: str | None) -> Key:
        """The key of this id, asked for where need be. Raises CatalogError 401 where the issuer has none, 503
        where it does not say."""
        if self._is_due() or self._known(kid) is None:
            self._renew(waits=self._known(kid) is None)
        found = self._known(kid)
        if found is not None:
            return found
        if self._problem:
            raise unavailable(
                f"nobody can be let in by this token now: the issuer {self._settings.issuer} "
                f"{self._problem}; API keys are taken as ever, try again"
            )
        raise CatalogError(
            401, "NotAuthorizedException", "the token is signed by a key that its issuer does not have"
        )

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _known(self, kid: str | None) -> Key | None:
        keys = self._keys
        if kid is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(kid)

    def _is_due(self) -> bool:
        """Whether what is known is old, and it may be asked for."""
        now_s = self._clock.monotonic_s()
        is_old = self._fetched_s is None or now_s - self._fetched_s >= self._settings.keys_kept_s
        return is_old and self._may_ask(now_s)

    def _may_ask(self, now_s: float) -> bool:
        return self._tried_s is None or now_s - self._tried_s >= self._settings.fetch_interval_s

    def _renew(self, *, waits: bool) -> None:
        """Asks the issuer, unless somebody does; `waits`: for whoever does."""
        if not self._fetching.acquire(blocking=waits):
            return
        try:
            now_s = self._clock.monotonic_s()
            if not self._may_ask(now_s):
                return
            self._tried_s = now_s
            try:
                self._keys = self._fetch()
            except IssuerError as error:
                self._problem = str(error)
                metrics.issuer_fetches.labels("failed").inc()
                log.warning("catalog.issuer_failed", issuer=self._settings.issuer, error=self._problem)
                return
            metrics.issuer_fetches.labels("done").inc()
            self._fetched_s, self._problem = now_s, ""
        finally:
            self._fetching.release()

    def _fetch(self) -> dict[str, Key]:
        """The keys by id. Raises IssuerError."""
        issuer = self._settings.issuer
        said = self._get(f"{issuer.rstrip('/')}{DISCOVERY}")
        if said.get("issuer") != issuer:
            raise IssuerError(f"calls itself {str(said.get('issuer'))[:200]!r}")
        uri = said.get("jwks_uri")
        if not isinstance(uri, str) or not is_safe_uri(uri):
            raise IssuerError("names no https address of its keys")
        listed = self._get(uri).get("keys")
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise IssuerError(f"gives no list of at most {KEYS_MAX} keys")
        keys: dict[str, Key] = {}
        for at, each in enumerate(listed):
            key = _usable(each)
            if key is not None:
                keys.setdefault(str(each.get("kid", f"#{at}")), key)
        if not keys:
            raise IssuerError("has no key by which a signature could be proved")
        return keys

    def _get(self, uri: str) -> dict[str, Any]:
        """A JSON object of the issuer's. Raises IssuerError."""
        ends_s = self._clock.monotonic_s() + self._settings.timeout_s
        body = bytearray()
        try:
            with self._http.stream("GET", uri, headers={"accept": "application/json"}) as response:
                if response.status_code != httpx.codes.OK:
                    raise IssuerError(f"answers {response.status_code} at {uri}")
                for part in response.iter_bytes():
                    body += part
                    if len(body) > ANSWER_BYTES_MAX or self._clock.monotonic_s() > ends_s:
                        raise IssuerError(f"takes too long, or says too much, at {uri}")
        except httpx.HTTPError as error:
            raise IssuerError(f"does not answer at {uri} ({type(error).__name__})") from error
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise IssuerError(f"answers no JSON at {uri}") from error
        if not isinstance(found, dict):
            raise IssuerError(f"answers no JSON object at {uri}")
        return found


def _usable(given: Any) -> Key | None:
    """A key by which signatures may be proved; None for any other."""
    if not isinstance(given, dict) or given.get("kty") not in KEY_TYPES:
        return None
    if given.get("use", "sig") != "sig" or not isinstance(given.get("kid", ""), str):
        return None
    try:
        key = jwk.import_key(given)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, jwk.RSAKey):
        return key if key.public_key.key_size >= RSA_BITS_MIN else None
    return key if isinstance(key, jwk.ECKey | jwk.OKPKey) else None
