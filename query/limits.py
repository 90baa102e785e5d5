"""How much one tenant may ask at once, so that none can starve another."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lake.errors import FirnError
from lake.tenant import TenantId


class BusyError(FirnError):
    """Too many searches of one tenant run already."""


class Turns:
    """At most `at_once` searches of a tenant; as many again wait up to `queue_timeout_s`, so that waiting ones never take all threads."""

    def __init__(self, at_once: int, queue_timeout_s: float) -> None:
        self._at_once = at_once
        self._timeout_s = queue_timeout_s
        self._lock = threading.Lock()
        self._running: dict[TenantId, tuple[threading.BoundedSemaphore, int]] = {}

    @contextmanager
    def take(self, tenant: TenantId) -> Iterator[None]:
        """Waits for a turn. Raises BusyError."""
        with self._lock:
            semaphore, users = self._running.get(tenant, (threading.BoundedSemaphore(self._at_once), 0))
            if users >= 2 * self._at_once:
                raise self._busy(tenant)
            self._running[tenant] = (semaphore, users + 1)
        try:
            if not semaphore.acquire(timeout=self._timeout_s):
                raise self._busy(tenant)
            try:
                yield
            finally:
                semaphore.release()
        finally:
            with self._lock:
                semaphore, users = self._running[tenant]
                if users == 1:
                    del self._running[tenant]
                else:
                    self._running[tenant] = (semaphore, users - 1)

    def users(self, tenant: TenantId) -> int:
        """How many searches of a tenant run or wait."""
        with self._lock:
            return self._running[tenant][1] if tenant in self._running else 0

    def _busy(self, tenant: TenantId) -> BusyError:
        return BusyError(f"{self._at_once} searches of tenant {tenant.name!r} run already; wait for one of them to end and ask again")


class Tails:
    """How many tails of each tenant are open: ingest runs only so many, and one tenant must not take them all. For one thread."""

    def __init__(self, per_tenant: int) -> None:
        self._per_tenant = per_tenant
        self._open: dict[TenantId, int] = {}

    def check(self, tenant: TenantId) -> None:
        """Raises BusyError where the tenant has as many as it may."""
        if self._open.get(tenant, 0) >= self._per_tenant:
            raise BusyError(f"{self._per_tenant} live tails of tenant {tenant.name!r} are open already; close one")

    @contextmanager
    def one_more(self, tenant: TenantId) -> Iterator[None]:
        """Counts one while it is open."""
        self._open[tenant] = self._open.get(tenant, 0) + 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
