"""Who asks, and which tenants they see. The catalog holds the keys, proves the tokens of people, and decides;
this room only asks it with what the caller has sent.

Without keys (a catalog started with --anonymous, on this machine) everybody sees everything, and the API
refuses to listen beyond loopback.
"""

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from lake.audit.request_event import Asker
from lake.catalog_client import CatalogClient
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, NotFoundError, UnavailableError
from lake.extras_client import PERMISSION_PATH, REPORTS_PATH, TENANTS_PATH, WHOAMI_PATH
from lake.listening import check_exposure
from lake.settings import QuerySettings
from lake.stream_pattern import reaches
from lake.tenant import SYSTEM_TENANT, TableId, TenantId
from lake.tls import tls_context

KEPT_S = 5.0
CALLERS_MAX = 256
VERDICTS_MAX = 100_000
WHO_MAX = 10_000
PING_TIMEOUT_S = 5.0
# What says whether a key reaches something. Any other status is no such verdict, and nothing may be taken
# from it.
DECIDED = frozenset(
    {
        httpx.codes.OK,
        httpx.codes.NO_CONTENT,
        httpx.codes.BAD_REQUEST,
        httpx.codes.UNAUTHORIZED,
        httpx.codes.FORBIDDEN,
        httpx.codes.NOT_FOUND,
    }
)  # 400: a name that nothing can have


class UnauthorizedError(FirnError):
    """No key, or none in force."""


class ForbiddenError(FirnError):
    """A key that does not reach this tenant or this act."""


@dataclass(frozen=True, slots=True)
class Who:
    """Whose a key or token is, in the catalog's words: the key's id, and the namespace it is bound to (None:
    it is not), with those to which it is bound besides; `streams`: the patterns of those it reaches there,
    None for all.

    Of a person the id is issuer and subject, with name, issuer and roles beside it. `refusal`: why somebody
    who is known may do nothing.
    """

    key_id: str
    namespace: str | None = None
    more_namespaces: tuple[str, ...] = ()
    streams: tuple[str, ...] | None = None
    name: str = ""
    issuer: str = ""
    roles: str = ""
    refusal: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether some namespaces are reached and not all."""
        return self.namespace is not None

    @property
    def title(self) -> str:
        """What messages call the caller."""
        return self.name or self.key_id if self.issuer else f"key {self.key_id}"

    @property
    def share(self) -> str:
        """What the caller's own share of a lane is called."""
        return self.key_id if self.issuer else f"key {self.key_id}"

    @property
    def asker(self) -> Asker:
        """The caller as the audit trail calls them."""
        return Asker(self.key_id, ",".join(self.namespaces) or None, self.name, self.issuer, self.roles)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that it is bound to; none: it is not bound."""
        return () if self.namespace is None else (self.namespace, *self.more_namespaces)

    def knows(self, stream: str) -> bool:
        """Whether it reaches a stream of its tenants."""
        return reaches(self.streams, stream)


ANONYMOUS = Who("anonymous")


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a key or token (None: anonymous) and a catalog client that speaks with it, so that the
    catalog checks every step again."""

    key: str | None
    catalog: CatalogClient
    who: Who = ANONYMOUS


class Access:
    """Asks the catalog who may read what, and remembers the answers for a few seconds. Thread-safe."""

    def __init__(self, settings: QuerySettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._uri = settings.catalog.uri.rstrip("/")
        self._own = settings.catalog.token.get_secret_value() if settings.catalog.token else None
        self._http = httpx.Client(base_url=self._uri, timeout=10.0, verify=tls_context(), trust_env=False)
        self._ping = httpx.Client(
            base_url=self._uri, timeout=PING_TIMEOUT_S, verify=tls_context(), trust_env=False
        )
        self._lock = threading.Lock()
        self._clients: OrderedDict[str | None, CatalogClient] = OrderedDict()
        self._who: OrderedDict[bytes, tuple[Who | str, float]] = (
            OrderedDict()
        )  # by digest: what strangers send may be long
        self._verdicts: OrderedDict[tuple[str | None, str], tuple[int, float]] = OrderedDict()
        self._anonymous: bool | None = None

    @property
    def needs_key(self) -> bool:
        """Whether the catalog turns callers without a key away. Raises UnavailableError."""
        if self._anonymous is None:
            self._anonymous = self._status(None, "/v1/namespaces?pageSize=1") != httpx.codes.UNAUTHORIZED
        return not self._anonymous

    def caller(self, authorization: str | None) -> Caller:
        """The caller behind an Authorization header. Raises UnauthorizedError, ForbiddenError."""
        key = _key_in(authorization)
        caller = self.known(authorization)
        if caller is not None:
            return caller
        who = self._ask_who(key)
        with self._lock:
            self._who[_digest(key)] = (who, self._clock.monotonic_s())
            if len(self._who) > WHO_MAX:
                self._who.popitem(last=False)
        return self._caller(key, who)

    def known(self, authorization: str | None) -> Caller | None:
        """The caller behind an Authorization header, where it was asked for within the last seconds; asks
        nobody. Raises UnauthorizedError, ForbiddenError."""
        key = _key_in(authorization)
        with self._lock:
            who, since_s = self._who.get(_digest(key), (ANONYMOUS, None))
        return (
            None
            if since_s is None or self._clock.monotonic_s() - since_s >= KEPT_S
            else self._caller(key, who)
        )

    def _caller(self, key: str | None, who: Who | str) -> Caller:
        if isinstance(who, str):
            raise UnauthorizedError(who)
        if who.refusal:
            raise ForbiddenError(who.refusal)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = CatalogClient(self._uri, token=key)
                while len(self._clients) > CALLERS_MAX:
                    self._clients.popitem(last=False)[1].close()
            self._clients.move_to_end(key)
            return Caller(key, self._clients[key], who)

    def _ask_who(self, key: str | None) -> Who | str:
        """Whose the key is; a sentence where it is nobody's."""
        answer = self._ask(key, WHOAMI_PATH)
        if (
            answer is not None and answer.status_code == httpx.codes.NOT_FOUND
        ):  # another catalog, which does not tell
            answer = self._ask(key, "/v1/namespaces?pageSize=1")
            if answer is not None and answer.status_code != httpx.codes.UNAUTHORIZED:
                return ANONYMOUS if key is None else Who(f"sha256:{_digest(key).hex()[:12]}")
        if answer is not None and answer.is_success:
            return who_of(answer.json())
        if answer is not None and answer.status_code == httpx.codes.FORBIDDEN:  # a person without a role
            return Who("", refusal=_sentence(answer))
        if (
            answer is not None
            and answer.status_code == httpx.codes.UNAUTHORIZED
            and ("expired on" in answer.text or "the token is" in answer.text)
        ):
            return _sentence(answer)
        return (
            "this needs an API key in force; send it as `Authorization: Bearer firn_...`, or make one "
            "with `python -m catalog`; people log in where an issuer is set up"
        )

    def check_tenant(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the key does not reach the tenant. Who did what is for administrators
        alone, whatever else a key reaches."""
        if tenant == SYSTEM_TENANT:
            self.check_administrator(caller)
        if self._verdict(caller.key, f"/v1/namespaces/{tenant.namespace}") in (
            httpx.codes.FORBIDDEN,
            httpx.codes.UNAUTHORIZED,
        ):
            if caller.who.issuer:
                raise ForbiddenError(f"{caller.who.title} has no role in tenant {tenant.name!r}")
            raise ForbiddenError(f"this key does not reach tenant {tenant.name!r}; use a key of that tenant")

    def check_writer(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the key may not change what the tenant has. The catalog is asked to
        change nothing, and says whether it would."""
        self.check_tenant(caller, tenant)
        change: dict[str, Any] = {"removals": [], "updates": {}}
        status = self._status(caller.key, f"/v1/namespaces/{tenant.namespace}/properties", change)
        if status in (httpx.codes.FORBIDDEN, httpx.codes.UNAUTHORIZED):
            if caller.who.issuer:
                raise ForbiddenError(f"this needs the role operator of tenant {tenant.name!r}")
            raise ForbiddenError(
                f"this key may read tenant {tenant.name!r} and not change anything of it; use a key with "
                "scope write"
            )

    def check_stream(self, caller: Caller, table: TableId) -> None:
        """What `check_tenant` does, of one stream. Raises NotFoundError where the key does not reach it,
        whether or not it is there."""
        self.check_tenant(caller, table.tenant)
        if not caller.who.knows(table.stream):
            raise no_stream(table)

    def check_whole(self, caller: Caller, tenant: TenantId) -> None:
        """The same of what is about all streams of a tenant. Raises ForbiddenError where the key reaches
        some."""
        self.check_tenant(caller, tenant)
        if caller.who.streams is not None:
            raise ForbiddenError(
                f"this is about all streams of tenant {tenant.name!r}, and this key reaches some of them "
                f"({', '.join(caller.who.streams)}); use a key that reaches the tenant whole"
            )

    def check_operator(self, caller: Caller) -> None:
        """Raises ForbiddenError for a key that is bound to a tenant or may only read."""
        status = self._verdict(caller.key, f"{TENANTS_PATH}?pageSize=1")
        # A catalog without extras does not tell keys apart, so there only one that asks for none lets
        # everybody do this.
        if status != httpx.codes.OK and (status != httpx.codes.NOT_FOUND or self.needs_key):
            raise ForbiddenError(
                "this needs a key that reaches all tenants and may change things, or the role operator; "
                "name a tenant, or use another key"
            )

    def check_holder(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the caller sets and lifts no legal holds on the tenant."""
        self._check_permission(caller, "hold", tenant, "the role operator of this tenant")

    def check_limiter(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the caller does not say what the tenant may use."""
        self._check_permission(caller, "limit", tenant, "the role administrator of all tenants")

    def _check_permission(self, caller: Caller, need: str, tenant: TenantId, role: str) -> None:
        if not caller.who.issuer:  # of keys these are all who reach every tenant and may change things
            self.check_operator(caller)
            return
        path = f"{PERMISSION_PATH}?need={need}&namespace={tenant.namespace}"
        if self._verdict(caller.key, path) != httpx.codes.NO_CONTENT:
            raise ForbiddenError(f"this needs {role}")

    def check_administrator(self, caller: Caller) -> None:
        """Raises ForbiddenError for a key of another scope than admin."""
        if self._verdict(caller.key, f"{REPORTS_PATH}?pageSize=1") != httpx.codes.OK:
            raise ForbiddenError(
                "this needs an administrator's key, which is bound to no tenant, or the role administrator "
                "of all tenants"
            )

    def is_administrator(self, caller: Caller) -> bool:
        """Whether `check_administrator` lets the key pass."""
        try:
            self.check_administrator(caller)
        except ForbiddenError:
            return False
        return True

    def _verdict(self, key: str | None, path: str) -> int:
        with self._lock:
            known = self._verdicts.get((key, path))
        if known is not None and self._clock.monotonic_s() - known[1] < KEPT_S:
            return known[0]
        status = self._status(key, path)
        with self._lock:
            self._verdicts[key, path] = (status, self._clock.monotonic_s())
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        return status

    def ping(self) -> bool:
        """Whether the catalog answers, asked on a connection of its own: those of the callers may all wait
        for it."""
        try:
            return self._ping.get("/v1/config").status_code < httpx.codes.INTERNAL_SERVER_ERROR
        except httpx.HTTPError:
            return False

    def _status(self, key: str | None, path: str, body: Mapping[str, Any] | None = None) -> int:
        answer = self._ask(key, path, body)
        return httpx.codes.UNAUTHORIZED if answer is None else answer.status_code

    def _ask(
        self, key: str | None, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response | None:
        """The catalog's answer; None: the key is nothing that could be sent. Raises UnavailableError where it
        decides nothing."""
        headers = {"Authorization": f"Bearer {key}"} if key else None
        try:
            answer = self._http.request("GET" if body is None else "POST", path, headers=headers, json=body)
        except (httpx.LocalProtocolError, UnicodeError):  # a key that cannot even be sent is none in force
            return None
        except httpx.HTTPError as error:
            raise UnavailableError(
                f"the catalog at {self._uri} does not answer ({type(error).__name__}); is it running?"
            ) from error
        if answer.status_code not in DECIDED:
            raise UnavailableError(
                f"the catalog at {self._uri} answers {answer.status_code}: {_sentence(answer)}"
            )
        return answer


def who_of(told: Mapping[str, Any]) -> Who:
    """Whom the catalog names (`whoami`). One from before keys were narrowed tells of one namespace and no
    streams."""
    namespace, streams = told["namespace"], told.get("streams")
    namespaces = told.get("namespaces") or ([] if namespace is None else [namespace])
    named = [".".join(levels) for levels in namespaces]
    return Who(
        str(told["key-id"]),
        named[0] if named else None,
        tuple(named[1:]),
        None if streams is None else tuple(map(str, streams)),
        str(told.get("name", "")),
        str(told.get("issuer", "")),
        ", ".join(map(_role, told.get("roles", ()))),
    )


def _role(told: Mapping[str, Any]) -> str:
    where = told["namespace"]
    return str(told["role"]) if where is None else f"{told['role']}:{'.'.join(where)}"


def _key_in(authorization: str | None) -> str | None:
    return (
        authorization.split(" ", 1)[1].strip()
        if authorization and authorization.lower().startswith("bearer ")
        else None
    )


def as_bearer(authorization: str | None) -> str | None:
    """What Elasticsearch's clients send (`ApiKey`, with the key alone or base64 of `id:key`; `Basic`, with
    the key as password) as the header that every other route takes. Anything else stays as it is."""
    scheme, _, rest = (authorization or "").partition(" ")
    if scheme.lower() not in ("apikey", "basic"):
        return authorization
    try:
        _, colon, key = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = key = ""
    return f"Bearer {key}" if colon else f"Bearer {rest.strip()}" if scheme.lower() == "apikey" else None


def _digest(key: str | None) -> bytes:
    return b"" if key is None else hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "its log says why"


def no_stream(table: TableId, also: str = "") -> NotFoundError:
    """The same sentence for a stream that is not there and for one that the asker does not reach."""
    return NotFoundError(
        f"tenant {table.tenant.name!r} has no stream {table.stream!r}; its streams are listed under "
        f"/v1/streams?tenant=...{also}"
    )


def check_host(host: str, access: Access) -> None:
    """Beyond loopback nobody is let in without a key. Raises SettingsError."""
    check_exposure(
        host,
        is_open=lambda: not access.needs_key,
        refusal=(
            f"the API refuses to listen on {host} while the catalog lets callers in without keys: make keys, "
            "start the catalog without --anonymous, and put TLS in front; or listen on 127.0.0.1"
        ),
    )
