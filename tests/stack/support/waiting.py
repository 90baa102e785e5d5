"""Waiting for a condition, and names that nobody else uses."""

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeVar

# The first polls follow each other quickly; what takes long is asked for less often, because most of what is
# asked shares its two cores with the question.
POLL_S, POLL_MAX_S, SLOWER = 0.05, 0.2, 1.15
# Deadlines are meant for a quiet machine. Beside other load what is waited for takes longer, and is as right;
# yet a test has to end by itself, before pytest ends it.
BESIDE_LOAD, LONGEST_S = 3.0, 240.0
_NEVER = threading.Event()
T = TypeVar("T")


def wait_for(condition: Callable[[], T], timeout_s: float, what: str = "", poll_s: float = POLL_S) -> T:
    """Polls until the condition gives something true and returns that; fails with a sentence when it does not
    in time. `timeout_s`: on a quiet machine."""
    timeout_s = max(timeout_s, min(timeout_s * BESIDE_LOAD, LONGEST_S))
    deadline_s = time.monotonic() + timeout_s
    while not (last := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(
                f"{what or getattr(condition, '__name__', 'the condition')} did not come true within "
                f"{timeout_s:.0f} s; last: {last!r}"
            )
        _NEVER.wait(poll_s)
        poll_s = max(poll_s, min(poll_s * SLOWER, POLL_MAX_S))
    return last


def pause(seconds: float) -> None:
    """Lets time pass where the time itself is what a test is about (a process killed at a random moment)."""
    _NEVER.wait(seconds)


def fresh(prefix: str) -> str:
    """A name nobody else uses: letters of the prefix and eight hexadecimal digits."""
    return f"{prefix}{secrets.token_hex(4)}"
