"""Lag, freshness, parked tables; and what would become of a message."""

import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from ingest.route.router import Envelope
from ingest.serve.explain import explain, now_ms, topic_settings
from lake.errors import NotFoundError, SettingsError

router = APIRouter(prefix="/v1", tags=["status"])


@router.get("/status")
def get_status(request: Request) -> dict[str, Any]:
    """The line at a glance: offsets and lag per partition, `lag_records`, `complete_until`, parked tables,
    the stalest tenants, the node's own state."""
    status: dict[str, Any] = request.app.state.serve.status.read().to_json()
    return status


@router.get("/freshness")
def get_freshness(
    request: Request, tenant: Annotated[str | None, Query(max_length=400)] = None
) -> dict[str, Any]:
    """When each tenant had its last commit, the stalest first; tenants without one within the hour are left
    out."""
    found = request.app.state.serve.status.read().tenants()
    if tenant is not None:
        found = [each for each in found if each["tenant"] == tenant]
        if not found:
            raise NotFoundError(f"tenant {tenant!r} had no commit within the last hour")
    return {"tenants": found}


class MessageBody(BaseModel):
    """A message as a shipper would send it; `value` as text or in base64."""

    topic: Annotated[str | None, Field(description="whose settings route and read it", max_length=400)] = None
    key: str | None = None
    headers: dict[str, str] = {}
    value: str | None = None
    value_base64: str | None = None
    timestamp_ms: Annotated[int | None, Field(description="Kafka timestamp; without it, now")] = None


@router.post("/explain-message")
def post_explain(request: Request, body: MessageBody) -> dict[str, Any]:
    """What becomes of a message, and why. Nothing is sent anywhere."""
    settings = request.app.state.serve.tools.settings
    chosen, why = topic_settings(settings, body.topic)
    headers = [(name, text.encode()) for name, text in body.headers.items()]
    envelope = Envelope(chosen.name, None if body.key is None else body.key.encode(), headers, _value(body))
    return explain(
        settings, chosen, why, envelope, now_ms() if body.timestamp_ms is None else body.timestamp_ms
    ).to_json()


def _value(body: MessageBody) -> bytes:
    if body.value_base64 is None:
        return (body.value or "").encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body.value_base64, validate=True)
    except binascii.Error as error:
        raise SettingsError(f"value_base64 is no base64: {error}") from error
