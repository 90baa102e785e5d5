"""What every HTTP service of Firn asks of a request before anything else looks at it: that no web page of a
stranger has sent it.

A page in an operator's browser reaches what listens on that machine. Browsers tell on such a page, and this
listens to them:

    Host            is the name that the page was loaded from; one that an attacker's DNS points here
                    (rebinding) is none of ours
    Origin          names the page that sent a request which changes something; it has to be ours or one that
                    the settings name
    Sec-Fetch-Site  tells it of the requests that carry no Origin, such as images
    Content-Type    a page may send text or a form to anybody without asking; JSON only after a preflight,
                    which is refused

Plain ASGI, and cheap: it stands in front of every commit.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from lake import http_metrics
from lake.listening import is_loopback

HOSTS_KNOWN_MAX = 1_000
JSON_TYPE = b"application/json"
FORM_TYPE = b"application/x-www-form-urlencoded"
Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class GuardRules:
    """`host`: the address that is listened on. `allowed_hosts`, `allowed_origins`: see the settings.
    `form_paths`: routes whose body is a form. `types_below`: what bodies may be called beside JSON, by the
    beginning of the path; only what no page may send without asking."""

    host: str
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    form_paths: frozenset[str] = frozenset()
    types_below: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        own = {"localhost", self.host.lower(), socket.gethostname().lower()}
        object.__setattr__(
            self, "names", frozenset(own | {name.lower().rstrip(".") for name in self.allowed_hosts})
        )

    def takes_host(self, host: str) -> bool:
        """Whether a Host header names us. A number does wherever it can reach us: no DNS was asked for it, so
        none can have lied."""
        name = host_name(host)
        if name is None:
            return False
        if "*" in self.names or name in self.names or _is_below(name, self.names):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not is_loopback(self.host)

    def takes_type(self, given: bytes, path: str) -> bool:
        """Whether a route takes bodies of a type beside the usual one."""
        return any(path.startswith(below) and given in types for below, types in self.types_below.items())

    def takes_origin(self, origin: str, host: str) -> bool:
        """Whether an Origin header is of a page of ours, or of one that the settings name."""
        return urlsplit(origin).netloc.lower() == host.lower() or origin.lower().rstrip("/") in {
            each.lower().rstrip("/") for each in self.allowed_origins
        }


def host_name(host: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    if not parts.hostname or parts.netloc != host or "@" in host:
        return None
    return parts.hostname.rstrip(".")


def _is_below(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern.startswith("*.") and name.endswith(pattern[1:]) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered. `why`: its word in the metrics."""

    status: int
    why: str
    sentence: str


class HttpGuard:
    """The ASGI application behind these rules."""

    def __init__(self, app: Any, rules: GuardRules) -> None:
        self._app = app
        self._rules = rules
        self._hosts: dict[bytes, bool] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            http_metrics.REFUSED.labels(refusal.why).inc()
            await send_refusal(send, refusal.status, refusal.sentence)
            return
        origin = headers.get(b"origin")
        if origin is None or urlsplit(origin).netloc.lower() == headers.get(b"host", b"").lower():
            await self._app(scope, receive, send)
        else:  # of a page that the settings name
            await self._answer_page(scope, receive, send, origin)

    def _refusal(self, scope: Any, headers: dict[bytes, bytes]) -> Refusal | None:
        host = headers.get(b"host", b"")
        known = self._hosts.get(host)
        if known is None:
            known = self._look_at(host)
        if not known:
            name = host[:200].decode("latin-1")
            return Refusal(
                421,
                "host",
                f"this service is not known as {name!r}; add the name to http.allowed_hosts if it is one "
                "of its own",
            )
        if b"origin" in headers or b"sec-fetch-site" in headers:
            refusal = self._refuse_page(headers, host.decode("latin-1"))
            if refusal is not None:
                return refusal
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            wanted = FORM_TYPE if scope["path"] in self._rules.form_paths else JSON_TYPE
            given = headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
            if given != wanted and not self._rules.takes_type(given, scope["path"]):
                return Refusal(
                    415, "content_type", f"send the body as {wanted.decode()}, and say so in Content-Type"
                )
        return None

    def _refuse_page(self, headers: dict[bytes, bytes], host: str) -> Refusal | None:
        origin = headers.get(b"origin")
        if origin is not None:
            text = origin.decode("latin-1")
            if self._rules.takes_origin(text, host):
                return None
            return Refusal(
                403,
                "origin",
                f"a page of {text[:200]} may not speak to this service; add it to http.allowed_origins if it "
                "should",
            )
        # A link that somebody follows is a navigation: what it shows, the page it came from cannot read.
        if (
            headers[b"sec-fetch-site"] in (b"cross-site", b"same-site")
            and headers.get(b"sec-fetch-mode") != b"navigate"
        ):
            return Refusal(
                403,
                "origin",
                "a page of another origin may not speak to this service; add it to http.allowed_origins if "
                "it should",
            )
        return None

    def _look_at(self, host: bytes) -> bool:
        if len(self._hosts) >= HOSTS_KNOWN_MAX:
            self._hosts.clear()
        takes = self._hosts[host] = self._rules.takes_host(host.decode("latin-1"))
        return takes

    async def _answer_page(self, scope: Any, receive: Any, send: Any, origin: bytes) -> None:
        """Answers a page of an allowed origin as CORS has it (Fetch standard): its preflight here, everything
        else with its origin's name."""
        said: list[Header] = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS":
            allowed = [
                (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
                (b"access-control-allow-headers", b"authorization, content-type"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": [*said, *allowed]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_origin(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *said]}
            await send(message)

        await self._app(scope, receive, send_with_origin)


async def send_refusal(send: Any, status: int, sentence: str, *headers: Header) -> None:
    """An error as all services write it."""
    body = refusal_body(status, sentence)
    fixed = [
        (b"content-type", JSON_TYPE),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


def refusal_body(status: int, sentence: str) -> bytes:
    """The JSON of such an error."""
    return orjson.dumps({"error": {"message": sentence, "type": "BadRequestException", "code": status}})
