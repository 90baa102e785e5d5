"""What every FastAPI service of Firn has: pages for whoever watches it, and gates that a request passes
before a route sees it. The catalog, whose requests have to be cheap, has pages of its own."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from lake.http_body import BoundedBody
from lake.http_guard import GuardRules, HttpGuard
from lake.settings import HttpSettings


def add_gates(
    app: FastAPI,
    settings: HttpSettings,
    host: str,
    who: Callable[..., Any],
    *,
    types_below: Mapping[str, frozenset[bytes]] = MappingProxyType({}),
    **options: Any,
) -> None:
    """Adds the gates: strangers' pages are refused, then `who` (an ASGI middleware, made with `options`) lets
    callers in, then bodies are bounded. `host`: the address that is listened on; `types_below`: see
    `GuardRules`."""
    # The last that is added is the first that a request comes to.
    app.add_middleware(
        BoundedBody, bytes_max=settings.request_bytes_max, timeout_s=settings.request_timeout_s
    )
    app.add_middleware(who, **options)
    rules = GuardRules(host, settings.allowed_hosts, settings.allowed_origins, types_below=types_below)
    app.add_middleware(HttpGuard, rules=rules)


def add_service_routes(
    app: FastAPI,
    readiness: Callable[[], Awaitable[Mapping[str, object]]],
    *,
    measure: Callable[[], None] | None = None,
) -> None:
    """Adds /healthz, /readyz and /metrics. `readiness`: the answer of /readyz, `ready` in it decides between
    200 and 503; `measure`: brings figures up to date before they are told, and may block."""

    @app.get("/healthz", tags=["service"])
    async def healthz() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["service"], description=inspect.getdoc(readiness))
    async def readyz(response: Response) -> dict[str, object]:
        answer = dict(await readiness())
        response.status_code = 200 if answer["ready"] else 503
        return answer

    @app.get("/metrics", tags=["service"])
    async def metrics() -> Response:
        """Prometheus metrics."""
        if measure is not None:
            await run_in_threadpool(measure)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
