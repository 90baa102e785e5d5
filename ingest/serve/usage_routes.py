"""What tenants used, on its way to Kafka."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.usage_row import UsageRow

router = APIRouter(prefix="/v1", tags=["usage"])
ROWS_MAX = 10_000
Count = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=400)]


class RowBody(BaseModel):
    """A row of `system.usage`."""

    model_config = ConfigDict(extra="forbid")

    day: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", description="UTC")]
    tenant: Name
    stream: Name
    source: Annotated[
        str, Field(description="`tables`, or the process that ran the searches", max_length=400)
    ]
    records: Count | None = None
    bytes_in: Count | None = None
    bytes_stored: Count | None = None
    searches: Count | None = None
    search_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    search_bytes: Count | None = None


class RowsBody(BaseModel):
    """Rows, of which the last one of a key counts."""

    model_config = ConfigDict(extra="forbid")

    rows: Annotated[list[RowBody], Field(max_length=ROWS_MAX)]


@router.post("/usage-rows", status_code=204)
def post_rows(request: Request, body: RowsBody) -> None:
    """Writes rows to the topic of usage; answers when all are acknowledged. Who gets no answer sends them
    again."""
    request.app.state.serve.tools.usage_topic.write([UsageRow(**row.model_dump()) for row in body.rows])
