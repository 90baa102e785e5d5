"""How much one tenant, or one key, may ask at once, so that none can starve another."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lake.errors import FirnError
from lake.tenant import TenantId

RESERVED_SHARE = 4  # the last quarter of all turns is for those of whom none runs
WAITING_PER_TURN = 4


class BusyError(FirnError):
    """Too much of one tenant, one key, or of everybody runs already. `retry_after_s`: when to ask again."""

    def __init__(self, sentence: str, *, retry_after_s: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Share:
    """Somebody who shares with others, as sentences name them, and how many turns they may have at once.
    `why`: who says so, where it is no setting of this room."""

    name: str
    at_once: int
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    shares: tuple[Share, ...]
    admitted: asyncio.Future[None]


class ConcurrencyLimit:
    """At most `total` turns at once, split among those who share them. For one event loop: who waits for a
    turn takes no thread.

    A turn counts for each of its shares: a tenant, and a key that reaches many. The last quarter of the turns
    goes to whoever has none, so that a few who never end shut nobody out; a turn that is given back goes to
    who has the fewest. As many as may run of the first share may wait, up to `queue_timeout_s`.
    """

    def __init__(self, total: int, queue_timeout_s: float) -> None:
        self.total = total
        self._timeout_s = queue_timeout_s
        self._running: Counter[str] = Counter()
        self._taken = 0
        self._queue: list[_Waiting] = []

    async def take(self, *shares: Share) -> Callable[[], None]:
        """Waits for a turn; what comes back gives it back, at the first call. Raises BusyError."""
        if self._may_start(shares):
            self._count(shares, 1)
        else:
            await self._wait(shares)
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._count(shares, -1)
                self._admit()

        return give_back

    def users(self, name: str) -> int:
        """How many turns somebody has or waits for."""
        return self._running[name] + self._waiting(name)

    async def _wait(self, shares: tuple[Share, ...]) -> None:
        if (
            self._waiting(shares[0].name) >= shares[0].at_once
            or len(self._queue) >= WAITING_PER_TURN * self.total
        ):
            raise self._busy(shares)
        mine = _Waiting(shares, asyncio.get_running_loop().create_future())
        self._queue.append(mine)
        try:
            async with asyncio.timeout(self._timeout_s):
                await mine.admitted
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine in self._queue:
                self._queue.remove(mine)
            else:  # admitted at this very moment, and counted
                self._count(shares, -1)
                self._admit()
            if isinstance(error, TimeoutError):
                raise self._busy(shares) from None
            raise

    def _admit(self) -> None:
        """Lets in who waits: those with the fewest turns first, of them who came first."""
        while ready := [
            each for each in self._queue if not each.admitted.done() and self._may_start(each.shares)
        ]:
            first = min(ready, key=lambda each: self._running[each.shares[0].name])
            self._queue.remove(first)
            self._count(first.shares, 1)
            first.admitted.set_result(None)

    def _may_start(self, shares: tuple[Share, ...]) -> bool:
        has_none = self._running[shares[0].name] == 0
        free = self.total - self._taken - (0 if has_none else self.total // RESERVED_SHARE)
        return free > 0 and all(self._running[share.name] < share.at_once for share in shares)

    def _count(self, shares: tuple[Share, ...], change: int) -> None:
        self._taken += change
        for share in shares:
            self._running[share.name] += change
            if not self._running[share.name]:
                del self._running[share.name]

    def _waiting(self, name: str) -> int:
        return sum(each.shares[0].name == name for each in self._queue)

    def _busy(self, shares: tuple[Share, ...]) -> BusyError:
        full = next((share for share in shares if self._running[share.name] >= share.at_once), None)
        if full is None:
            return BusyError("too many requests of all tenants together run already; ask again in a moment")
        return BusyError(
            f"{full.at_once} requests of {full.name} run already{full.why}; wait for one of them to end "
            "and ask again"
        )


class Tails:
    """How many tails of each tenant are open: ingest runs only so many, and one tenant must not take them
    all. For one thread."""

    def __init__(self, per_tenant: int) -> None:
        self._per_tenant = per_tenant
        self._open: dict[TenantId, int] = {}

    def check(self, tenant: TenantId) -> None:
        """Raises BusyError where the tenant has as many as it may."""
        if self._open.get(tenant, 0) >= self._per_tenant:
            raise BusyError(
                f"{self._per_tenant} live tails of tenant {tenant.name!r} are open already; close one"
            )

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
