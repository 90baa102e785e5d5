"""The application of `python -m ingest serve`."""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest.serve import dead_letter_routes, erasure_routes, status_routes, tail_routes
from ingest.serve.access import add_gates
from ingest.serve.answers import add_error_handlers
from ingest.serve.status import Status, StatusSource
from ingest.serve.tools import Tools
from lake import metrics
from lake.errors import FirnError
from lake.readiness import Readiness

STALEST_LABELS = 20


@dataclass
class ServeState:
    """What the routes share. `letters`: one at a time reads the dead-letter topic or replays."""

    tools: Tools
    status: StatusSource
    letters: Lock = field(default_factory=Lock)
    tails: int = 0


def create_app(tools: Tools) -> FastAPI:
    """The application over opened tools."""
    app = FastAPI(title="Firn ingest", version="1", description="Lag, freshness, dead letters, live tail.")
    app.state.serve = state = ServeState(tools, tools.status())
    for routes in (status_routes, dead_letter_routes, erasure_routes, tail_routes):
        app.include_router(routes.router)
    _add_service_routes(app, state)
    add_error_handlers(app)
    add_gates(app, tools.settings, tools.settings.serve_host)
    return app


def _add_service_routes(app: FastAPI, state: ServeState) -> None:
    readiness = Readiness({"kafka": lambda: _kafka(state.status)})

    @app.get("/healthz", tags=["service"])
    async def healthz() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["service"])
    async def readyz(response: Response) -> dict[str, object]:
        """Whether Kafka answers. Within six seconds, whatever hangs."""
        reason = (await readiness.ask())["kafka"]
        if reason is not None:
            response.status_code = 503
            return {"ready": False, "reason": reason}
        return {"ready": True}

    @app.get("/metrics", tags=["service"])
    def prometheus() -> Response:
        """Prometheus metrics. Without Kafka the last figures stand."""
        try:
            _measure(state.status.read())
        except FirnError:
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _kafka(source: StatusSource) -> str | None:
    try:
        source.read()
    except FirnError as error:
        return str(error)
    return None


def _measure(status: Status) -> None:
    for each in status.lag.partitions:
        metrics.GROUP_LAG_RECORDS.labels(each.partition.topic, str(each.partition.partition)).set(
            each.lag_records
        )
    metrics.COMPLETE_UNTIL.set(status.lag.complete_until.timestamp())
    if status.parked is not None:
        metrics.GROUP_TABLES_PARKED.clear()
        for reason, number in Counter(status.parked.values()).items():
            metrics.GROUP_TABLES_PARKED.labels(reason).set(number)
    metrics.STALEST_COMMIT.clear()
    for tenant, moment in status.stalest(STALEST_LABELS):
        metrics.STALEST_COMMIT.labels(tenant).set(max(0.0, (status.now - moment).total_seconds()))
