"""Whether a tenant that gets a table is mistaken for another one: warned of in the log and counted, never
held up."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

import structlog

from lake import metrics
from lake.confusable import likenesses, peculiarities, skeleton, visible
from lake.errors import FirnError
from lake.tenant import TableId, from_identifier

log = structlog.get_logger()


@dataclass
class LookAlikes:
    """Thread-safe. `namespaces` lists the catalog's; it is asked once, at the first new table, and what was
    created since is remembered."""

    namespaces: Callable[[], Iterable[str]]
    _known: dict[str, set[str]] | None = None
    _lock: Lock = field(default_factory=Lock)

    def check(self, table: TableId) -> tuple[str, ...]:
        """Warns of the tenant of a new table where there is reason to; says why. An unreachable catalog stops
        nothing."""
        name = table.tenant.name
        peculiar, alike = peculiarities(name), likenesses(name, self._others(name))
        for what, warnings in (("name", peculiar), ("looks_like", alike)):
            if warnings:
                metrics.TENANTS_CONFUSABLE.labels(what).inc()
        if peculiar or alike:
            log.warning("tenant.confusable", tenant=visible(name), table=str(table), why=[*peculiar, *alike])
        return (*peculiar, *alike)

    def _others(self, name: str) -> set[str]:
        """The names with the same skeleton; this one is among them from now on."""
        with self._lock:
            try:
                self._known = self._listed() if self._known is None else self._known
            except FirnError as error:
                log.info("tenant.not_compared", reason=str(error))
                return set()
            alike = self._known[skeleton(name)]
            alike.add(name)
            return set(alike)

    def _listed(self) -> dict[str, set[str]]:
        known: dict[str, set[str]] = defaultdict(set)
        for name in map(from_identifier, self.namespaces()):
            if name is not None:
                known[skeleton(name)].add(name)
        return known
