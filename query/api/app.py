"""The API as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lake.errors import FirnError
from lake.settings import QuerySettings
from query.api import (
    dead_letter_routes,
    erasure_routes,
    export_routes,
    field_routes,
    operations_routes,
    saved_routes,
    search_routes,
    sql_routes,
    stream_routes,
    table_routes,
    tail_routes,
)
from query.api.errors import add_error_handlers
from query.api.services import Services
from query.api.wire import ErrorAnswer

ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorAnswer, "description": "the question cannot be understood; the sentence says where and what to write"},
    401: {"model": ErrorAnswer, "description": "no key, or none in force"},
    403: {"model": ErrorAnswer, "description": "the key does not reach this"},
    404: {"model": ErrorAnswer, "description": "the named thing does not exist"},
    422: {"model": ErrorAnswer, "description": "another service understood the request and refuses it"},
    429: {"model": ErrorAnswer, "description": "too many at once"},
    503: {"model": ErrorAnswer, "description": "a service that is needed does not answer"},
    504: {"model": ErrorAnswer, "description": "it took too long"},
}

ROUTES = (
    search_routes,
    field_routes,
    sql_routes,
    export_routes,
    erasure_routes,
    table_routes,
    stream_routes,
    dead_letter_routes,
    tail_routes,
    saved_routes,
    operations_routes,
)


def create_app(settings: QuerySettings) -> FastAPI:
    """The application; it opens everything at startup and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = services = Services.open(settings)
        yield
        services.close()

    app = FastAPI(title="Firn search API", version="1", description="Search the logs of many tenants.", lifespan=lifespan, responses=ERRORS)
    for routes in ROUTES:
        app.include_router(routes.router)
    _add_service_routes(app)
    add_error_handlers(app)
    app.add_middleware(_NoSniffing)
    return app


def _add_service_routes(app: FastAPI) -> None:
    @app.get("/healthz", tags=["service"])
    async def healthz() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["service"])
    async def readyz(request: Request, response: Response) -> dict[str, bool]:
        """Whether the catalog answers; Trino is told beside it, because search pages do without."""
        services: Services = request.app.state.services
        loop = asyncio.get_running_loop()
        trino = await loop.run_in_executor(services.threads, services.trino.ping)
        try:
            await loop.run_in_executor(services.threads, lambda: services.access.needs_key)
            catalog = True
        except FirnError:
            catalog = False
        response.status_code = 200 if catalog else 503
        return {"ready": catalog, "catalog": catalog, "trino": trino}

    @app.get("/metrics", tags=["service"])
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


class _NoSniffing:
    """Tells browsers to take every answer for what it says it is.

    Plain ASGI: behind FastAPI's own kind of middleware a request cannot tell that its caller has gone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        await self._app(scope, receive, send_with_header if scope["type"] == "http" else send)
