"""Errors as answers: a status and a sentence, never a trace."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from lake.errors import ConflictError, FatalError, FirnError, NotFoundError, RefusedError, RetryableError
from query.access.access import ForbiddenError, UnauthorizedError
from query.elastic.elastic_error import NOT_THERE, ElasticError, error_body, kind_of
from query.export.export import QuotaError
from query.model.cancellation import TimeOverError
from query.model.limits import BusyError
from query.model.problem import BadRequestError, Problem

log = structlog.get_logger()
ELASTIC_PREFIX = "/elasticsearch"
# What Elasticsearch's clients call their bodies, beside JSON. No page may send these without asking.
ELASTIC_TYPES = frozenset(
    {
        b"application/x-ndjson",
        b"application/vnd.elasticsearch+json",
        b"application/vnd.elasticsearch+x-ndjson",
    }
)
# The first class that fits.
STATUS: tuple[tuple[type[FirnError], int], ...] = (
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (BusyError, 429),
    (QuotaError, 429),
    (NotFoundError, 404),
    (ConflictError, 409),
    (TimeOverError, 504),
    (RefusedError, 422),
    (RetryableError, 503),
    (FatalError, 503),
)


def is_elastic(path: str) -> bool:
    """Whether a path is one of those that Elasticsearch's clients ask."""
    return path == ELASTIC_PREFIX or path.startswith(f"{ELASTIC_PREFIX}/")


def answer(
    status: int, problem: Problem, path: str = "", *, kind: str = "", retry_after_s: int = 1
) -> JSONResponse:
    """An error's answer; `kind`: Elasticsearch's type of it, for its clients."""
    headers = (
        {"WWW-Authenticate": "Bearer"}
        if status == 401
        else {"Retry-After": str(retry_after_s)}
        if status in (429, 503)
        else None
    )
    if is_elastic(path):
        return JSONResponse(error_body(kind or kind_of(status), problem.message, status), status, headers)
    return JSONResponse({"error": problem.to_json()}, status, headers)


def status_of(error: FirnError | BadRequestError) -> int:
    """The status that answers it."""
    if isinstance(error, BadRequestError):
        return 404 if isinstance(error, ElasticError) and error.kind == NOT_THERE else 400
    return next(status for kind, status in STATUS if isinstance(error, kind))


def problem_of(error: FirnError | BadRequestError, path: str) -> tuple[int, Problem]:
    """Status and sentence of an error that the rooms raise on purpose."""
    status = status_of(error)
    if isinstance(error, BadRequestError):
        return status, error.problem
    if status >= 500:
        log.warning("query.failed", path=path, status=status, error=str(error))
    return status, Problem(str(error))


def answer_to(error: FirnError | BadRequestError, path: str) -> JSONResponse:
    """The answer to it."""
    retry_after_s = error.retry_after_s if isinstance(error, BusyError) else 1
    kind = error.kind if isinstance(error, ElasticError) else ""
    return answer(*problem_of(error, path), path, kind=kind, retry_after_s=retry_after_s)


def add_error_handlers(app: FastAPI) -> None:
    """Every error the rooms raise on purpose, and the framework's own."""

    @app.exception_handler(BadRequestError)
    async def bad_question(request: Request, error: BadRequestError) -> JSONResponse:
        return answer_to(error, request.url.path)

    @app.exception_handler(FirnError)
    async def firn_error(request: Request, error: FirnError) -> JSONResponse:
        return answer_to(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        said = Problem(f"{where or 'the request'}: {first['msg']}; see /docs")
        return answer(400, said, request.url.path)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        sentence = {
            404: "no such route; see /docs",
            405: "the route does not take this method; see /docs",
        }.get(error.status_code, str(error.detail))
        response = answer(error.status_code, Problem(sentence), request.url.path)
        response.headers.update(error.headers or {})
        return response
