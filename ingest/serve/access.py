"""Who may ask: everybody on this machine, or, where a token is set, who sends it. Settled before anything of
a request's body is read."""

import hmac
from collections.abc import Mapping

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from ingest.serve.answers import problem
from ingest.serve.node_token import bearer
from lake import http_service
from lake.settings import IngestSettings

OPEN_PATHS = ("/healthz", "/readyz")


class TokenGate:
    """Lets callers in who send the token; everybody where none is set, and to the health pages. Plain
    ASGI."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._wanted = headers.get("Authorization", "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._wanted and scope["path"] not in OPEN_PATHS:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._wanted):
                sentence = (
                    "this needs the token that ingest was started with (ingest.http.token); send it as "
                    "`Authorization: Bearer ...`"
                )
                await problem(401, sentence)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def add_gates(app: FastAPI, settings: IngestSettings, host: str) -> None:
    """Adds the gates of any service, with that of the token."""
    http_service.add_gates(app, settings.http, host, TokenGate, headers=bearer(settings))
