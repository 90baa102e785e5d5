"""An issuer in the test's process at which people log in without a form: the authorization code flow with
PKCE, refresh tokens that are good for one time, the end of a session. It passes the suite that real ones
pass (tests/contracts/support/login_suite.py)."""

import base64
import hashlib
import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import orjson

from lake.clock import SystemClock
from tests.catalog.support.fake_issuer import Answer, FakeIssuer, Json, serve
from tests.ui.support.provider import CLIENT, CLIENT_SECRET

AUTHORIZE, TOKEN, END = "/authorize", "/token", "/end"
REFUSED = {"error": "invalid_grant"}


@dataclass(frozen=True)
class _Asked:
    """What an authorization request has said."""

    redirect_uri: str
    challenge: str
    nonce: str


class FakeLoginIssuer(FakeIssuer):
    """`person`: claims of whoever logs in. `lasts_s`: seconds that tokens are good for. `given`: every token
    and code that left it; `asked_for`: what browsers brought. `refreshes`: whether it gives refresh tokens;
    `renews_id_tokens`: whether it gives ID tokens for them. `busy`: whether its token endpoint answers 503.
    `in_id_token`: claims that it tells falsely there. `signs_by`: a key by its id, where not by the newest
    that it tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.person: Json = {"sub": "1-ann", "preferred_username": "ann"}
        self.lasts_s = 600
        self.given: list[str] = []
        self.asked_for: list[Json] = []
        self.refreshes = True
        self.busy = False
        self.in_id_token: Json = {}
        self.signs_by = ""
        self.renews_id_tokens = True
        self._codes: dict[str, _Asked] = {}
        self._refresh_tokens: set[str] = set()

    def about(self) -> Json:
        """With the addresses of the flow."""
        return {
            **super().about(),
            "authorization_endpoint": f"{self.url}{AUTHORIZE}",
            "token_endpoint": f"{self.url}{TOKEN}",
            "end_session_endpoint": f"{self.url}{END}",
            "id_token_signing_alg_values_supported": ["ES256", "RS256"],
        }

    def answer(self, request: BaseHTTPRequestHandler) -> Answer:
        """As a browser, or the client, is answered."""
        parts = urlsplit(request.path)
        if parts.path == AUTHORIZE:
            return self._authorize(_single(parts.query))
        if parts.path == TOKEN:
            sent = request.rfile.read(int(request.headers["content-length"])).decode()
            return self._give(_single(sent), request.headers.get("authorization", ""))
        return super().answer(request)

    def _authorize(self, asked: dict[str, str]) -> Answer:
        self.asked_for.append(asked)
        code = self._new()
        challenge, nonce = asked.get("code_challenge", ""), asked.get("nonce", "")
        self._codes[code] = _Asked(asked["redirect_uri"], challenge, nonce)
        back = f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
        return 302, {"location": back}, b""

    def _give(self, form: dict[str, str], authorization: str) -> Answer:
        known = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if self.busy:
            return 503, {}, b"{}"
        if authorization != f"Basic {known}":
            return 401, {}, orjson.dumps({"error": "invalid_client"})
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self._refresh_tokens:
                return 400, {}, orjson.dumps(REFUSED)
            self._refresh_tokens.remove(form["refresh_token"])
            return self._tokens("", with_id=self.renews_id_tokens)
        asked = self._codes.pop(form["code"], None)
        proved = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or asked.redirect_uri != form["redirect_uri"]:
            return 400, {}, orjson.dumps(REFUSED)
        if asked.challenge != proved.rstrip(b"=").decode():
            return 400, {}, orjson.dumps(REFUSED)
        return self._tokens(asked.nonce)

    def _tokens(self, nonce: str, *, with_id: bool = True) -> Answer:
        now_s = SystemClock().now().timestamp()
        told = {**self.person, "exp": int(now_s) + self.lasts_s, "aud": CLIENT, "jti": secrets.token_hex(8)}
        answer: dict[str, Any] = {"token_type": "Bearer", "expires_in": self.lasts_s}
        answer["access_token"] = self._signed(now_s, told)
        self.given.append(answer["access_token"])
        if with_id:
            answer["id_token"] = self._signed(now_s, {**told, "nonce": nonce or None, **self.in_id_token})
            self.given.append(answer["id_token"])
        if self.refreshes:
            answer["refresh_token"] = self._new()
            self._refresh_tokens.add(answer["refresh_token"])
        return 200, {"content-type": "application/json"}, orjson.dumps(answer)

    def _signed(self, now_s: float, claims: Json) -> str:
        return self.sign(self.claims(now_s, **claims), kid=self.signs_by)

    def _new(self) -> str:
        self.given.append(secrets.token_urlsafe(24))
        return self.given[-1]


def fake_login_issuer() -> AbstractContextManager[FakeLoginIssuer]:
    """One on a port of its own."""
    return serve(FakeLoginIssuer())


def _single(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
