"""The application of `python -m ingest serve`."""

import hmac
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from fastapi import Depends, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest.serve import dead_letter_routes, status_routes, tail_routes
from ingest.serve.answers import UnauthorizedError, add_error_handlers
from ingest.status import Status, StatusSource
from ingest.tools import Tools
from lake import metrics
from lake.errors import FirnError, SettingsError
from lake.settings import IngestSettings

OPEN_PATHS = ("/healthz", "/readyz")
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
    check = Depends(_access(tools.settings))
    app = FastAPI(title="Firn ingest", version="1", description="Lag, freshness, dead letters, live tail.", dependencies=[check])
    app.state.serve = state = ServeState(tools, tools.status())
    for routes in (status_routes, dead_letter_routes, tail_routes):
        app.include_router(routes.router)
    _add_service_routes(app, state)
    add_error_handlers(app)
    return app


def check_host(settings: IngestSettings) -> None:
    """Beyond loopback nobody is let in without a token. Raises SettingsError."""
    try:
        is_loopback = ipaddress.ip_address(settings.serve_host).is_loopback
    except ValueError:
        is_loopback = settings.serve_host == "localhost"
    if not is_loopback and settings.serve_token is None:
        raise SettingsError(
            f"ingest serve refuses to listen on {settings.serve_host} without a token: set FIRN_INGEST_SERVE_TOKEN, and put TLS in front; "
            "or listen on 127.0.0.1"
        )


def _access(settings: IngestSettings) -> Callable[[Request], None]:
    """Lets callers in who send the token; everybody where none is set."""
    token = settings.serve_token
    wanted = None if token is None else f"Bearer {token.get_secret_value()}".encode()

    def check(request: Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if wanted is not None and request.url.path not in OPEN_PATHS and not hmac.compare_digest(given, wanted):
            raise UnauthorizedError("this needs the token that ingest serve was started with (serve_token); send it as `Authorization: Bearer ...`")

    return check


def _add_service_routes(app: FastAPI, state: ServeState) -> None:
    @app.get("/healthz", tags=["service"])
    def healthz() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["service"])
    def readyz(response: Response) -> dict[str, object]:
        """Whether Kafka answers."""
        try:
            state.status.read()
        except FirnError as error:
            response.status_code = 503
            return {"ready": False, "reason": str(error)}
        return {"ready": True}

    @app.get("/metrics", tags=["service"])
    def prometheus() -> Response:
        """Prometheus metrics. Without Kafka the last figures stand."""
        try:
            _measure(state.status.read())
        except FirnError:
            return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _measure(status: Status) -> None:
    for each in status.lag.partitions:
        metrics.LAG_RECORDS.labels(each.partition.topic, str(each.partition.partition)).set(each.lag_records)
    metrics.COMPLETE_UNTIL.set(status.lag.complete_until.timestamp())
    metrics.TABLES_PARKED.clear()
    for reason in (status.parked or {}).values():
        metrics.TABLES_PARKED.labels(reason).inc()
    metrics.STALEST_COMMIT.clear()
    for tenant, moment in status.stalest(STALEST_LABELS):
        metrics.STALEST_COMMIT.labels(tenant).set(max(0.0, (status.now - moment).total_seconds()))
