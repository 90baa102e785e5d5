"""Events of the audit trail on their way to Kafka."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

router = APIRouter(prefix="/v1", tags=["audit"])
EVENTS_MAX = 10_000


class EventsBody(BaseModel):
    """Events in the order of their chain, each one JSON text."""

    model_config = ConfigDict(extra="forbid")

    events: Annotated[list[str], Field(max_length=EVENTS_MAX)]


@router.post("/audit-events", status_code=204)
def post_events(request: Request, body: EventsBody) -> None:
    """Writes events to the topic of the audit trail; answers when all are acknowledged. Who gets no answer
    sends them again."""
    request.app.state.serve.tools.audit_topic.write(body.events)
