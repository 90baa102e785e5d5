"""Health, metrics and status of the ingester over HTTP."""

import threading

import uvicorn
from fastapi import Depends, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest.engines.local import LocalEngine
from ingest.serve.access import access
from ingest.serve.answers import add_error_handlers
from lake.settings import IngestSettings


def make_app(engine: LocalEngine, settings: IngestSettings) -> FastAPI:
    """The HTTP application over a running engine."""
    app = FastAPI(title="Firn ingest", docs_url=None, redoc_url=None, dependencies=[Depends(access(settings))])
    add_error_handlers(app)

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    def readyz(response: Response) -> dict[str, bool]:
        response.status_code = 200 if engine.ready else 503
        return {"ready": engine.ready}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/status")
    def status() -> dict[str, object]:
        return engine.status()

    return app


def serve_in_thread(engine: LocalEngine, settings: IngestSettings) -> None:
    """Serves in a daemon thread beside the engine, which keeps the main thread and its signals."""
    config = uvicorn.Config(make_app(engine, settings), host=settings.host, port=settings.port, log_level="warning", access_log=False)
    threading.Thread(target=uvicorn.Server(config).run, name="api", daemon=True).start()
