"""How a running query ends early (its time is over, or nobody waits for it any more), and how far it is."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import UnavailableError

# An engine forgets what it is told before its statement has begun, so it is told again until that ends.
STOP_AGAIN_S = 0.2


class CancelledError(UnavailableError):
    """The query was ended before it was done."""


class TimeOverError(CancelledError):
    """The query took longer than it may."""


class Run:
    """One running request: a deadline, a way to end it from another thread, and how far its engine is.

    `read_bytes`: of files, so far, as far as whoever reads them says so; `waited_s`: seconds in which it
    waited for others; `engine`: which it has asked, empty for none."""

    def __init__(self, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.timeout_s = timeout_s
        self._deadline_s = self._clock.monotonic_s() + timeout_s
        self._lock = threading.Lock()
        self._stoppers: list[_Stopper] = []
        self._share: Callable[[], float] | None = None
        self._left = False
        self.read_bytes = 0
        self.waited_s = 0.0
        self.engine = ""

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 when it is past."""
        return max(0.0, self._deadline_s - self._clock.monotonic_s())

    @property
    def worked_s(self) -> float:
        """Seconds that it has run, without those in which it waited for others."""
        return self.timeout_s - self.left_s - self.waited_s

    @property
    def is_over(self) -> bool:
        return self._left or self.left_s == 0

    @property
    def share_done(self) -> float:
        """How much of what the engine runs now is done, 0 to 1; 0 where it does not say. From any thread."""
        with self._lock:  # the engine's query does not go away meanwhile
            return 0.0 if self._share is None else min(1.0, max(0.0, self._share()))

    def cancel(self) -> None:
        """The caller has gone: stops what runs and what would run next."""
        with self._lock:
            self._left = True
            for stopper in self._stoppers:
                stopper.asked.set()

    def check(self) -> None:
        """Raises CancelledError or TimeOverError where the run is over."""
        if self._left:
            raise CancelledError("the caller has gone; the query was stopped")
        if self.left_s == 0:
            raise TimeOverError(
                f"the query took longer than {self.timeout_s:g} s; choose a shorter time range or name "
                "fields, or raise the limit"
            )

    @contextmanager
    def stoppable(self, stop: Callable[[], None], share: Callable[[], float] | None = None) -> Iterator[None]:
        """While inside, a thread calls `stop` when the caller leaves or the deadline passes, again and again
        until the statement ends. `share` tells how much is done."""
        stopper = _Stopper(stop, self.left_s)
        with self._lock:
            self._stoppers.append(stopper)
            self._share = share
        try:
            self.check()  # only now, as from here on nobody leaves unseen
            stopper.start()
            yield
        finally:
            stopper.end()
            with self._lock:
                self._stoppers.remove(stopper)
                self._share = None


class _Stopper(threading.Thread):
    """Stops a statement, once asked to or after `wait_s` seconds, until it has ended."""

    def __init__(self, stop: Callable[[], None], wait_s: float) -> None:
        super().__init__(name="stopper", daemon=True)
        self._stop_statement, self._wait_s = stop, wait_s
        self.asked, self._ended = threading.Event(), threading.Event()

    def run(self) -> None:
        self.asked.wait(self._wait_s)
        while not self._ended.is_set():
            self._stop_statement()
            self._ended.wait(STOP_AGAIN_S)

    def end(self) -> None:
        """The statement has ended: nothing is stopped any more."""
        self._ended.set()
        self.asked.set()
