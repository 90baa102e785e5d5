"""What this catalog can do, for clients (Iceberg REST specification, `/v1/config`)."""

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.idempotency import LIFETIME_TEXT
from catalog.http.wire import RawRoute, describe, json_response, services_of
from lake.retention import PROPERTY

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


@router.get(
    "/v1/config", **describe("Tell clients what this catalog can do", query=("warehouse",), needs=Need.KEY)
)
async def config(request: Request) -> Response:
    """`firn.extras` and `firn.warehouse` tell Firn's own clients what they may use, `firn.retention` how long
    rows are kept of which nobody else says it, `firn.limits.*` what tenants may use of whom nobody else
    says it."""
    services = services_of(request)
    overrides = {"firn.extras": "v1", "firn.warehouse": services.store.warehouse}
    if services.settings.retention:
        overrides[PROPERTY] = services.settings.retention
    overrides |= services.settings.limits.properties()
    return json_response(
        {
            "defaults": {},
            "overrides": overrides,
            "endpoints": ENDPOINTS,
            "idempotency-key-lifetime": LIFETIME_TEXT,
        }
    )
