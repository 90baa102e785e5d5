"""The catalog as an ASGI application.

FastAPI makes the OpenAPI document and its page out of the routes; what it adds to each request would cost
more than a load, so Starlette serves them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from catalog.http.routes import (
    all_tables,
    batch_commits,
    batch_loads,
    configuration,
    deletions,
    dirty_partitions,
    holds,
    keys,
    leases,
    namespaces,
    parking,
    permissions,
    service,
    soft_delete,
    table_metrics,
    tables,
    tasks,
    tenants,
    views,
)
from catalog.http.services import Services
from catalog.http.wire import RawPath, RawRoute, error_response
from catalog.model.error_response import CatalogError
from lake.clock import Clock
from lake.http_guard import GuardRules, HttpGuard
from lake.settings import CatalogSettings

# The busiest first: routes are tried in this order.
EVERYTHING = (
    tables,
    batch_commits,
    batch_loads,
    namespaces,
    views,
    leases,
    parking,
    dirty_partitions,
    tasks,
    deletions,
    soft_delete,
    holds,
    tenants,
    all_tables,
    permissions,
    keys,
    table_metrics,
    configuration,
    service,
)
# What ingestion and erasures need beside another catalog.
CONTROL = (leases, parking, tasks, permissions, keys, service)


def create_app(settings: CatalogSettings, clock: Clock | None = None) -> Starlette:
    """The application for a migrated database; it opens everything at startup and closes it at shutdown.
    `clock`: None for the machine's."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.services = services = Services.open(settings, clock)
        upkeep = asyncio.create_task(services.upkeep())
        yield
        upkeep.cancel()
        with suppress(asyncio.CancelledError):
            await upkeep
        await services.close()

    control = "Leases, parked records and tasks."
    description = control if settings.control else "An Iceberg REST catalog for many tables."
    documented = FastAPI(title="Firn catalog", version="1", description=description, redoc_url=None)
    routes: list[Route] = []
    for module in CONTROL if settings.control else EVERYTHING:
        documented.include_router(module.router)
        routes += [_served(route) for route in module.router.routes if isinstance(route, RawRoute)]
    documents = [_served(route) for route in documented.routes if isinstance(route, Route)]
    rules = GuardRules(
        settings.http.host,
        settings.http.allowed_hosts,
        settings.http.allowed_origins,
        form_paths=frozenset({keys.TOKEN_PATH}),
    )
    middleware = [Middleware(HttpGuard, rules), Middleware(RawPath)]
    app = Starlette(
        routes=[*routes, *documents],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error},
        middleware=middleware,
    )
    app.router.redirect_slashes = False
    return app


def _served(route: RawRoute | Route) -> Route:
    handler = route.get_route_handler() if isinstance(route, RawRoute) else route.endpoint
    served = Route(route.path, handler, name=route.name, include_in_schema=False)
    served.methods = route.methods  # Starlette adds HEAD to every GET; here a HEAD has a route of its own
    return served


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "no such route; see /docs", 405: "the route does not take this method; see /docs"}.get(
        status, str(error)
    )
    return error_response(
        CatalogError(status, "NoSuchRouteException" if status == 404 else "BadRequestException", sentence)
    )
