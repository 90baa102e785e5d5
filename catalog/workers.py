"""Several processes that serve one socket; the kernel hands connections out."""

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

import structlog

log = structlog.get_logger()
RESTARTS_PER_MINUTE_MAX = 30


def run_workers(count: int, serve: Callable[[], None]) -> None:
    """Runs `serve` in this process, or in `count` children that are started anew when they die, until SIGTERM or SIGINT."""
    if count == 1:
        serve()
        return
    children = {_start(serve) for _ in range(count)}
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    deaths: list[float] = []
    while children:
        try:
            child, status = os.wait()
        except (InterruptedError, ChildProcessError):
            continue
        children.discard(child)
        if stopping:
            continue
        log.error("catalog.worker_died", pid=child, status=os.waitstatus_to_exitcode(status))
        deaths = [*(at for at in deaths if at > time.monotonic() - 60), time.monotonic()]
        if len(deaths) > RESTARTS_PER_MINUTE_MAX:
            log.error("catalog.workers_keep_dying", deaths_per_minute=len(deaths))
            stop(signal.SIGTERM, None)
            continue
        children.add(_start(serve))


def _start(serve: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = 1
    try:
        serve()
        code = 0
    finally:
        os._exit(code)
