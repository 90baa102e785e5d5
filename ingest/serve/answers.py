"""Errors as answers: a status and a sentence, never a trace."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from lake.errors import ConflictError, FirnError, NotFoundError, RefusedError, RetryableError, SettingsError

log = structlog.get_logger()


class BusyError(FirnError):
    """Too many at once."""


# The first class that fits.
STATUS: tuple[tuple[type[FirnError], int], ...] = (
    (BusyError, 429),
    (SettingsError, 400),
    (NotFoundError, 404),
    (RefusedError, 409),
    (ConflictError, 409),
    (RetryableError, 503),
)


def problem(status: int, sentence: str) -> JSONResponse:
    """An error's answer."""
    headers = (
        {"WWW-Authenticate": "Bearer"}
        if status == 401
        else {"Retry-After": "1"}
        if status in (429, 503)
        else None
    )
    return JSONResponse({"error": {"message": sentence}}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Every error raised on purpose, and the framework's own."""

    @app.exception_handler(FirnError)
    async def firn_error(request: Request, error: FirnError) -> JSONResponse:
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
        if status >= 500:
            log.warning("serve.failed", path=request.url.path, status=status, reason=str(error))
        return problem(status, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        return problem(400, f"{where or 'the request'}: {first['msg']}; see /docs")
