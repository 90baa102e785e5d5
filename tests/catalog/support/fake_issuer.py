"""An issuer in the test's process: it tells its keys over HTTP as OpenID Connect has it, signs what a test
wants, and changes its keys when a test says so. The suite of tests/contracts runs on it and on a real one."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import orjson
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jwk, jwt

DISCOVERY, KEYS = "/.well-known/openid-configuration", "/keys"
AUDIENCE, SUBJECT = "firn", "f81d4fae"
SIGNING_S = 600
MAKERS: dict[str, Callable[[], Any]] = {
    "EC": lambda: jwk.ECKey.generate_key("P-256"),
    "OKP": lambda: jwk.OKPKey.generate_key("Ed25519"),
    "RSA": lambda: jwk.RSAKey.generate_key(2_048),
}
Json = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]
IssuerT = TypeVar("IssuerT", bound="FakeIssuer")


class FakeIssuer:
    """`keys`: what it says of its keys, by id. `asked`: how often it was asked for them. `is_up`: whether it
    answers."""

    def __init__(self) -> None:
        self.url = ""
        self.called = ""  # what it calls itself; its address, unless a test says otherwise
        self.asked = 0
        self.is_up = True
        self.keys: dict[str, Json] = {}
        self._private: dict[str, Any] = {}
        self.rotate("first")

    def rotate(self, kid: str, kind: str = "EC", *, keep: bool = False, **fields: Any) -> None:
        """Signs by a new key from here on; the old ones are told of no more, unless they are kept."""
        made = MAKERS[kind]()
        if not keep:
            self.keys = {}
        self._private[kid] = made
        self.keys[kid] = {**made.as_dict(private=False), "kid": kid, "use": "sig", **fields}

    def claims(self, now_s: float, **changed: Any) -> Json:
        """Good claims for the next ten minutes; a claim that is changed to None is left out."""
        told = {"iss": self.called or self.url, "aud": AUDIENCE, "sub": SUBJECT, "iat": int(now_s)}
        told |= {"exp": int(now_s) + SIGNING_S, "preferred_username": "ann", "groups": ["team"], **changed}
        return {name: value for name, value in told.items() if value is not None}

    def sign(self, claims: Json, *, kid: str = "", algorithm: str = "", **header: Any) -> str:
        """A token of these claims, by the newest key or by another."""
        kid = kid or list(self.keys)[-1]
        key = self._private[kid]
        algorithm = algorithm or {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA"}[key.key_type]
        head = {"alg": algorithm, "kid": kid, **header}
        return jwt.encode({name: each for name, each in head.items() if each}, claims, key, [algorithm])

    def sign_by_hand(self, header: Json, claims: Json) -> str:
        """A token with just this header, by the RSA key `rsa`: the library would not make every one."""
        parts = (base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in (header, claims))
        signed = b".".join(parts)
        made = self._private["rsa"].private_key.sign(signed, PKCS1v15(), SHA256())
        return (signed + b"." + base64.urlsafe_b64encode(made).rstrip(b"=")).decode()

    def token(self, now_s: float, **changed: Any) -> str:
        """A good token, but for the claims that are changed."""
        return self.sign(self.claims(now_s, **changed))

    def about(self) -> Json:
        """What it says of itself."""
        return {"issuer": self.called or self.url, "jwks_uri": f"{self.url}{KEYS}"}

    def answer(self, request: BaseHTTPRequestHandler) -> Answer:
        """Status, headers and body for a request."""
        if not self.is_up:
            return 502, {}, b""
        if request.path == DISCOVERY:
            return 200, {}, orjson.dumps(self.about())
        self.asked += 1
        return 200, {}, orjson.dumps({"keys": list(self.keys.values())})


@contextmanager
def serve(issuer: IssuerT) -> Iterator[IssuerT]:
    """Gives an issuer a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = issuer.answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - http.server's own name

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()


def fake_issuer() -> AbstractContextManager[FakeIssuer]:
    """An issuer on a port of its own."""
    return serve(FakeIssuer())
