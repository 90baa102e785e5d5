"""Who is due now, of many who will be one day: nobody looks at all of them."""

import heapq
from collections.abc import Collection
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Schedule(Generic[T]):
    """Each once, with the moment (monotonic seconds) from which on it is due."""

    def __init__(self) -> None:
        self._moments: dict[T, float] = {}
        self._due: dict[T, None] = {}
        # Entries of who was put elsewhere or taken away stay until their moment.
        self._later: list[tuple[float, int, T]] = []
        self._numbers = count()

    def put(self, one: T, moment_s: float) -> None:
        """It is due from this moment on, whatever was said of it before; nothing changes where that was the
        same."""
        if self._moments.get(one) == moment_s:
            return
        self._moments[one] = moment_s
        self._due.pop(one, None)
        heapq.heappush(self._later, (moment_s, next(self._numbers), one))

    def discard(self, one: T) -> None:
        """It is never due."""
        if self._moments.pop(one, None) is not None:
            self._due.pop(one, None)

    def due(self, now_s: float) -> Collection[T]:
        """All that are due, who became so first at the front."""
        while self._later and self._later[0][0] <= now_s:
            moment_s, _, one = heapq.heappop(self._later)
            if self._moments.get(one) == moment_s:
                self._due[one] = None
        return self._due.keys()
