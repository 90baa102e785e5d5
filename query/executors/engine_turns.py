"""Whose statement the engine in this process runs, so that a tenant that reads everything leaves the others
their processors."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

from query.model.cancellation import Run

LOOK_EVERY_S = 0.2  # whether who waits is still wanted


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    tenant: str
    is_scan: bool


class EngineTurns:
    """Turns at an engine with so many processors. For many threads.

    A tenant has as many statements at once as there are processors. One of them is a scan, which has all
    processors by itself; of all tenants together so many are scans as there are processors, and the next is
    who has waited longest. What reads few rows waits for no other tenant.
    """

    def __init__(self, processors: int) -> None:
        self._at_once = max(2, processors)
        self._changed = Condition()
        self._running: list[_Statement] = []
        self._waiting: list[_Statement] = []

    @contextmanager
    def one(self, tenant: str, run: Run, *, is_scan: bool) -> Iterator[None]:
        """A turn while inside; the time until it comes is no work of the run's. Raises CancelledError,
        TimeOverError."""
        mine = _Statement(tenant, is_scan)
        self._begin(mine, run)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(mine)
                self._changed.notify_all()

    def _begin(self, mine: _Statement, run: Run) -> None:
        left_s = run.left_s
        with self._changed:
            self._waiting.append(mine)
            try:
                while not self._is_next(mine):
                    run.check()
                    self._changed.wait(LOOK_EVERY_S)
                self._running.append(mine)
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()
                run.waited_s += left_s - run.left_s

    def _is_next(self, mine: _Statement) -> bool:
        return next(filter(self._may_begin, self._waiting), None) is mine

    def _may_begin(self, statement: _Statement) -> bool:
        of_tenant = [each for each in self._running if each.tenant == statement.tenant]
        if len(of_tenant) >= self._at_once:
            return False
        scans = sum(each.is_scan for each in self._running)
        return not statement.is_scan or (
            scans < self._at_once and not any(each.is_scan for each in of_tenant)
        )
