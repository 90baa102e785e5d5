"""Who did what through the API: the one place where requests become events of the audit trail.

Every route stands in `AUDITED`: an act changes something and is told before it begins and when it has ended;
a search reads what tenants log and is told when it has ended (a live tail, which may run for days, when it
begins too); the rest is not told. The API does not start with a route that is missing there.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, cast

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from lake.audit.event import Fields
from lake.audit.request_event import beginning, ending, request_fields
from lake.audit.trail import AuditTrail
from lake.errors import FirnError
from query.access.access import Caller
from query.api.errors import status_of
from query.model.instant import rfc3339
from query.model.problem import BadRequestError
from query.search.search import SearchRequest

# What is erased must not stay here: an erasure's report has the hash of its query.
ERASES = "erasure.create"
STATUS_GONE = 499  # the caller left before there was an answer


class Kind(StrEnum):
    """What a route is to the audit trail."""

    ACT = "act"
    SEARCH = "search"
    TAIL = "tail"
    NONE = "none"


class Audited(NamedTuple):
    """A route's kind, and what the trail calls it."""

    kind: Kind
    action: str = ""


NOTHING = Audited(Kind.NONE)


def _elastic() -> Mapping[tuple[str, str], Audited]:
    """Elasticsearch's routes: those that give rows or counts are searches."""
    searches = {"_search": "search", "_msearch": "msearch", "_count": "count"}
    told = {
        (method, f"/elasticsearch{index}/{path}"): Audited(Kind.SEARCH, f"elasticsearch.{action}")
        for path, action in searches.items()
        for index in ("", "/{index}")
        for method in ("GET", "POST")
    }
    told |= {
        (method, "/elasticsearch/_search/scroll"): Audited(Kind.SEARCH, "elasticsearch.scroll")
        for method in ("GET", "POST")
    }
    reads = (
        *("/", "/_cluster/health", "/_cat/indices", "/_cat/indices/{index}", "/_aliases", "/_alias"),
        *("/{index}/_alias", "/_mapping", "/{index}/_mapping", "/_field_caps", "/{index}/_field_caps"),
    )
    others = [("GET", path) for path in reads]
    others += [("HEAD", "/"), ("HEAD", "/{index}"), ("DELETE", "/_search/scroll"), ("DELETE", "/_pit")]
    others += [("POST", "/_field_caps"), ("POST", "/{index}/_field_caps"), ("POST", "/{index}/_pit")]
    others += [(method, path) for method in ("POST", "PUT") for path in ("/_bulk", "/{index}/_bulk")]
    return {**told, **{(method, f"/elasticsearch{path}"): NOTHING for method, path in others}}


AUDITED: Mapping[tuple[str, str], Audited] = {
    ("POST", "/v1/search"): Audited(Kind.SEARCH, "search"),
    ("GET", "/v1/search"): Audited(Kind.SEARCH, "search"),
    ("POST", "/v1/search/stream"): Audited(Kind.SEARCH, "search.stream"),
    ("POST", "/v1/histogram"): Audited(Kind.SEARCH, "search.histogram"),
    ("GET", "/v1/histogram"): Audited(Kind.SEARCH, "search.histogram"),
    ("POST", "/v1/pipe"): Audited(Kind.SEARCH, "search.pipe"),
    ("GET", "/v1/row"): Audited(Kind.SEARCH, "search.row"),
    ("POST", "/v1/fields"): Audited(Kind.SEARCH, "search.fields"),
    ("POST", "/v1/values"): Audited(Kind.SEARCH, "search.values"),
    ("GET", "/v1/context"): Audited(Kind.SEARCH, "search.context"),
    ("POST", "/v1/explain"): Audited(Kind.SEARCH, "search.explain"),
    ("POST", "/v1/errors"): Audited(Kind.SEARCH, "search.errors"),
    ("POST", "/v1/sql"): Audited(Kind.SEARCH, "sql"),
    ("GET", "/v1/tail"): Audited(Kind.TAIL, "tail"),
    ("GET", "/v1/dead-letters"): Audited(Kind.SEARCH, "dead-letters.list"),
    ("GET", "/v1/dead-letters/{letter_id}"): Audited(Kind.SEARCH, "dead-letters.read"),
    ("POST", "/v1/dead-letters/replay"): Audited(Kind.ACT, "dead-letters.replay"),
    ("POST", "/v1/exports"): Audited(Kind.ACT, "export.create"),
    ("GET", "/v1/exports"): NOTHING,
    ("GET", "/v1/exports/{export_id}"): NOTHING,
    ("GET", "/v1/exports/{export_id}/file"): Audited(Kind.SEARCH, "export.download"),
    ("GET", "/v1/exports/{export_id}/parts/{name}"): Audited(Kind.SEARCH, "export.download"),
    ("POST", "/v1/exports/{export_id}/resume"): Audited(Kind.ACT, "export.resume"),
    ("DELETE", "/v1/exports/{export_id}"): Audited(Kind.ACT, "export.delete"),
    ("POST", "/v1/erasures"): Audited(Kind.ACT, ERASES),
    ("GET", "/v1/erasures"): NOTHING,
    ("GET", "/v1/erasures/{erasure_id}"): NOTHING,
    ("GET", "/v1/alerts"): NOTHING,
    ("GET", "/v1/alerts/rules"): NOTHING,
    ("POST", "/v1/alerts/rules"): Audited(Kind.ACT, "alert-rules.set"),
    ("DELETE", "/v1/alerts/rules/{name}"): Audited(Kind.ACT, "alert-rules.delete"),
    ("POST", "/v1/alerts/dry-run"): Audited(Kind.SEARCH, "alert-rules.dry-run"),
    ("GET", "/v1/boards"): NOTHING,
    ("GET", "/v1/boards/{name}"): NOTHING,
    ("PUT", "/v1/boards/{name}"): Audited(Kind.ACT, "board.set"),
    ("DELETE", "/v1/boards/{name}"): Audited(Kind.ACT, "board.delete"),
    ("GET", "/v1/tenants"): NOTHING,
    ("GET", "/v1/tenants/names"): NOTHING,
    ("DELETE", "/v1/tenants"): Audited(Kind.ACT, "tenant.remove"),
    ("GET", "/v1/streams"): NOTHING,
    ("GET", "/v1/streams/detail"): NOTHING,
    ("POST", "/v1/streams/types"): Audited(Kind.ACT, "stream.type"),
    ("POST", "/v1/streams/retention"): Audited(Kind.ACT, "stream.retention"),
    ("GET", "/v1/tenants/retention"): NOTHING,
    ("POST", "/v1/tenants/retention"): Audited(Kind.ACT, "tenant.retention"),
    ("GET", "/v1/tenants/limits"): NOTHING,
    ("POST", "/v1/tenants/limits"): Audited(Kind.ACT, "tenant.limits"),
    ("GET", "/v1/usage"): NOTHING,
    ("GET", "/v1/holds"): NOTHING,
    ("POST", "/v1/holds"): Audited(Kind.ACT, "hold.set"),
    ("DELETE", "/v1/holds/{hold_id}"): Audited(Kind.ACT, "hold.lift"),
    ("GET", "/v1/streams/dropped"): NOTHING,
    ("DELETE", "/v1/streams"): Audited(Kind.ACT, "stream.delete"),
    ("POST", "/v1/streams/purge"): Audited(Kind.ACT, "stream.purge"),
    ("POST", "/v1/streams/undo"): Audited(Kind.ACT, "stream.undo"),
    ("GET", "/v1/parked"): NOTHING,
    ("GET", "/v1/maintenance"): NOTHING,
    ("GET", "/v1/health"): NOTHING,
    ("GET", "/v1/saved-searches"): NOTHING,
    **_elastic(),
    ("PUT", "/v1/saved-searches/{name:path}"): NOTHING,
    ("DELETE", "/v1/saved-searches/{name:path}"): NOTHING,
}
# What a request says, by what the trail calls it; all else that it says, and that is listed, is a parameter.
FIELDS = {
    "tenant": "organization.name",
    "stream": "firn.stream",
    "query": "firn.query",
    "sql": "firn.query",
    "words": "firn.query",
    "from": "firn.from",
    "to": "firn.to",
}
PARAMETERS = frozenset(
    {
        *("all", "dry_run", "export_id", "erasure_id", "field", "files", "format", "hold_id", "id", "ids"),
        *("letter_id", "limit", "limits", "name", "now", "order", "reason", "retention", "since"),
        *("spreadsheet_safe", "streams", "timestamp", "to_stream", "to_tenant", "topic", "topic_id"),
        *("type", "until", "partition", "offset", "index", "before", "after", "rule", "rules", "replace"),
    }
)


@dataclass(slots=True)
class Told:
    """What a route adds to its event. `rows`: that it gave; `scanned_bytes`: of data files that were read for
    it."""

    rows: int | None = None
    scanned_bytes: int | None = None
    error: BaseException | None = None
    about: dict[str, str | int | None] = field(default_factory=dict)
    _several: dict[str, dict[str | int | None, None]] = field(default_factory=dict)

    def made(self, name: str) -> None:
        """Notes the id of what an act made."""
        self.about["firn.object"] = name

    def of(self, *tenants: str) -> None:
        """Notes whose records it is about: a name, or a JSON list of several."""
        self.about["organization.name"] = tenants[0] if len(tenants) == 1 else _text(sorted(tenants))

    def found(self, rows: int, scanned_bytes: int | None) -> None:
        """Notes what a search gave."""
        self.rows, self.scanned_bytes = rows, scanned_bytes

    def asked(self, search: SearchRequest) -> None:
        """Notes what is searched, with the range as it is and not as it was written (`now-15m`)."""
        self.about |= {
            "organization.name": search.table.tenant.name,
            "firn.stream": search.table.stream,
            "firn.query": search.query,
            "firn.from": rfc3339(search.start),
            "firn.to": rfc3339(search.end),
        }

    def asked_also(self, search: SearchRequest) -> None:
        """The same of one of several searches of a request: of what they differ in a JSON list."""
        one = Told()
        one.asked(search)
        for name, value in one.about.items():
            listed = self._several.setdefault(name, {})
            if value not in listed:
                listed[value] = None
                self.about[name] = value if len(listed) == 1 else _text(list(listed))


def told_of(request: Request) -> Told:
    """What the routes add to the event of a request."""
    if not hasattr(request.state, "told"):
        request.state.told = Told()
    return cast("Told", request.state.told)


def check_audited(routers: Iterable[APIRouter]) -> None:
    """Raises LookupError where a route has no line in `AUDITED`."""
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                if (method, route.path) not in AUDITED:
                    raise LookupError(
                        f"{method} {route.path} has no line in query/api/audited.py: act, search or none?"
                    )


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """A request of which the audit trail is told, and that has not ended. `said`: what is known of it."""

    trail: AuditTrail
    request: Request
    kind: Kind
    said: Fields

    def end(self, told: Told, took_s: float) -> None:
        """Tells the trail how the request has ended."""
        ends = _ended(self.request, self.said, told, self.kind, took_s)
        if self.kind is Kind.ACT:
            # Not awaited: whoever is cancelled awaits nothing any more, and the act has ended.
            asyncio.get_running_loop().run_in_executor(None, self.trail.end_act, ends)
        else:
            self.trail.note(ends)


async def begun(request: Request) -> OpenEvent | None:
    """Tells the audit trail of an act or a live tail that begins. None: nobody is told of this request."""
    trail: AuditTrail | None = request.app.state.services.trail
    kind, action = AUDITED[request.method, request.scope["route"].path]
    if trail is None or kind is Kind.NONE:
        return None
    said = await _said(request, kind, action)
    if kind is Kind.ACT:
        await asyncio.get_running_loop().run_in_executor(None, trail.begin_act, beginning(said))
    elif kind is Kind.TAIL:
        trail.note(beginning(said))
    return OpenEvent(trail, request, kind, said)


async def _said(request: Request, kind: Kind, action: str) -> dict[str, str | int | None]:
    caller: Caller = request.state.caller
    given = {**request.query_params, **request.path_params, **await _body(request)}
    if action == ERASES:
        given.pop("query", None)
    fields: dict[str, str | int | None] = {
        called: _text(given[name]) for name, called in FIELDS.items() if given.get(name)
    }
    said = request_fields(
        request,
        action,
        room="query",
        category="configuration" if kind is Kind.ACT else "database",
        asker=caller.who.asker,
        parameters={name: given[name] for name in PARAMETERS & given.keys()},
    )
    return fields | said


async def _body(request: Request) -> Mapping[str, Any]:
    """The JSON object that the request has; the route has read it before, and it is not read again."""
    body: Any = None
    with suppress(ValueError, UnicodeDecodeError):
        body = await request.json() if await request.body() else None
    return body if isinstance(body, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _ended(
    request: Request, said: Fields, told: Told, kind: Kind, took_s: float
) -> dict[str, str | int | None]:
    ends = ending(
        {**said, **told.about},
        kind="end" if kind in (Kind.ACT, Kind.TAIL) else "access",
        status=_status(request, told.error),
        reason=None if told.error is None or said["event.action"] == ERASES else _reason(told.error),
        took_s=took_s,
    )
    return ends | {"firn.rows": told.rows, "firn.bytes": told.scanned_bytes}


def _status(request: Request, error: BaseException | None) -> int:
    if error is None:
        return request.scope["route"].status_code or 200
    if isinstance(error, FirnError | BadRequestError):
        return status_of(error)
    if isinstance(error, RequestValidationError):
        return 400
    if isinstance(error, HTTPException):
        return error.status_code
    return STATUS_GONE if isinstance(error, asyncio.CancelledError | GeneratorExit) else 500


def _reason(error: BaseException) -> str:
    if isinstance(error, BadRequestError):
        return error.problem.message
    if isinstance(error, FirnError):
        return str(error)
    return type(error).__name__
