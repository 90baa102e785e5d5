"""What the front end asks of a request before Streamlit looks at it: that no web page of a stranger has sent
it.

The Host header has to name this server, because an attacker's name may point at it (DNS rebinding), and an
Origin header the page that this server gave: a websocket is opened from any page without asking, and through
it goes everything that people do here. Streamlit can check both, but takes every page of this machine for its
own, and asks an address on the internet what this machine is called before it refuses one.
"""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from ui.settings import is_loopback

ANY = "*"


class PageGuard:
    """The ASGI application for requests that name `host`, this machine, or one of `allowed_hosts`, from pages
    of the same or of `allowed_origins`."""

    def __init__(
        self, app: ASGIApp, host: str, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._host = host
        self._names = frozenset(
            {
                "localhost",
                host.lower(),
                socket.gethostname().lower(),
                *(name.lower().rstrip(".") for name in allowed_hosts),
            }
        )
        self._origins = frozenset(origin.lower().rstrip("/") for origin in allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers.get(b"host", ""), headers.get(b"origin"))
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1][:100]})
        else:
            await send(
                {
                    "type": "http.response.start",
                    "status": refusal[0],
                    "headers": [(b"content-type", b"text/plain; charset=utf-8")],
                }
            )
            await send({"type": "http.response.body", "body": refusal[1].encode()})

    def _refusal(self, host: str, origin: str | None) -> tuple[int, str] | None:
        if not self._takes_host(host):
            return (
                421,
                (
                    "this front end has another name; add this one to FIRN_UI_ALLOWED_HOSTS if it is one of "
                    "its "
                    "own"
                ),
            )
        if (
            origin is not None
            and urlsplit(origin).netloc.lower() != host.lower()
            and origin.lower().rstrip("/") not in self._origins
        ):
            return (
                403,
                (
                    "a page of another origin may not speak to this front end; add it to "
                    "FIRN_UI_ALLOWED_ORIGINS "
                    "if it should"
                ),
            )
        return None

    def _takes_host(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            _ = parts.port
        except ValueError:
            return False
        name = (parts.hostname or "").rstrip(".")
        if not name or parts.netloc != host or "@" in host:
            return False
        if (
            ANY in self._names
            or name in self._names
            or any(each.startswith("*.") and name.endswith(each[1:]) for each in self._names)
        ):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not is_loopback(
            self._host
        )  # no DNS was asked for a number, so none can have lied
