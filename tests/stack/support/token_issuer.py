"""Where Firn gets tokens for Kafka: by client credentials over TLS, signed by an issuer whose keys the broker
knows."""

import base64
import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import orjson
import pytest

from infra.local import kafka_access
from infra.local.kafka_access import FIRN
from infra.local.ports import LOOPBACK
from infra.local.services import kafka as kafka_service
from lake.clock import SYSTEM_CLOCK
from tests.catalog.support.fake_issuer import AUDIENCE, KEYS, FakeIssuer, fake_issuer
from tests.stack.support.certificates import CertificateAuthority
from tests.stack.support.secured_kafka import secured_kafka, set_all

CERTIFICATE, JAVA_VARIABLE = "issuer", "JDK_JAVA_OPTIONS"
LIFETIME_S = 600
UNAUTHORIZED, NOT_NOW = 401, 503
_MODULE = "org.apache.kafka.common.security.oauthbearer"
# Kafka asks no address that is not named here.
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


class TokenIssuer:
    """`url`: of the token endpoint. `audience`, `lifetime_s`: of the tokens it gives from now on. `status`:
    what it answers in place of a token; None: it hangs up. `given`: the tokens so far."""

    def __init__(self, keys: FakeIssuer, secret_file: Path) -> None:
        self.keys = keys
        self.url = ""
        self.audience, self.lifetime_s = AUDIENCE, LIFETIME_S
        self.status: int | None = 200
        self.given: list[str] = []
        self.secret_file = secret_file
        secret_file.write_text(f"{secrets.token_hex(16)}\n")
        self.secret = secret_file.read_text().strip()

    def broker_properties(self) -> list[str]:
        """What Kafka's server.properties says of tokens, on the listener of users. A connection ends with its
        token, unless the client shows the next one before."""
        listener = "listener.name.sasl_ssl.oauthbearer"
        return [
            "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
            f"{listener}.sasl.jaas.config={_MODULE}.OAuthBearerLoginModule required;",
            f"{listener}.sasl.server.callback.handler.class={_MODULE}.OAuthBearerValidatorCallbackHandler",
            f"{listener}.connections.max.reauth.ms={1000 * LIFETIME_S}",
            f"sasl.oauthbearer.jwks.endpoint.url={self.keys.url}{KEYS}",
            f"sasl.oauthbearer.expected.audience={AUDIENCE}",
            f"sasl.oauthbearer.expected.issuer={self.keys.url}",
        ]

    def java_options(self) -> str:
        """What lets the broker's Java ask the issuer for its keys."""
        return f"{ALLOWED}={self.keys.url}{KEYS}"

    def exports(self) -> dict[str, str]:
        """How Firn comes in: variables of its settings, beside those of the CA."""
        reached_by = {
            "SASL_MECHANISM": "OAUTHBEARER",
            "SASL_USERNAME": "",
            "SASL_PASSWORD_FILE": "",
            "OAUTH_TOKEN_ENDPOINT": self.url,
            "OAUTH_CLIENT_ID": FIRN,
            "OAUTH_CLIENT_SECRET_FILE": str(self.secret_file),
        }
        return {f"FIRN_INGEST_KAFKA__{name}": value for name, value in reached_by.items()}

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, object]]:
        """Status and JSON of a request for a token."""
        known = base64.b64encode(f"{FIRN}:{self.secret}".encode()).decode()
        if self.status not in (None, 200):
            return self.status or NOT_NOW, {"error": "temporarily_unavailable"}
        if authorization != f"Basic {known}" or form.get("grant_type") != ["client_credentials"]:
            return UNAUTHORIZED, {"error": "invalid_client", "error_description": "no such client"}
        now_s = SYSTEM_CLOCK.now().timestamp()
        claims = {"sub": FIRN, "aud": self.audience, "exp": int(now_s) + self.lifetime_s}
        self.given.append(self.keys.token(now_s, **claims))
        return 200, {
            "access_token": self.given[-1],
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }


@contextmanager
def token_issuer(folder: Path, certificates: CertificateAuthority) -> Iterator[TokenIssuer]:
    """An issuer and its token endpoint, each on a port of its own; the second shows a certificate."""
    certificates.sign(CERTIFICATE)
    with fake_issuer() as keys:
        issuer = TokenIssuer(keys, folder / "client.secret")

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                if issuer.status is None:
                    return
                status, told = issuer.answer(self.headers.get("authorization", ""), parse_qs(body))
                answer = orjson.dumps(told)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates[f"{CERTIFICATE}.pem"], certificates[f"{CERTIFICATE}.key"])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        issuer.url = f"https://{LOOPBACK}:{server.server_address[1]}/token"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield issuer
        finally:
            server.shutdown()
            server.server_close()


@contextmanager
def kafka_by_token(folder: Path) -> Iterator[TokenIssuer]:
    """As `secured_kafka`, and Firn comes in by tokens of an issuer."""
    with ExitStack() as ends:
        made = ends.enter_context(secured_kafka(folder))
        issuer = ends.enter_context(token_issuer(folder, made.certificates))
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        properties, exports = kafka_service._properties, kafka_access.exports
        of_broker = issuer.broker_properties()
        patch.setattr(kafka_service, "_properties", lambda *given: [*properties(*given), *of_broker])
        patch.setattr(kafka_access, "exports", lambda given: {**exports(given), **issuer.exports()})
        patch.setenv(JAVA_VARIABLE, issuer.java_options())
        set_all(patch, issuer.exports())
        yield issuer
