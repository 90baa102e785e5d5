"""How much one tenant may ask at once, so that none can starve another."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lake.errors import FirnError
from lake.tenant import TenantId


class BusyError(FirnError):
    """Too many searches of one tenant run already."""


class Turns:
    """At most `at_once` searches of a tenant; the others wait up to `queue_timeout_s`."""

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
            self._running[tenant] = (semaphore, users + 1)
        try:
            if not semaphore.acquire(timeout=self._timeout_s):
                raise BusyError(f"{self._at_once} searches of tenant {tenant.name!r} run already; wait for one of them to end and ask again")
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
