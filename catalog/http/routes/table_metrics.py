"""Scan and commit reports that engines send: the newest are kept in memory, for whoever wonders why a query
was slow."""

from collections import deque
from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.http.routes.tables import TABLE_PATH, path_identifier
from catalog.http.wire import RawRoute, describe, json_response, parse_object, read_body, services_of
from catalog.model.json_fields import string

router = APIRouter(route_class=RawRoute, tags=["tables"])
REPORT = {
    "type": "object",
    "required": ["report-type"],
    "properties": {"report-type": {"type": "string", "minLength": 1}},
}
REPORTS_MAX = 200
REPORT_BYTES_MAX = 64 * 1024
_reports: deque[dict[str, Any]] = deque(maxlen=REPORTS_MAX)


@router.post(
    "/v1/namespaces/{namespace}/tables/{table}/metrics",
    **describe("Report metrics of a scan or commit", body=REPORT, path=TABLE_PATH, status=204),
)
async def report_metrics(request: Request) -> Response:
    """Kept by this process until newer ones come; a very large report is taken and not kept."""
    identifier = path_identifier(request)
    raw = await read_body(request)
    report = parse_object(raw)
    string(report, "report-type")
    if len(raw) <= REPORT_BYTES_MAX:
        _reports.append(
            {"identifier": identifier.json(), "received-ms": services_of(request).now_ms(), "report": report}
        )
    return Response(status_code=204)


@router.get(
    "/firn/v1/metrics-reports", **describe("Show the newest scan and commit reports", needs=Need.ADMIN)
)
async def list_reports(_: Request) -> Response:
    """Newest last."""
    return json_response({"reports": list(_reports)})
