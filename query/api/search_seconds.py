"""How long searches take, as a metric: from the request to the end of its answer, the wait for a turn
included."""

from fastapi import Request

from lake.errors import NotFoundError
from lake.metrics import SEARCH_SECONDS
from query.access.access import ForbiddenError
from query.api.audited import AUDITED, Kind
from query.model.cancellation import Run
from query.model.problem import BadRequestError

NO_ENGINE = "none"
NO_SEARCH = (BadRequestError, ForbiddenError, NotFoundError)


def measure(request: Request, error: BaseException | None, took_s: float) -> None:
    """Measures a search that has ended, of a kind as the audit trail calls it, by the engine that it has
    asked. What got no turn, or asked what nobody can answer, was no search."""
    kind, action = AUDITED[request.method, request.scope["route"].path]
    run: Run | None = getattr(request.state, "run", None)
    if kind is Kind.SEARCH and run is not None and not isinstance(error, NO_SEARCH):
        SEARCH_SECONDS.labels(action, run.engine or NO_ENGINE).observe(took_s)
