"""Health, metrics and status of the ingester over HTTP."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest.node.engines.local import LocalEngine
from ingest.serve.access import add_gates, limits
from ingest.serve.answers import add_error_handlers
from lake.http_server import bounded_server
from lake.settings import IngestSettings

GRACE_S = 2  # for answers under way


def make_app(engine: LocalEngine, settings: IngestSettings) -> FastAPI:
    """The HTTP application over a running engine."""
    app = FastAPI(title="Firn ingest", docs_url=None, redoc_url=None)
    add_error_handlers(app)
    add_gates(app, settings, settings.host)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, bool]:
        response.status_code = 200 if engine.ready else 503
        return {"ready": engine.ready}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/status")
    def status() -> dict[str, object]:
        return engine.status()

    return app


@contextmanager
def serving(engine: LocalEngine, settings: IngestSettings, listener: socket.socket) -> Iterator[None]:
    """Serves in a thread beside the engine, which keeps the main thread and its signals, until the engine has
    ended.

    The thread is gone before the interpreter is: a timer of uvloop that fires while Python is taken apart
    ends the process by a segmentation fault.
    """
    server = bounded_server(
        make_app(engine, settings), limits(settings), log_level="warning", timeout_graceful_shutdown=GRACE_S
    )
    thread = threading.Thread(target=server.run, args=([listener],), name="api", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(3 * GRACE_S)
