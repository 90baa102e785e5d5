"""The loop of `python -m optimize run`."""

import threading

from lake.clock import SystemClock
from lake.errors import FatalError, UnavailableError
from optimize.__main__ import _every


def test_loop_goes_on_after_failures_until_it_is_ended() -> None:
    """A round that fails, for now or for good, does not end the loop; what comes after it is done."""
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise UnavailableError("the catalog is away")
        if len(done) == 2:
            raise FatalError("a table is no log table")

    _every(0.001, work, SystemClock(), lambda: len(done) >= 4, threading.Event())
    assert done == [0, 1, 2, 3]


def test_told_to_stop_the_loop_does_not_wait_for_its_interval() -> None:
    """Between two rounds an hour apart the loop leaves at once."""
    stop = threading.Event()
    loop = threading.Thread(target=_every, args=(3_600.0, lambda: None, SystemClock(), stop.is_set, stop))
    loop.start()
    stop.set()
    loop.join(10.0)
    assert not loop.is_alive()
