"""What tenants may use, as the catalog says, believed for a minute."""

import threading
from collections.abc import Mapping

import structlog

from lake.clock import Clock
from lake.errors import FirnError
from lake.limits import Bound, Limit
from lake.retention_policies import BELIEVED_S, Policies

ASK_TIMEOUT_S = 5.0
log = structlog.get_logger()


class TenantLimits:
    """Asks the catalog. Where that does not answer, what was known last counts for a minute more: limits are
    no reason to refuse what the catalog would let through. Thread-safe."""

    def __init__(self, policies: Policies, clock: Clock) -> None:
        self._policies = policies
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Mapping[Limit, Bound]]] = {}

    def known(self, namespace: str) -> Mapping[Limit, Bound] | None:
        """Those of a tenant, as far as somebody says them, where they were asked for within the last minute;
        asks nobody."""
        at_s, limits = self._known.get(namespace, (None, None))
        return None if at_s is None or self._clock.monotonic_s() - at_s > BELIEVED_S else limits

    def of(self, namespace: str) -> Mapping[Limit, Bound]:
        """The same, asked for where they are not known."""
        with self._lock:
            if (known := self.known(namespace)) is not None:
                return known
            try:
                limits = self._policies.limits(namespace)
            except FirnError as error:
                log.warning("limits.not_known", namespace=namespace, error=str(error))
                limits = dict(self._known.get(namespace, (0.0, {}))[1])
            self._known[namespace] = self._clock.monotonic_s(), limits
            return limits

    def forget(self) -> None:
        """Has the next question asked of the catalog: something was changed."""
        with self._lock:
            self._known.clear()
            self._policies.forget()
