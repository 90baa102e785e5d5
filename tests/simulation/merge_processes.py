"""An executor whose merges run in processes beside maintenance, as Spark's do: several bins are in flight,
each is handed back when it is done, and while one is committed the next are merged."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from types import TracebackType
from typing import Self

from lake.storage import AnyStorage
from optimize.compaction import merge_bins
from optimize.merge_job import Bin, JobResult
from tests.optimize.support.maintained import InProcess
from tests.simulation.processes import end_with_parent

PROCESSES = 2


class MergeProcesses(InProcess):
    """Merges in processes of their own; what else an executor does, it does in this one."""

    def __init__(self, storage: AnyStorage) -> None:
        super().__init__(storage)
        # Spawned: a fork would take over locks and connections of this process's threads.
        self._pool = ProcessPoolExecutor(PROCESSES, get_context("spawn"), initializer=end_with_parent)

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
