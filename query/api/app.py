"""The API as an ASGI application."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lake.certificate_ends import CertificateEnds, of_query
from lake.http_service import add_gates, add_service_routes
from lake.readiness import Readiness
from lake.settings import QuerySettings
from query.api import (
    alert_routes,
    board_routes,
    dead_letter_routes,
    elastic_index_routes,
    elastic_routes,
    erasure_routes,
    export_routes,
    field_routes,
    hold_routes,
    limit_routes,
    operations_routes,
    pipe_routes,
    retention_routes,
    saved_routes,
    search_routes,
    sql_routes,
    stream_routes,
    table_routes,
    tail_routes,
    tenant_routes,
    usage_routes,
)
from query.api.audited import check_audited
from query.api.doorkeeper import Doorkeeper
from query.api.errors import ELASTIC_PREFIX, ELASTIC_TYPES, add_error_handlers, is_elastic
from query.api.observed import observed
from query.api.services import Services
from query.api.wire import ErrorAnswer

ERRORS: dict[int | str, dict[str, object]] = {
    400: {
        "model": ErrorAnswer,
        "description": "the question cannot be understood; the sentence says where and what to write",
    },
    401: {"model": ErrorAnswer, "description": "no key, or none in force"},
    403: {"model": ErrorAnswer, "description": "the key does not reach this"},
    404: {"model": ErrorAnswer, "description": "the named thing does not exist"},
    422: {"model": ErrorAnswer, "description": "another service understood the request and refuses it"},
    429: {
        "model": ErrorAnswer,
        "description": "too many at once, or more than the tenant may use; `Retry-After` says until when",
    },
    503: {"model": ErrorAnswer, "description": "a service that is needed does not answer"},
    504: {"model": ErrorAnswer, "description": "it took too long"},
}

ROUTES = (
    search_routes,
    pipe_routes,
    field_routes,
    sql_routes,
    export_routes,
    erasure_routes,
    alert_routes,
    board_routes,
    table_routes,
    stream_routes,
    tenant_routes,
    retention_routes,
    hold_routes,
    limit_routes,
    dead_letter_routes,
    tail_routes,
    usage_routes,
    saved_routes,
    operations_routes,
    elastic_routes,
    elastic_index_routes,
)


def create_app(settings: QuerySettings) -> FastAPI:
    """The application; it opens everything at startup and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = services = Services.open(settings)
        app.state.readiness = readiness = Readiness(
            {"catalog": _probe(services.access.ping), "trino": _probe(services.trino.ping)}
        )
        yield
        readiness.close()
        services.close()

    app = FastAPI(
        title="Firn search API",
        version="1",
        description="Search the logs of many tenants.",
        lifespan=lifespan,
        responses=ERRORS,
    )
    check_audited(routes.router for routes in ROUTES)
    for routes in ROUTES:
        app.include_router(routes.router, dependencies=[Depends(observed)])

    async def readiness() -> dict[str, bool]:
        """Whether the catalog answers; Trino is told beside it, because search pages do without. Within six
        seconds, whatever hangs."""
        asked: Readiness = app.state.readiness
        found = {name: said is None for name, said in (await asked.ask()).items()}
        return {"ready": found["catalog"], **found}

    add_service_routes(app, readiness, measure=CertificateEnds(of_query(settings)).note)
    add_error_handlers(app)
    add_gates(app, settings.http, settings.http.host, Doorkeeper, types_below={ELASTIC_PREFIX: ELASTIC_TYPES})
    app.add_middleware(_Headers)
    return app


def _probe(answers: Callable[[], bool]) -> Callable[[], str | None]:
    return lambda: None if answers() else "no answer"


class _Headers:
    """Tells browsers to take every answer for what it says it is, and Elasticsearch's clients that theirs are
    the dialect they speak.

    Plain ASGI: behind FastAPI's own kind of middleware a request cannot tell that its caller has gone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                if is_elastic(scope["path"]):
                    headers.setdefault("X-Elastic-Product", "Elasticsearch")
            await send(message)

        await self._app(scope, receive, send_with_header if scope["type"] == "http" else send)
