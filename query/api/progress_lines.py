"""An answer as lines of JSON while it is made, for those who send `Accept: application/x-ndjson`:

- `{"progress": {"files", "files_planned", "bytes", "bytes_planned"}}`, some times a second
- `{"rows": [...], "at": 0}`: rows of the page as they are found, `at` the place of the first of them; where
  files went meanwhile they come again, from 0
- last `{"answer": ...}`, the same that is given without lines, or `{"error": ..., "status": 503}`

Who closes the connection ends the search.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from lake.errors import FirnError
from lake.tenant import TableId
from query.api.audited import told_of
from query.api.errors import problem_of
from query.api.services import ServicesOf
from query.api.turns import run, watch
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from query.search.results import to_json
from query.search.search import Progress

Answer = TypeVar("Answer", bound=BaseModel)
NDJSON = "application/x-ndjson"
LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {NDJSON: {}},
        "description": (
            "with `Accept: application/x-ndjson` lines while it runs: `{progress}` with files and bytes done "
            "of those planned, `{rows, at}` as they are found, last `{answer}` or `{error, status}`"
        ),
    }
}


class ProgressLines:
    """What one search has to tell. `told` is asked by another thread than the one that searches."""

    def __init__(self) -> None:
        self.progress = Progress(on_rows=self._found)
        self._lines: deque[bytes] = deque()

    def _found(self, at: int, rows: list[dict[str, Any]]) -> None:
        self._lines.append(_line({"rows": [to_json(row) for row in rows], "at": at}))

    def told(self, current: Run) -> bytes:
        """What is new, and how far the search is; nothing before it is planned."""
        planned = self.progress.planned
        if planned is None:
            return b""
        done = self.progress.now(current)
        figures = {
            "files": min(done.files, planned.files),
            "files_planned": planned.files,
            "bytes": min(done.size_bytes, planned.size_bytes),
            "bytes_planned": planned.size_bytes,
        }
        new = [self._lines.popleft() for _ in range(len(self._lines))]
        return b"".join([_line({"progress": figures}), *new])


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def _last(answer: BaseModel) -> bytes:
    return b'{"answer":' + answer.model_dump_json(by_alias=True).encode() + b"}\n"


def _failed(error: FirnError | BadRequestError, request: Request) -> bytes:
    told_of(request).error = error  # nothing raises it any more: the answer has begun
    status, problem = problem_of(error, request.url.path)
    return _line({"error": problem.to_json(), "status": status})


async def answered(
    request: Request,
    services: ServicesOf,
    table: TableId,
    ask: Callable[[Run, Progress], Answer],
) -> Answer | StreamingResponse:
    """Asks, and answers in one piece or in lines, as the caller wants it."""
    timeout_s = services.settings.search.timeout_s
    if NDJSON not in request.headers.get("accept", ""):
        return await run(
            request,
            lambda current: ask(current, Progress()),
            timeout_s=timeout_s,
            tenant=table.tenant,
            counted_as=table.stream,
        )
    lines = ProgressLines()
    found = await watch(
        request,
        lambda current: _last(ask(current, lines.progress)),
        lines.told,
        lambda error: _failed(error, request),
        timeout_s=timeout_s,
        tenant=table.tenant,
        counted_as=table.stream,
    )
    return StreamingResponse(found, media_type=NDJSON)
