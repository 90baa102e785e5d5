"""The tenants that a key reaches, as a listing by pages sees them: asked for once, with its first page.

All of them are compared with each other, by the likeness of their names; for every page again, a listing of a
hundred thousand tenants would take a hundred times as long as it has pages.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lake.clock import Clock
from lake.confusable import warnings_of
from lake.tenant import TenantId

# For how long the pages after the first rest on what that one found, and of how many callers.
KEPT_S = 30.0
CALLERS_MAX = 8


@dataclass(frozen=True, slots=True)
class Reached:
    """Tenants in the order of their namespaces, and the warnings about those that there are any of."""

    tenants: Sequence[TenantId]
    namespaces: Sequence[str]
    warnings: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, tenants: Iterable[TenantId]) -> "Reached":
        ordered = sorted(tenants, key=lambda each: each.namespace)
        return cls(ordered, [each.namespace for each in ordered], warnings_of(each.name for each in ordered))

    def page(self, after: str, limit: int, part: str = "") -> tuple[Sequence[TenantId], str | None]:
        """Returns the next so many behind a namespace, and behind which the page after them begins. `part`:
        only those that have this in their names, in any case of letters."""
        first, wanted = bisect_right(self.namespaces, after), part.casefold()
        behind = (self.tenants[at] for at in range(first, len(self.tenants)))
        found = [*islice((each for each in behind if wanted in each.name.casefold()), limit + 1)]
        page = found[:limit]
        return page, page[-1].namespace if len(found) > limit else None


@dataclass
class ReachedTenants:
    """What the newest listings found, by the key that asked. Thread-safe."""

    clock: Clock
    _kept: OrderedDict[str | None, tuple[float, Reached]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: str | None, ask: Callable[[], Iterable[TenantId]], *, anew: bool) -> Reached:
        """Returns the tenants that a key reaches; `anew`: as they are now. Raises what `ask` raises."""
        now_s = self.clock.monotonic_s()
        with self._lock:
            at_s, kept = self._kept.get(key, (0.0, None))
        if kept is not None and not anew and now_s - at_s < KEPT_S:
            return kept
        found = Reached.of(ask())
        with self._lock:
            self._kept[key] = now_s, found
            self._kept.move_to_end(key)
            while len(self._kept) > CALLERS_MAX:
                self._kept.popitem(last=False)
        return found
