"""A request as events of the audit trail: what it says of itself, that it begins, how it has ended.

The same for every service; what a room knows beside it (rows, words, what an act made), it adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from lake.audit.event import Fields, parameters_text

Category = Literal["configuration", "database"]
NS_PER_S = 1_000_000_000
REASON_CHARACTERS_MAX = 1_000
STATUS_REFUSED = 400  # from here on it was not done


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: the id of the key or of the person, the namespaces that are reached (None: all), and of a
    person name, issuer and roles."""

    id: str | None
    namespaces: str | None = None
    name: str = ""
    issuer: str = ""
    roles: str = ""


def request_fields(
    request: Request,
    action: str,
    *,
    room: str,
    category: Category,
    asker: Asker,
    parameters: Mapping[str, Any],
) -> dict[str, str | int | None]:
    """Tells who asks `room` for an action, from where and how. `parameters`: what of the request may be told
    beside the fields of its own."""
    headers = request.headers
    return {
        "event.action": action,
        "event.provider": room,
        "event.category": category,
        "user.id": asker.id,
        "user.name": asker.name,
        "user.domain": asker.issuer,
        "user.roles": asker.roles,
        "firn.key_namespace": asker.namespaces,
        "source.ip": request.client.host if request.client else None,
        "network.forwarded_ip": headers.get("x-forwarded-for"),
        "user_agent.original": headers.get("user-agent"),
        "http.request.method": request.method,
        "url.path": request.url.path,
        "firn.parameters": parameters_text(parameters),
    }


def beginning(fields: Fields) -> Fields:
    """Tells that something begins of which nobody knows yet how it ends."""
    return {**fields, "event.type": "start", "event.outcome": "unknown"}


def ending(
    fields: Fields, *, kind: Literal["end", "access"], status: int, reason: str | None, took_s: float
) -> dict[str, str | int | None]:
    """Tells how it has ended, after `took_s` seconds: an `end` follows a beginning, an `access` has none."""
    outcome = "success" if status < STATUS_REFUSED else "failure"
    return {
        **fields,
        "event.type": kind,
        "event.outcome": outcome,
        "event.reason": None if reason is None else reason[:REASON_CHARACTERS_MAX],
        "event.duration": round(took_s * NS_PER_S),
        "http.response.status_code": status,
        "message": _sentence(fields, outcome),
    }


def _sentence(fields: Fields, outcome: str) -> str:
    of = "/".join(str(fields[name]) for name in ("organization.name", "firn.stream") if fields.get(name))
    by = f"{fields['user.name']} ({fields['user.id']})" if fields.get("user.name") else fields["user.id"]
    said = (str(fields["event.action"]), of, f"by {by}: {outcome}")
    return " ".join(part for part in said if part)
