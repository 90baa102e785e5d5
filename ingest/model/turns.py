"""Turns of tenants: so that one with very much to do holds up none of the others."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from lake.tenant import TenantId

T = TypeVar("T")


def in_turns(several: Iterable[T], tenant: Callable[[T], TenantId]) -> Iterator[T]:
    """Each tenant's first one, then each one's second, and so on; those of a tenant in their order."""
    of_tenants = defaultdict[TenantId, list[T]](list)
    for one in several:
        of_tenants[tenant(one)].append(one)
    left = [iter(each) for each in of_tenants.values()]
    while left:
        going_on = []
        for each in left:
            for one in islice(each, 1):
                yield one
                going_on.append(each)
        left = going_on


class Turns(Generic[T]):
    """Those that wait, each once: whose turn it is, one of a tenant after one of another."""

    def __init__(self, tenant: Callable[[T], TenantId]) -> None:
        self._tenant = tenant
        # An ordinary dict is slow to find its first entry where many before it are gone.
        self._of_tenants: OrderedDict[TenantId, OrderedDict[T, None]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __contains__(self, one: T) -> bool:
        return one in self._of_tenants.get(self._tenant(one), ())

    def add(self, one: T) -> None:
        """It waits, behind all others of its tenant; one that does already stays where it is."""
        if one not in self:
            self._of_tenants.setdefault(self._tenant(one), OrderedDict())[one] = None
            self._waiting += 1

    def discard(self, one: T) -> None:
        """It waits no longer."""
        if one in self:
            tenant = self._tenant(one)
            of_tenant = self._of_tenants[tenant]
            del of_tenant[one]
            self._waiting -= 1
            if not of_tenant:
                del self._of_tenants[tenant]

    def next(self) -> T:
        """The one whose turn it is, which goes on waiting; the next turn is another tenant's. Somebody
        waits."""
        tenant = next(iter(self._of_tenants))
        self._of_tenants.move_to_end(tenant)
        return next(iter(self._of_tenants[tenant]))

    def take(self) -> T:
        """The same, and it waits no longer."""
        one = self.next()
        self.discard(one)
        return one
