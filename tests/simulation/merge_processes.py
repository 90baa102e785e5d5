"""An executor whose merges run in processes beside maintenance, as Spark's do: several bins are in flight,
each is handed back when it is done, and while one is committed the next are merged."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self

from lake.storage import AnyStorage
from optimize.compaction import merge_bins
from optimize.merge_job import Bin, JobResult
from tests.optimize.support.maintained import InProcess

PROCESSES = 2


class MergeProcesses(InProcess):
    """Merges in processes of their own; what else an executor does, it does in this one."""

    def __init__(self, storage: AnyStorage) -> None:
        super().__init__(storage)
        # Spawned: a fork would take over locks and connections of this process's threads.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(PROCESSES, context, initializer=_end_with_parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def slots(self) -> int:
        return PROCESSES

    def run(self, bins: Sequence[Bin], halted: Callable[[], bool]) -> Iterator[list[JobResult]]:
        for future in as_completed([self._pool.submit(_merged, one) for one in bins]):
            yield future.result()


def _merged(one: Bin) -> list[JobResult]:
    return list(merge_bins([one]))


def _end_with_parent() -> None:
    """A process of a pool waits for work for ever where its parent is killed. A keyboard's interrupt is for
    the process that lives the hours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
