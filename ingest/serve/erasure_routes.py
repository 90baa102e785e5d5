"""What an erasure has to know of Kafka: how far the input topics are in, and what Firn's own topics keep of a
tenant."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from ingest.kafka.durable import durable_offsets
from ingest.serve.kept_records import Kind
from lake.errors import SettingsError

router = APIRouter(prefix="/v1", tags=["erasure"])


@router.get("/durable")
def get_durable(request: Request) -> dict[str, Any]:
    """Per partition of the input topics: below `offset` every record is in its table, a dead letter or
    parked; `reached`: the end as Kafka has it now."""
    tools = request.app.state.serve.tools
    found = durable_offsets(tools.settings, tools.reader())
    return {
        "partitions": [
            {**each.partition._asdict(), "offset": each.offset, "reached": each.reached} for each in found
        ]
    }


@router.get("/kept-records")
def list_kept(
    request: Request,
    kind: Annotated[Kind, Query()],
    tenant: Annotated[str, Query(max_length=400)],
    after: Annotated[str, Query(max_length=40, description="`next` of the page before")] = "0:0",
) -> dict[str, Any]:
    """Messages of a tenant that one of Firn's own topics keeps, whole, in order. `next` None: there are no
    more."""
    partition, _, offset = after.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise SettingsError("after is not what a page's `next` said; start the listing again without it")
    with request.app.state.serve.letters:
        page = request.app.state.serve.tools.kept_records().page(kind, tenant, (int(partition), int(offset)))
    following = None if page.following is None else ":".join(map(str, page.following))
    return {"records": [record.to_json() for record in page.records], "next": following}
