"""What the catalog says of tenants' records and bytes a second, of their streams and their memory: asked for
all at once, and for a minute believed."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from ingest.model.tenant_rate import TenantRate
from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import FirnError
from lake.extras_client import ExtrasClient
from lake.limits import UNBOUND, Bound, Limit, limits_of
from lake.retention_policies import BELIEVED_S
from lake.settings import IngestSettings
from lake.tenant import SYSTEM_TENANT

ASK_TIMEOUT_S = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Said:
    """What holds of a tenant."""

    rate: TenantRate | None
    streams: Bound
    columns: Bound
    memory_percent: Bound

    @classmethod
    def of(cls, namespace: str, of_tenant: dict[str, str], of_lake: dict[str, str]) -> "_Said":
        found = limits_of(namespace, of_tenant, of_lake)
        rate = TenantRate(found.get(Limit.RECORDS_PER_S, UNBOUND), found.get(Limit.BYTES_PER_S, UNBOUND))
        is_any = rate.records.most is not None or rate.size_bytes.most is not None
        return cls(
            rate if is_any else None,
            *(found.get(each, UNBOUND) for each in (Limit.STREAMS, Limit.COLUMNS, Limit.MEMORY_PERCENT)),
        )


NOTHING = _Said(None, UNBOUND, UNBOUND, UNBOUND)


@dataclass(slots=True)
class CatalogRates:
    """One process's, and one thread's. Where the catalog does not answer, what it said last counts. Behind
    another catalog nothing is limited: it tells of one namespace at a time."""

    open_catalog: Callable[[], CatalogClient]
    clock: Clock
    _client: CatalogClient | None = None
    _asked_s: float = float("-inf")
    _lake: _Said = field(default_factory=lambda: NOTHING)
    _said: dict[str, _Said] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: IngestSettings, clock: Clock) -> "CatalogRates":
        """Those of the catalog that the settings name."""
        token = settings.catalog.token.get_secret_value() if settings.catalog.token else None
        return cls(lambda: CatalogClient(settings.catalog.uri, token=token), clock)

    def rate(self, namespace: str) -> TenantRate | None:
        """See `Rates`."""
        return self._of(namespace).rate

    def streams(self, namespace: str) -> Bound:
        """See `StreamLimits`."""
        return self._of(namespace).streams

    def columns(self, namespace: str) -> Bound:
        """See `Rates`."""
        return self._of(namespace).columns

    def memory_percent(self, namespace: str) -> Bound:
        """See `Rates`."""
        return self._of(namespace).memory_percent

    def _of(self, namespace: str) -> _Said:
        if self.clock.monotonic_s() - self._asked_s > BELIEVED_S:
            self._asked_s = self.clock.monotonic_s()
            self._ask()
        if namespace in self._said:
            return self._said[namespace]
        return NOTHING if namespace == SYSTEM_TENANT.namespace else self._lake

    def _ask(self) -> None:
        try:
            if self._client is None:
                self._client = self.open_catalog()
            if not self._client.has_extras:
                return
            told = ExtrasClient(self._client).policies(timeout_s=ASK_TIMEOUT_S, limits_alone=True)
        except FirnError as error:
            log.warning("limits.not_known", error=str(error))
            return
        lake = told.pop(None, {})
        self._lake = _Said.of("", {}, lake)
        self._said = {each: _Said.of(each, said, lake) for each, said in told.items() if each is not None}
