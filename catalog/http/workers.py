"""Several processes that serve one socket; the kernel hands connections out."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from types import FrameType

import structlog
from prometheus_client.multiprocess import mark_process_dead

from catalog.model import metrics
from lake.clock import SYSTEM_CLOCK, Clock

log = structlog.get_logger()
RESTARTS_PER_MINUTE_MAX = 30


def count_together() -> None:
    """Starts this program anew with a folder where the workers' metrics add up, unless it has one: the
    library wants it before its import."""
    if metrics.SHARED_FOLDER_VARIABLE not in os.environ:
        os.environ[metrics.SHARED_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="firn-catalog-metrics-")
        os.execv(sys.executable, [sys.executable, "-m", "catalog", *sys.argv[1:]])  # noqa: S606 - the same program with the same arguments


def run_workers(count: int, serve: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
    """Runs `serve` in this process, or in `count` children that are started anew when they die, until SIGTERM
    or SIGINT."""
    if count == 1:
        serve()
        return
    ours, theirs = os.pipe()  # nobody writes: its end tells the children that this process is gone
    children = {_start(serve, ours, theirs) for _ in range(count)}
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
        mark_process_dead(child)  # type: ignore[no-untyped-call]
        if stopping:
            continue
        log.error("catalog.worker_died", pid=child, status=os.waitstatus_to_exitcode(status))
        now_s = clock.monotonic_s()
        deaths = [*(at for at in deaths if at > now_s - 60), now_s]
        if len(deaths) > RESTARTS_PER_MINUTE_MAX:
            log.error("catalog.workers_keep_dying", deaths_per_minute=len(deaths))
            stop(signal.SIGTERM, None)
            continue
        children.add(_start(serve, ours, theirs))
    shutil.rmtree(os.environ[metrics.SHARED_FOLDER_VARIABLE], ignore_errors=True)


def _start(serve: Callable[[], None], parent_lives: int, parents_end: int) -> int:
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.close(parents_end)
    threading.Thread(target=_end_with_parent, args=(parent_lives,), daemon=True).start()
    code = 1
    try:
        serve()
        code = 0
    finally:
        os._exit(code)


def _end_with_parent(parent_lives: int) -> None:
    """A worker without its parent would hold the port, and nobody would know of it."""
    os.read(parent_lives, 1)
    os.kill(os.getpid(), signal.SIGTERM)
