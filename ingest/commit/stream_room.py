"""Whether a tenant may have one more stream: by its limit, and by the tables that it has.

What the catalog says is asked for in a thread, and for a minute believed; what was let in meanwhile is
counted here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

import structlog

from ingest.model.tenant_rate import StreamLimits
from lake.clock import Clock
from lake.errors import FirnError, NotFoundError, Reason, Rejected
from lake.limits import Limit
from lake.retention_policies import BELIEVED_S
from lake.tenant import TableId

log = structlog.get_logger()


@dataclass
class _Tenant:
    """`most`, and who says so; the names of its tables, and of those that were let in and may not be there
    yet."""

    most: int
    level: str
    at_s: float
    tables: set[str]
    let_in: set[str] = field(default_factory=set)


@dataclass
class StreamRoom:
    """`tables` lists the names of a namespace's tables, and raises FirnError. Thread-safe."""

    limits: StreamLimits
    tables: Callable[[str], Iterable[str]]
    clock: Clock
    _tenants: dict[str, _Tenant] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def look(self, new: Iterable[TableId]) -> None:
        """In a thread: takes note of what holds of the tenants of tables that are new. Where the catalog does
        not answer, what it said last counts."""
        for namespace in dict.fromkeys(table.tenant.namespace for table in new):
            bound = self.limits.streams(namespace)
            with self._lock:
                before = self._tenants.get(namespace)
                if bound.most is None:
                    self._tenants.pop(namespace, None)
            now_s = self.clock.monotonic_s()
            if bound.most is None or (before is not None and now_s - before.at_s < BELIEVED_S):
                continue
            try:
                found = set(self.tables(namespace))
            except NotFoundError:  # a tenant without any table
                found = set()
            except FirnError as error:
                log.warning("streams.not_counted", namespace=namespace, error=str(error))
                continue
            with self._lock:
                let_in = set() if before is None else before.let_in - found
                self._tenants[namespace] = _Tenant(bound.most, str(bound.level), now_s, found, let_in)

    def take(self, table: TableId) -> Rejected | None:
        """Lets a new table in; why not, where its tenant has as many streams as it may. Asks nobody."""
        with self._lock:
            tenant = self._tenants.get(table.tenant.namespace)
            if tenant is None or table.table in tenant.tables or table.table in tenant.let_in:
                return None
            if len(tenant.tables) + len(tenant.let_in) < tenant.most:
                tenant.let_in.add(table.table)
                return None
            return Rejected(
                Reason.OVER_LIMIT,
                "its tenant has as many streams as it may, and this would be a new one: "
                f"{Limit.STREAMS.value} is {tenant.most:,}, as the {tenant.level} says",
            )
