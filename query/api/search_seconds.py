"""How long searches take, as a metric: from the request to the end of its answer, the wait for a turn
included."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request

from lake.errors import NotFoundError
from lake.metrics import SEARCH_SECONDS
from query.access.access import ForbiddenError
from query.api.audited import AUDITED, Kind, told_of
from query.model.cancellation import Run
from query.model.problem import BadRequestError

NO_ENGINE = "none"
NO_SEARCH = (BadRequestError, ForbiddenError, NotFoundError)


async def timed(request: Request) -> AsyncIterator[None]:
    """Measures a search, of a kind as the audit trail calls it, by the engine that it has asked. A dependency
    of every route; what got no turn, or asked what nobody can answer, was no search."""
    loop, error = asyncio.get_running_loop(), None
    began_s = loop.time()
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        if (label := _label(request, error or told_of(request).error)) is not None:
            SEARCH_SECONDS.labels(*label).observe(loop.time() - began_s)


def _label(request: Request, error: BaseException | None) -> tuple[str, str] | None:
    kind, action = AUDITED[request.method, request.scope["route"].path]
    run: Run | None = getattr(request.state, "run", None)
    if kind is not Kind.SEARCH or run is None or isinstance(error, NO_SEARCH):
        return None
    return action, run.engine or NO_ENGINE
