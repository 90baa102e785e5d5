"""Who asks, and which tenants they see. The catalog holds the keys and decides; this room only asks it with the caller's own key.

Without keys (a catalog started with --anonymous, on this machine) everybody sees everything, and the API refuses to listen beyond loopback.
"""

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from lake.catalog_client import CatalogClient
from lake.errors import FirnError, SettingsError, UnavailableError
from lake.settings import QuerySettings
from lake.tenant import TenantId

KEPT_S = 5.0
CALLERS_MAX = 256
VERDICTS_MAX = 100_000


class UnauthorizedError(FirnError):
    """No key, or none in force."""


class ForbiddenError(FirnError):
    """A key that does not reach this tenant or this act."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a key (None: anonymous) and a catalog client that speaks with it, so that the catalog checks every step again."""

    key: str | None
    catalog: CatalogClient


class Access:
    """Asks the catalog who may read what, and remembers the answers for a few seconds. Thread-safe."""

    def __init__(self, settings: QuerySettings) -> None:
        self._uri = settings.catalog_uri.rstrip("/")
        self._own = settings.catalog_token.get_secret_value() if settings.catalog_token else None
        self._http = httpx.Client(base_url=self._uri, timeout=10.0, trust_env=False)
        self._lock = threading.Lock()
        self._callers: OrderedDict[str | None, Caller] = OrderedDict()
        self._verdicts: OrderedDict[tuple[str | None, str], tuple[int, float]] = OrderedDict()
        self._anonymous: bool | None = None

    @property
    def needs_key(self) -> bool:
        """Whether the catalog turns callers without a key away. Raises UnavailableError."""
        if self._anonymous is None:
            self._anonymous = self._status(None, "/v1/namespaces?pageSize=1") != httpx.codes.UNAUTHORIZED
        return not self._anonymous

    def caller(self, authorization: str | None) -> Caller:
        """The caller behind an Authorization header. Raises UnauthorizedError."""
        key = authorization.split(" ", 1)[1].strip() if authorization and authorization.lower().startswith("bearer ") else None
        if self._verdict(key, "/v1/namespaces?pageSize=1") == httpx.codes.UNAUTHORIZED:
            raise UnauthorizedError("this needs an API key in force; send it as `Authorization: Bearer firn_...`, or make one with `python -m catalog`")
        with self._lock:
            if key not in self._callers:
                self._callers[key] = Caller(key, CatalogClient(self._uri, token=key))
                while len(self._callers) > CALLERS_MAX:
                    self._callers.popitem(last=False)[1].catalog.close()
            self._callers.move_to_end(key)
            return self._callers[key]

    def check_tenant(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the key does not reach the tenant."""
        if self._verdict(caller.key, f"/v1/namespaces/{tenant.namespace}") == httpx.codes.FORBIDDEN:
            raise ForbiddenError(f"this key does not reach tenant {tenant.name!r}; use a key of that tenant")

    def check_writer(self, caller: Caller, tenant: TenantId) -> None:
        """Raises ForbiddenError where the key may not change what the tenant has. The catalog is asked to change nothing, and says whether it would."""
        self.check_tenant(caller, tenant)
        change: dict[str, Any] = {"removals": [], "updates": {}}
        status = self._status(caller.key, f"/v1/namespaces/{tenant.namespace}/properties", change)
        if status in (httpx.codes.FORBIDDEN, httpx.codes.UNAUTHORIZED):
            raise ForbiddenError(f"this key may read tenant {tenant.name!r} and not change anything of it; use a key with scope write")

    def check_operator(self, caller: Caller) -> None:
        """Raises ForbiddenError for a key that is bound to a tenant or may only read."""
        status = self._verdict(caller.key, "/firn/v1/tenants?pageSize=1")
        # A catalog without extras does not tell keys apart, so there only one that asks for none lets everybody do this.
        if status != httpx.codes.OK and (status != httpx.codes.NOT_FOUND or self.needs_key):
            raise ForbiddenError("this needs a key that reaches all tenants and may change things; name a tenant, or use another key")

    def _verdict(self, key: str | None, path: str) -> int:
        with self._lock:
            known = self._verdicts.get((key, path))
        if known is not None and time.monotonic() - known[1] < KEPT_S:
            return known[0]
        status = self._status(key, path)
        with self._lock:
            self._verdicts[key, path] = (status, time.monotonic())
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        return status

    def _status(self, key: str | None, path: str, body: Mapping[str, Any] | None = None) -> int:
        headers = {"Authorization": f"Bearer {key}"} if key else None
        try:
            status = self._http.request("GET" if body is None else "POST", path, headers=headers, json=body).status_code
        except (httpx.LocalProtocolError, UnicodeError):  # a key that cannot even be sent is none in force
            return httpx.codes.UNAUTHORIZED
        except httpx.HTTPError as error:
            raise UnavailableError(f"the catalog at {self._uri} does not answer ({type(error).__name__}); is it running?") from error
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise UnavailableError(f"the catalog at {self._uri} answers {status}; its log says why")
        return status


def check_host(host: str, access: Access) -> None:
    """Beyond loopback nobody is let in without a key. Raises SettingsError."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback and not access.needs_key:
        raise SettingsError(
            f"the API refuses to listen on {host} while the catalog lets callers in without keys: make keys, start the catalog without --anonymous, "
            "and put TLS in front; or listen on 127.0.0.1"
        )
