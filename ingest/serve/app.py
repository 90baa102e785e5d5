"""The application of `python -m ingest serve`."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from fastapi import FastAPI

from ingest.serve import (
    audit_routes,
    dead_letter_routes,
    erasure_routes,
    status_routes,
    tail_routes,
    usage_routes,
)
from ingest.serve.access import add_gates
from ingest.serve.answers import add_error_handlers
from ingest.serve.status import Status, StatusSource
from ingest.serve.tools import Tools
from lake import metrics
from lake.certificate_ends import CertificateEnds, of_ingest
from lake.errors import FirnError
from lake.http_service import add_service_routes
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
    for routes in (
        status_routes,
        dead_letter_routes,
        erasure_routes,
        tail_routes,
        audit_routes,
        usage_routes,
    ):
        app.include_router(routes.router)
    _add_service_routes(app, state)
    add_error_handlers(app)
    add_gates(app, tools.settings, tools.settings.serve.host)
    return app


def _add_service_routes(app: FastAPI, state: ServeState) -> None:
    asked = Readiness({"kafka": lambda: _kafka(state.status)})

    async def readiness() -> dict[str, object]:
        """Whether Kafka answers. Within six seconds, whatever hangs."""
        reason = (await asked.ask())["kafka"]
        return {"ready": True} if reason is None else {"ready": False, "reason": reason}

    ends = CertificateEnds(of_ingest(state.tools.settings))

    def measure() -> None:
        ends.note()
        with suppress(FirnError):  # without Kafka the last figures stand
            _measure(state.status.read())

    add_service_routes(app, readiness, measure=measure)


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
