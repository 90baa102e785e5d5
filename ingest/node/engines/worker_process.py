"""Worker processes: from before they have work until they are gone."""

import gc
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ingest.model.link import Report

LEAVES_S = 1.0


@dataclass
class WorkerProcess:
    """A worker process and this end of its pipe. It waits for its work, and leaves at the end of the pipe."""

    process: BaseProcess
    pipe: Connection
    report: Report | None = None
    has_left: bool = False

    def begin(self, body: Callable[..., None], *args: Any) -> None:
        """Has it run `body(pipe, *args)`. Raises OSError where it is gone."""
        self.pipe.send((body, args))

    def end(self) -> None:
        """Returns when it is gone."""
        self.pipe.close()
        self.process.join(timeout=LEAVES_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def spawn_worker() -> WorkerProcess:
    """One that begins as an interpreter of its own, which imports all that it needs."""
    return _start("spawn")


def fork_workers(count: int) -> list[WorkerProcess]:
    """Workers that have imported what this process has: a CPU second less for each than those that are
    spawned. Only for a process that has no client and no thread of its own yet; those of Arrow's and NumPy's
    libraries know of forks."""
    gc.freeze()  # a collection in a worker would write to, and so copy, what it shares with this process
    workers: list[WorkerProcess] = []
    for _ in range(count):
        workers.append(_start("fork", workers))
    return workers


def _start(method: str, forked: Sequence[WorkerProcess] = ()) -> WorkerProcess:
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    inherited = [ours, *(worker.pipe for worker in forked)] if method == "fork" else []
    process = context.Process(target=_await_work, args=(theirs, inherited), name="worker", daemon=True)
    process.start()
    theirs.close()
    return WorkerProcess(process, ours)


def _await_work(pipe: Connection, inherited: Sequence[Connection]) -> None:
    for end in inherited:
        end.close()  # or the pipe would stay open when the main process is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the main process says when to stop
    try:
        body, args = pipe.recv()
    except EOFError:
        return
    body(pipe, *args)
