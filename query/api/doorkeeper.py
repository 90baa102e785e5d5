"""Who is let in, settled before anything of a request's body is read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from lake.errors import FirnError
from query.access.access import as_bearer
from query.api.errors import answer_to, is_elastic
from query.api.services import Services

OPEN_PATHS = frozenset(
    {"/healthz", "/readyz", "/metrics", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
)


class Doorkeeper:
    """Lets callers in who have a key in force (all where the catalog asks for none), and to the open pages
    everybody. Plain ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            services: Services = scope["app"].state.services
            raw = next((value for name, value in scope["headers"] if name == b"authorization"), None)
            header = None if raw is None else raw.decode("latin-1")
            try:
                caller = await services.admit(as_bearer(header) if is_elastic(scope["path"]) else header)
            except FirnError as error:
                await answer_to(error, scope["path"])(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)
