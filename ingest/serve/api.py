"""Health, metrics and status of the ingester over HTTP."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from ingest.node.engines.local import LocalEngine
from ingest.serve.access import add_gates
from ingest.serve.answers import add_error_handlers
from lake.certificate_ends import CertificateEnds, of_ingest
from lake.http_server import bounded_server
from lake.http_service import add_service_routes
from lake.settings import IngestSettings

SHUTDOWN_S = 2


def make_app(engine: LocalEngine, settings: IngestSettings) -> FastAPI:
    """The HTTP application over a running engine."""
    app = FastAPI(title="Firn ingest", docs_url=None, redoc_url=None)
    add_error_handlers(app)
    add_gates(app, settings, settings.node.host)

    async def readiness() -> dict[str, bool]:
        """Whether the engine writes what comes."""
        return {"ready": engine.ready}

    ends = CertificateEnds(of_ingest(settings))
    add_service_routes(app, readiness, measure=ends.note)

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
        make_app(engine, settings), settings.http, shutdown_s=SHUTDOWN_S, log_level="warning"
    )
    thread = threading.Thread(target=server.run, args=([listener],), name="api", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(3 * SHUTDOWN_S)
