"""A login that has begun: what Authlib wants to know when the browser comes back, and where its person was.

It lies in the browser that began, sealed (JWE, RFC 7516) by a key of this process, so that nobody reads or
changes it there. Here nothing is kept: whoever begins logins without end pushes nobody's out and fills no
memory.
"""

import json
import time
from collections.abc import Callable

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

LASTS_S = 1_800  # from a login's beginning to its end, at the issuer
# Of a cookie's value: browsers keep 4,096 bytes of one with its name and attributes (RFC 6265, 6.1).
COOKIE_CHARACTERS_MAX = 3_800
_HEADER = {"alg": "dir", "enc": "A256GCM", "zip": "DEF"}
_ALGORITHMS = list(_HEADER.values())
_KEY_BITS = 256


class PendingLogin:
    """What is known of one login while a request about it is answered. Has the interface of Authlib's cache.
    `address`: the page that its person comes back to."""

    def __init__(self, address: str, texts: dict[str, str] | None = None) -> None:
        self.address = address
        self.texts = texts or {}

    async def set(self, name: str, text: str, _lasts_s: int = 0) -> None:
        """Keeps a text."""
        self.texts[name] = text

    async def get(self, name: str) -> str | None:
        """The text; None where there is none."""
        return self.texts.get(name)

    async def delete(self, name: str) -> None:
        """Forgets a text."""
        self.texts.pop(name, None)


class Seals:
    """Seals logins, and opens those that this process has sealed. `now_s`: s since 1970."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._key = OctKey.generate_key(_KEY_BITS)
        self._now_s = now_s

    def seal(self, login: PendingLogin) -> str:
        """A login as text for a cookie. An address that no cookie has room for loses what stands behind its
        path."""
        sealed = self._sealed(login, login.address)
        if len(sealed) > COOKIE_CHARACTERS_MAX:
            sealed = self._sealed(login, login.address.partition("?")[0])
        return sealed

    def _sealed(self, login: PendingLogin, address: str) -> str:
        told = {"ends_s": self._now_s() + LASTS_S, "address": address, "texts": login.texts}
        return jwe.encrypt_compact(_HEADER, json.dumps(told), self._key, algorithms=_ALGORITHMS)

    def open(self, sealed: str) -> PendingLogin | None:
        """The login; None where the text was sealed elsewhere or was changed, or the login has taken too
        long."""
        try:
            opened = jwe.decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS).plaintext
        except (JoseError, ValueError):  # whatever a stranger has put there
            return None
        told = json.loads(opened or b"null")
        if self._now_s() >= told["ends_s"]:
            return None
        return PendingLogin(told["address"], told["texts"])
