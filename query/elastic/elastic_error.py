"""What is wrong with a request, in Elasticsearch's own form: a type that its clients know, and a sentence."""

from collections.abc import Mapping
from typing import Any

import orjson

from query.model.problem import BadRequestError, Problem

JSON_BYTES_MAX = 64 * 1024

PARSING, ILLEGAL, NOT_THERE = "parsing_exception", "illegal_argument_exception", "index_not_found_exception"
TOO_MANY = "too_many_buckets_exception"
_SECURITY, _BUSY = "security_exception", "es_rejected_execution_exception"
_KINDS = {
    401: _SECURITY,
    403: _SECURITY,
    404: NOT_THERE,
    409: "version_conflict_engine_exception",
    429: _BUSY,
    503: "no_shard_available_action_exception",
    504: "timeout_exception",
}


class ElasticError(BadRequestError):
    """A request that cannot be answered; `kind`: Elasticsearch's type of it."""

    def __init__(self, message: str, kind: str = ILLEGAL) -> None:
        super().__init__(Problem(message))
        self.kind = kind


def malformed(message: str) -> ElasticError:
    """The error for what is not as Elasticsearch writes it."""
    return ElasticError(message, PARSING)


def unsupported(part: str, instead: str = "") -> ElasticError:
    """The error for a part of Elasticsearch's API that is not answered here, which it names."""
    return ElasticError(f"[{part}] is not supported by Firn" + (f"; {instead}" if instead else ""), PARSING)


def error_body(kind: str, reason: str, status: int) -> dict[str, Any]:
    """An error's answer."""
    cause = {"type": kind, "reason": reason}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


def kind_of(status: int) -> str:
    """The type that goes with a status, where nothing else says it."""
    return _KINDS.get(status, ILLEGAL)


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object. Raises ElasticError."""
    if not isinstance(value, dict):
        raise malformed(f"[{what}] must be an object")
    return value


def only_known(given: Mapping[str, Any], what: str, known: frozenset[str]) -> None:
    """Raises ElasticError for the first name that is not known."""
    for name in given:
        if name not in known:
            raise unsupported(f"{what}.{str(name)[:60]}")


def check_length(value: Any, what: str) -> None:
    """Raises ElasticError for a part of a request that is too long to be looked at."""
    length = len(orjson.dumps(value))
    if length > JSON_BYTES_MAX:
        raise ElasticError(f"[{what}] has {length:,} bytes of JSON, at most {JSON_BYTES_MAX:,} are read")


def number_in(value: Any, what: str, least: int, most: int) -> int:
    """A whole number, also where it is written as text. Raises ElasticError."""
    try:
        number = int(value) if not isinstance(value, bool | float) or value == int(value) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool):
        raise malformed(f"[{what}] must be a whole number")
    if not least <= number <= most:
        raise ElasticError(f"[{what}] is {number}; it must lie between {least:,} and {most:,}")
    return number
