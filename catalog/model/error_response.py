"""What a caller is told when a request cannot be done: Iceberg's error model as one exception.

Iceberg REST specification, `ErrorModel`: {"error": {"message", "type", "code"}}. A client decides by the code
whether to retry: 409 means a requirement failed, 5xx that the outcome may be unknown, everything else that
nothing was changed.
"""

from typing import Any

from lake.errors import FatalError


class CatalogError(FatalError):
    """A request that is refused: HTTP status, Iceberg's exception type and a sentence that says what to
    do."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    def body(self) -> dict[str, Any]:
        """The error model of the specification."""
        return {"error": self.model()}

    def model(self) -> dict[str, Any]:
        """Message, type and code alone, as the results of a batch carry them."""
        return {"message": self.message, "type": self.kind, "code": self.status}


def bad_request(message: str) -> CatalogError:
    """400: the request itself is wrong."""
    return CatalogError(400, "BadRequestException", message)


def invalid(message: str) -> CatalogError:
    """400: the request is well formed, but what it asks for would break the table."""
    return CatalogError(400, "ValidationException", message)


def forbidden(message: str) -> CatalogError:
    """403: understood and refused."""
    return CatalogError(403, "ForbiddenException", message)


def held(message: str) -> CatalogError:
    """403: a legal hold keeps what this would take away."""
    return CatalogError(403, "LegalHoldException", message)


def no_such_namespace(name: str) -> CatalogError:
    """404 for a namespace; the sentence starts as Iceberg's own catalogs start it."""
    return CatalogError(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def no_such_table(name: str) -> CatalogError:
    """404 for a table."""
    return CatalogError(404, "NoSuchTableException", f"Table does not exist: {name}")


def no_such_view(name: str) -> CatalogError:
    """404 for a view."""
    return CatalogError(404, "NoSuchViewException", f"View does not exist: {name}")


def already_exists(what: str, name: str) -> CatalogError:
    """409 for a name that is taken by a `Table`, `View` or `Namespace`."""
    return CatalogError(409, "AlreadyExistsException", f"{what} already exists: {name}")


def commit_failed(message: str) -> CatalogError:
    """409: a requirement failed; the caller reloads the table and decides again."""
    return CatalogError(409, "CommitFailedException", message)


def unavailable(message: str) -> CatalogError:
    """503: not done, and safe to repeat."""
    return CatalogError(503, "ServiceUnavailableException", message)


def outcome_unknown(message: str) -> CatalogError:
    """500: the change may or may not have been made; only the table itself can tell."""
    return CatalogError(500, "CommitStateUnknownException", message)
