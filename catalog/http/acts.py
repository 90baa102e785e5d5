"""Who did what on the catalog: the one place where requests become events of the audit trail (lake/audit).

Every route that changes something stands in `ACTS` or in `NO_ACTS`; a test fails for one that does not. An
act is told before it begins and when it has ended. What ingestion and maintenance do all the time is none:
their commits, leases and lists are not what a person decides.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Request

from catalog.access.access import Principal
from catalog.access.roles import Person
from catalog.model.error_response import CatalogError
from catalog.model.identifier import SEPARATOR, dotted
from lake.audit.event import Fields
from lake.audit.request_event import Asker, beginning, ending, request_fields
from lake.audit.spool import TrailLostError
from lake.audit.trail import AuditTrail
from lake.clock import SYSTEM_CLOCK
from lake.tenant import from_identifier

CHANGES_NAMESPACE, RESOLVES = "namespace.properties", "table.resolve"
TABLE, VIEW = "/v1/namespaces/{namespace}/tables/{table}", "/v1/namespaces/{namespace}/views/{view}"
ACTS: Mapping[tuple[str, str], str] = {
    ("POST", "/firn/v1/keys"): "key.create",
    ("DELETE", "/firn/v1/keys/{key}"): "key.revoke",
    ("POST", "/firn/v1/keys/{key}/rotate"): "key.rotate",
    ("POST", "/firn/v1/holds"): "hold.set",
    ("DELETE", "/firn/v1/holds/{namespace}/{hold}"): "hold.lift",
    ("DELETE", "/v1/namespaces/{namespace}"): "namespace.drop",
    ("POST", "/v1/namespaces/{namespace}/properties"): CHANGES_NAMESPACE,
    ("DELETE", TABLE): "table.drop",
    ("POST", "/v1/namespaces/{namespace}/register"): "table.register",
    ("POST", "/v1/tables/rename"): "table.rename",
    ("POST", "/firn/v1/dropped-tables/undo"): "table.undo",
    ("POST", "/firn/v1/parked"): RESOLVES,
    ("POST", "/firn/v1/dropped-tables/{dropped}/purge"): "table.purge",
    ("POST", "/v1/namespaces/{namespace}/views"): "view.create",
    ("POST", VIEW): "view.change",
    ("DELETE", VIEW): "view.drop",
    ("POST", "/v1/views/rename"): "view.rename",
    ("POST", "/v1/namespaces/{namespace}/register-view"): "view.register",
}
NO_ACTS = frozenset(
    {
        ("POST", "/v1/oauth/tokens"),
        ("POST", "/v1/namespaces"),  # of a new tenant, by ingestion
        ("POST", "/v1/namespaces/{namespace}/tables"),
        ("POST", TABLE),
        ("POST", TABLE + "/metrics"),
        ("POST", "/v1/transactions/commit"),
        ("POST", "/firn/v1/commits"),
        ("POST", "/firn/v1/loads"),
        ("POST", "/firn/v1/leases/{lease}/acquire"),
        ("POST", "/firn/v1/leases/{lease}/renew"),
        ("POST", "/firn/v1/leases/{lease}/release"),
        ("POST", "/firn/v1/dirty-partitions/recount"),
        ("POST", "/firn/v1/tasks"),
        ("DELETE", "/firn/v1/tasks/{task}"),
        ("POST", "/firn/v1/deletions"),
        ("POST", "/firn/v1/deletions/acknowledge"),
        ("POST", "/firn/v1/deletions/queued"),
        ("POST", "/firn/v1/dropped-tables/{dropped}/purge-started"),
        ("DELETE", "/firn/v1/dropped-tables/{dropped}"),
    }
)
# What a body says that may be told; what a view or a schema is made of is not.
PARAMETERS = frozenset(
    {
        *(
            "scope",
            "note",
            "expires",
            "namespaces",
            "streams",
            "verbs",
            "overlap",
            "stream",
            "from",
            "to",
            "reason",
            "name",
            "identifier",
            "source",
        ),
        *("destination", "metadata-location", "removals", "updates", "purgeRequested", "atOnce"),
    }
)


class ActTold:
    """One act, as the audit trail is told of it."""

    def __init__(self, request: Request, action: str, trail: AuditTrail) -> None:
        self.request, self.action, self._trail = request, action, trail
        self._began_s = SYSTEM_CLOCK.monotonic_s()

    async def begin(self, who: Principal, given: Mapping[str, Any]) -> None:
        """Tells that it is about to begin. Raises CatalogError 503 where that fails and it has to be told."""
        begins = beginning(self._said(who, given))
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._trail.begin_act, begins)
        except TrailLostError as error:
            raise CatalogError(503, "ServiceUnavailableException", str(error)) from error

    def ended(
        self, who: Principal, given: Mapping[str, Any], status: int, reason: str, made: str = ""
    ) -> None:
        """Tells what became of it."""
        took_s = SYSTEM_CLOCK.monotonic_s() - self._began_s
        said = {**self._said(who, given), "firn.object": made}
        ends = ending(said, kind="end", status=status, reason=reason, took_s=took_s)
        # Not awaited: whoever is cancelled awaits nothing any more, and the act has ended.
        asyncio.get_running_loop().run_in_executor(None, self._trail.end_act, ends)

    def made(self, answer: bytes) -> str:
        """The id of what it made. Of a new key the answer holds the secret too, which goes nowhere."""
        found = object_of(answer)
        if self.action == "key.create":
            return str(found.get("key", "")).partition("_")[2].partition("_")[0]
        return str(found.get("id", "")) if self.action == "hold.set" else ""

    def _said(self, who: Principal, given: Mapping[str, Any]) -> Fields:
        request = self.request
        of_path = {name: value for name, value in request.path_params.items() if name != "namespace"}
        of_query = {name: request.query_params[name] for name in PARAMETERS & request.query_params.keys()}
        of_body = _told_of(self.action, given) if given else {}
        fields = request_fields(
            request,
            self.action,
            room="catalog",
            category="configuration",
            asker=asker_of(who),
            parameters={**of_path, **of_query, **of_body},
        )
        return {**fields, "organization.name": _tenant(request, {**given, **of_body})}


def asker_of(who: Principal) -> Asker:
    """Who it was, as the audit trail calls them."""
    bound = None if who.reached is None else ",".join(map(dotted, who.reached))
    if isinstance(who, Person):
        return Asker(who.key_id, bound, who.name, who.issuer, ", ".join(map(str, who.grants)))
    return Asker(who.key_id, bound)


def is_act(action: str, given: Mapping[str, Any]) -> bool:
    """Whether somebody changes something there who decides: the API asks whether a key may by changing
    nothing, and a node notes all the time what it has parked."""
    if action == CHANGES_NAMESPACE:
        return bool(given.get("removals") or given.get("updates"))
    return action != RESOLVES or _is_decision(given)


def _is_decision(given: Mapping[str, Any]) -> bool:
    """Whether parked records are changed by a person (`python -m ingest resolve`, `parked replay`), under a
    lease that is named after the table, and not by a node."""
    try:
        (change,) = given["changes"]
        table = ".".join((*change["identifier"]["namespace"], change["identifier"]["name"]))
        return str(given["lease"]).rpartition(":")[0].endswith(f".{table}")
    except (KeyError, TypeError, ValueError):
        return False


def _told_of(action: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a body says that may be told, by parameter."""
    if action != RESOLVES:
        return {name: given[name] for name in PARAMETERS & given.keys()}
    (change,) = given["changes"]
    return {"identifier": change["identifier"], "resolution": (change.get("record") or {}).get("resolution")}


def _tenant(request: Request, given: Mapping[str, Any]) -> str | None:
    """The tenant whose namespace is named, as its records call it; another namespace as it is."""
    identifier = given.get("identifier") or given.get("source")
    inside = identifier.get("namespace") if isinstance(identifier, dict) else None
    named = request.path_params.get("namespace") or given.get("namespace") or inside
    levels = named if isinstance(named, list) else str(named).split(SEPARATOR) if named else []
    namespace = ".".join(map(str, levels))
    return (from_identifier(namespace) or namespace) if namespace else None


def object_of(body: bytes) -> Mapping[str, Any]:
    """A JSON object; an empty one where the bytes are something else."""
    try:
        found = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
