"""The pace of this machine's cores while something runs. A core that another machine shares does half of its
work in the same CPU second, and neither the load nor stolen time tells of it.

Every second a fixed piece of work is timed, by the CPU time that it takes; the pace is the shortest of these
times by the mean of all: 1.0 where nobody else used the cores.

    python -m tests.pace COMMAND...    runs a command, says how long it took and the pace; its exit code
"""

import signal
import subprocess
import sys
import time
from math import nan
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import fmean
from types import TracebackType
from typing import Self

ADDITIONS = 100_000  # 4 ms on a core of 2026
EVERY_S = 1.0
# Of the samples, the share that counts as the best: one alone may be an error of the clock.
BEST_SHARE = 0.02


class Pace:
    """Samples, by a process beside this one, what the cores do as long as it is open."""

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_sample, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pipe.close()  # by which it ends
        self._process.join()

    def mean(self) -> float:
        """The pace until now, from 0 to 1; 1 where nothing was sampled yet. Not a number where who samples
        has been killed: what ran has its result all the same."""
        try:
            self._pipe.send(None)
            return pace_of(self._pipe.recv())
        except (EOFError, OSError):
            return nan


def pace_of(times: list[float]) -> float:
    """The pace that times of the same work show: the best of them by their mean."""
    if not times:
        return 1.0
    best = sorted(times)[int(len(times) * BEST_SHARE)]
    return min(1.0, best / fmean(times))


def _sample(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a keyboard's interrupt is for what runs
    times: list[float] = []
    while True:
        if pipe.poll(EVERY_S):
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(times)
        began = time.thread_time()
        _work()
        times.append(time.thread_time() - began)


def _work() -> None:
    total = 0
    for number in range(ADDITIONS):
        total += number


def main(command: list[str]) -> int:
    """Runs a command."""
    began = time.monotonic()
    with Pace() as pace:
        code = subprocess.call(command)
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        print(
            f"took {minutes} min {seconds} s; the cores ran at {pace.mean():.2f} of their best pace",
            flush=True,
        )
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
