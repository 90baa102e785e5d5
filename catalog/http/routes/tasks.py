"""Tasks over HTTP: states of the optimizer's work, and what others ask it for. A body may carry `lease`; a
stale one refuses the whole request.

They are for keys of scope `SERVICE` alone, which are bound to no namespace: no tenant reads or writes one.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from catalog.access.verbs import Need
from catalog.commit.idempotency import Reply
from catalog.extras import work_lists
from catalog.extras.leases import check_lease, parse_lease
from catalog.http.services import Services
from catalog.http.wire import (
    PAGE_SIZE_DEFAULT,
    RawRoute,
    describe,
    json_reply,
    json_response,
    next_page,
    page_of,
    parse_object,
    read_body,
    reply_response,
    request_key,
    services_of,
)
from catalog.model.error_response import CatalogError
from catalog.model.identifier import decode_segment
from catalog.model.json_fields import integer, objects, optional_string, string

router = APIRouter(route_class=RawRoute, tags=["firn"])
TASKS = {
    "type": "object",
    "required": ["tasks"],
    "properties": {
        "lease": {"type": "string"},
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "kind", "state", "version"],
                "properties": {
                    "id": {"type": "string"},
                    "kind": {"type": "string"},
                    "state": {"type": "string"},
                    "version": {"type": "integer"},
                    "record": {},
                },
            },
        },
    },
}


def check_body_lease(connection: Any, services: Services, body: dict[str, Any]) -> None:
    """Passes where the body carries no lease, or one that is in force. Raises CatalogError."""
    lease = parse_lease(optional_string(body, "lease"))
    if lease is not None:
        check_lease(connection, services.database, lease)


@router.get(
    "/firn/v1/tasks",
    **describe("List tasks", query=("kind", "state", "pageToken", "pageSize"), needs=Need.SERVICE),
)
async def list_tasks(request: Request) -> Response:
    """In the order of their ids."""
    after, limit = page_of(request)
    kind, state, size = (
        request.query_params.get("kind"),
        request.query_params.get("state"),
        limit or PAGE_SIZE_DEFAULT,
    )
    found = await services_of(request).read(
        lambda connection: work_lists.list_tasks(connection, kind=kind, state=state, after=after, limit=size)
    )
    return json_response(
        {
            "tasks": found,
            "next-page-token": next_page([task["id"] for task in found], size) if found else None,
        }
    )


@router.post(
    "/firn/v1/tasks",
    **describe("Save states of tasks, each by compare-and-set", body=TASKS, needs=Need.SERVICE),
)
async def save_tasks(request: Request) -> Response:
    """A result per task, in order."""
    services = services_of(request)
    raw = await read_body(request)
    body = parse_object(raw)
    given = [
        {
            "id": string(t, "id"),
            "kind": string(t, "kind"),
            "state": string(t, "state"),
            "version": integer(t, "version"),
            "record": t.get("record"),
        }
        for t in objects(body, "tasks")
    ]
    now_ms = services.now_ms()

    def work(connection: Any) -> Reply:
        check_body_lease(connection, services, body)
        results: list[dict[str, Any]] = []
        for task in given:
            try:
                results.append({"id": task["id"], "version": work_lists.save_task(connection, task, now_ms)})
            except CatalogError as error:
                results.append({"id": task["id"], "error": error.model()})
        return json_reply({"results": results})

    return reply_response(await services.change(request_key(request, raw), work))


@router.delete(
    "/firn/v1/tasks/{task}", **describe("Forget a task", path=("task",), status=204, needs=Need.SERVICE)
)
async def remove_task(request: Request) -> Response:
    """204 whether it was known or not."""
    task_id = decode_segment(request.path_params["task"])

    def work(connection: Any) -> Reply:
        work_lists.remove_task(connection, task_id)
        return Reply(204)

    return reply_response(await services_of(request).change(request_key(request, b""), work))
