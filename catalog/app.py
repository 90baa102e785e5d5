"""The catalog as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from catalog.error_response import CatalogError
from catalog.routes import (
    batch_commits,
    configuration,
    dirty_partitions,
    keys,
    leases,
    namespaces,
    parking,
    service,
    soft_delete,
    table_metrics,
    tables,
    tenants,
    views,
    work_lists,
)
from catalog.services import Services
from catalog.wire import RawPath, error_response
from lake.settings import CatalogSettings

# The busiest first: routes are tried in this order.
EVERYTHING = (
    tables,
    batch_commits,
    namespaces,
    views,
    leases,
    parking,
    dirty_partitions,
    work_lists,
    soft_delete,
    tenants,
    keys,
    table_metrics,
    configuration,
    service,
)
# What ingestion needs beside another catalog.
CONTROL = (leases, parking, keys, service)


def create_app(settings: CatalogSettings) -> FastAPI:
    """The application for a migrated database; it opens everything at startup and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = services = Services.open(settings)
        upkeep = asyncio.create_task(services.upkeep())
        yield
        upkeep.cancel()
        with suppress(asyncio.CancelledError):
            await upkeep
        await services.close()

    description = "Leases and parked records." if settings.control else "An Iceberg REST catalog for many tables."
    app = FastAPI(title="Firn catalog", version="1", description=description, lifespan=lifespan, redirect_slashes=False)
    for routes in CONTROL if settings.control else EVERYTHING:
        app.include_router(routes.router)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(RawPath)
    return app


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "no such route; see /docs", 405: "the route does not take this method; see /docs"}.get(status, str(error))
    return error_response(CatalogError(status, "NoSuchRouteException" if status == 404 else "BadRequestException", sentence))
