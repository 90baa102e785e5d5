"""What describes and watches the server itself: configuration, health, metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from catalog.access import Need
from catalog.idempotency import LIFETIME_TEXT
from catalog.wire import RawRoute, describe, json_response, services_of

router = APIRouter(route_class=RawRoute, tags=["service"])

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/views/rename",
    "POST /v1/{prefix}/namespaces/{namespace}/register-view",
    "POST /v1/{prefix}/transactions/commit",
)


@router.get("/v1/config", **describe("Tell clients what this catalog can do", query=("warehouse",)))
async def config(request: Request) -> Response:
    """`firn.extras` and `firn.warehouse` tell Firn's own clients what they may use."""
    services = services_of(request)
    overrides = {"firn.extras": "v1", "firn.warehouse": services.store.warehouse}
    return json_response({"defaults": {}, "overrides": overrides, "endpoints": ENDPOINTS, "idempotency-key-lifetime": LIFETIME_TEXT})


@router.get("/healthz", **describe("The process answers", needs=Need.NOTHING))
async def healthz(_: Request) -> Response:
    """200 as soon as the process serves."""
    return json_response({"status": "ok"})


@router.get("/readyz", **describe("The database answers", needs=Need.NOTHING))
async def readyz(request: Request) -> Response:
    """200 when the database answers, 503 else."""
    try:
        await services_of(request).read(lambda connection: connection.execute(text("SELECT 1")).scalar())
    except DBAPIError as error:
        return json_response({"status": "the database does not answer", "error": str(error.orig)}, 503)
    return json_response({"status": "ready"})


@router.get("/metrics", **describe("Metrics in Prometheus' text format", needs=Need.NOTHING))
async def prometheus(_: Request) -> Response:
    """Counters of this process."""
    return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})
