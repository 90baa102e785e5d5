"""Whether what a service needs answers: asked in threads of its own, by one at a time, and never waited for
longer than a bound."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from lake.clock import SYSTEM_CLOCK, Clock

READY_S = 6.0
KEPT_S = 1.0


class Readiness:
    """`probes` by name: each gives None where all is well, else a sentence. One that has not answered in time
    counts as silent until it has."""

    def __init__(
        self,
        probes: Mapping[str, Callable[[], str | None]],
        *,
        within_s: float = READY_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._probes = probes
        self._within_s = within_s
        self._threads = ThreadPoolExecutor(len(probes), thread_name_prefix="ready")
        self._clock = clock
        self._asked: dict[str, tuple[asyncio.Future[str | None], float]] = {}

    async def ask(self) -> dict[str, str | None]:
        """What each says, not older than a second."""
        futures = {name: self._future(name) for name in self._probes}
        await asyncio.wait(futures.values(), timeout=self._within_s)
        return {name: self._said(future) for name, future in futures.items()}

    def _said(self, future: asyncio.Future[str | None]) -> str | None:
        if not future.done():
            return f"no answer within {self._within_s:g} s"
        error = future.exception()
        return future.result() if error is None else str(error) or type(error).__name__

    def _future(self, name: str) -> asyncio.Future[str | None]:
        known = self._asked.get(name)
        if known is not None and (not known[0].done() or self._clock.monotonic_s() - known[1] < KEPT_S):
            return known[0]
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._probes[name])
        self._asked[name] = future, self._clock.monotonic_s()
        return future

    def close(self) -> None:
        """Ends the threads that are not waiting for somebody."""
        self._threads.shutdown(wait=False, cancel_futures=True)
