"""Who may ask: everybody on this machine, or, where a token is set, who sends it."""

import hmac
import ipaddress
from collections.abc import Callable

from fastapi import Request

from ingest.serve.answers import UnauthorizedError
from lake.errors import SettingsError
from lake.settings import IngestSettings

OPEN_PATHS = ("/healthz", "/readyz")


def check_host(settings: IngestSettings, host: str) -> None:
    """Beyond loopback nobody is let in without a token. Raises SettingsError."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback and settings.serve_token is None:
        raise SettingsError(f"ingest refuses to listen on {host} without a token: set FIRN_INGEST_SERVE_TOKEN, and put TLS in front; or listen on 127.0.0.1")


def bearer(settings: IngestSettings) -> dict[str, str]:
    """The headers with which one part of ingest asks another."""
    return {} if settings.serve_token is None else {"Authorization": f"Bearer {settings.serve_token.get_secret_value()}"}


def access(settings: IngestSettings) -> Callable[[Request], None]:
    """A dependency that lets callers in who send the token; everybody where none is set, and to the health pages."""
    wanted = bearer(settings).get("Authorization", "").encode()

    def check(request: Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if wanted and request.url.path not in OPEN_PATHS and not hmac.compare_digest(given, wanted):
            raise UnauthorizedError("this needs the token that ingest was started with (serve_token); send it as `Authorization: Bearer ...`")

    return check
