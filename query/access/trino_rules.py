"""Rules for tenants that came since `trino-access` ran: written by the API when it is first about to ask
Trino as their user."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import UnavailableError
from lake.tenant import TenantId
from query.access.trino_access import refresh_rules, ruled_users

log = structlog.get_logger()
# Trino takes rules up within its refresh period, five seconds on the local stack.
TAKEN_UP_S = 10.0
LISTED_EVERY_S = 2.0


class TrinoRules:
    """Keeps the rules in a folder current. `list_tenants` gives every tenant there is. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        catalog: str,
        service_user: str,
        list_tenants: Callable[[], Iterable[TenantId]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._folder, self._catalog, self._service_user = folder, catalog, service_user
        self._list_tenants = list_tenants
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._written_s: dict[str, float] = {}
        self._listed_s = float("-inf")

    def check(self, user: str) -> None:
        """Raises UnavailableError while Trino does not know the rules of a user yet that it is about to."""
        if user in self._known and user not in self._written_s:
            return
        with self._lock:
            if user not in self._known:
                self._learn(user)
            written_s = self._written_s.get(user)
            if written_s is None:
                return
            if self._clock.monotonic_s() - written_s < TAKEN_UP_S:
                raise UnavailableError(
                    f"Trino is being told of {user!r}, whose tenant is new; ask again in some seconds"
                )
            del self._written_s[user]

    def _learn(self, user: str) -> None:
        """Reads who has rules; writes them anew where the user is a tenant's that has none."""
        try:
            self._known = ruled_users(self._folder)
            now_s = self._clock.monotonic_s()
            if user in self._known or now_s - self._listed_s < LISTED_EVERY_S:
                return
            self._listed_s = now_s
            tenants = list(self._list_tenants())
            if user not in {tenant.namespace for tenant in tenants}:
                return
            refresh_rules(self._folder, tenants, self._catalog, self._service_user)
            new = ruled_users(self._folder)
            self._written_s |= dict.fromkeys(new - self._known, self._clock.monotonic_s())
            self._known = new
        except (OSError, ValueError, KeyError) as error:
            log.warning(
                "trino.rules_not_written",
                folder=str(self._folder),
                error=str(error),
                do="run `python -m query trino-access` again",
            )
