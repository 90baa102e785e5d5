"""What watches the server itself: health and metrics."""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from catalog.access.verbs import Need
from catalog.http.wire import RawRoute, describe, json_response, services_of
from catalog.model import metrics

router = APIRouter(route_class=RawRoute, tags=["service"])
READY_S = 5.0


@router.get("/healthz", **describe("The process answers", needs=Need.NOTHING))
async def healthz(_: Request) -> Response:
    """200 as soon as the process serves."""
    return json_response({"status": "ok"})


@router.get("/readyz", **describe("The database answers", needs=Need.NOTHING))
async def readyz(request: Request) -> Response:
    """200 when the database answers, 503 else, and where it takes more than five seconds."""
    try:
        async with asyncio.timeout(READY_S):
            await services_of(request).read(lambda connection: connection.execute(text("SELECT 1")).scalar())
    except TimeoutError:
        return json_response(
            {"status": "the database does not answer", "error": f"no answer within {READY_S:.0f} s"}, 503
        )
    except DBAPIError as error:
        return json_response({"status": "the database does not answer", "error": str(error.orig)}, 503)
    return json_response({"status": "ready"})


@router.get("/metrics", **describe("Metrics in Prometheus' text format", needs=Need.NOTHING))
async def prometheus(_: Request) -> Response:
    """Counters of all workers."""
    return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})
