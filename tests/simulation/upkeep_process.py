"""Maintenance in a process of its own, as in production: while the next hours go by for the writers, it
works at those before, and both commit to the same tables."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infra.local.services.optimize import environment as spark_environment
from lake.catalog_client import CatalogClient
from lake.errors import FatalError
from lake.logs import configure_logs
from lake.memory import share_arenas
from lake.settings import OptimizeSettings
from lake.storage import AnyStorage
from optimize.spark_executor import Executor, SparkExecutor
from tests.simulation.counted import CountedStorage, Meter, Spent
from tests.simulation.merge_processes import MergeProcesses
from tests.simulation.moved_clock import SharedClock
from tests.simulation.processes import END_S, end_with_parent
from tests.simulation.upkeep import Did, Hour, Upkeep

Samples = dict[str, list[tuple[int, Spent]]]
_COSTS, _KEPT = "costs", "kept"


@dataclass(frozen=True, slots=True)
class Place:
    """What the process has to know: the catalog, its process and where that counts; the clock's file;
    settings of maintenance; whether merges run on Spark."""

    catalog_uri: str
    catalog_pid: int
    statements_file: Path
    clock_file: Path
    settings: Mapping[str, Any]
    spark: bool


class UpkeepProcess:
    """The process, seen from the one that lives the hours: what it is told to do it does in turn."""

    def __init__(self, place: Place) -> None:
        # Spawned: a fork would take over locks and connections of this process's threads.
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(place, theirs), daemon=False)
        self._process.start()
        theirs.close()
        self._in_work = 0  # hours

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pipe.close()  # by which it ends
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, hour: Hour) -> None:
        """Has what is due after an hour done, after what is in work."""
        with _ended():
            self._pipe.send(hour)
        self._in_work += 1

    def ended(self) -> Did | None:
        """Waits for all that is in work: what was done; None where nothing was. Raises FatalError where it
        failed."""
        all_done: Did | None = None
        while self._in_work:
            self._in_work -= 1
            did = self._answer()
            assert isinstance(did, Did)
            if all_done is not None:
                did.counted += all_done.counted
            all_done = did
        return all_done

    def take_costs(self) -> Samples:
        """What its operations have cost since it was asked last."""
        return dict(self._ask(_COSTS))

    def kept(self) -> dict[str, int]:
        """How much it remembers."""
        return dict(self._ask(_KEPT))

    def _ask(self, what: str) -> Any:
        assert not self._in_work
        with _ended():
            self._pipe.send(what)
        return self._answer()

    def _answer(self) -> Any:
        with _ended():
            answer = self._pipe.recv()
        if isinstance(answer, str):
            raise FatalError(answer)
        return answer


@contextmanager
def _ended() -> Iterator[None]:
    """Says what it means where nobody is at the other end."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise FatalError("the process of maintenance has ended; its errors are above") from error


def _serve(place: Place, pipe: Connection) -> None:
    """Does what comes until the other end is closed."""
    share_arenas()
    end_with_parent()
    configure_logs("simulated-maintenance", level=logging.ERROR)
    clock = SharedClock(place.clock_file)
    storage = CountedStorage(clock.simulated)
    meter = Meter(storage, place.catalog_pid, place.statements_file)
    with ExitStack() as stack:
        catalog = CatalogClient(place.catalog_uri)
        stack.callback(catalog.close)
        executor = stack.enter_context(_executor(storage, spark=place.spark))
        upkeep = Upkeep(catalog, storage, clock, meter, place.settings, executor)
        while True:
            try:
                asked = pipe.recv()
            except EOFError:
                return
            pipe.send(_done(upkeep, asked))


def _done(upkeep: Upkeep, asked: Hour | str) -> Any:
    """What is answered; an error as its sentence."""
    try:
        if isinstance(asked, Hour):
            return upkeep.live(asked)
        return upkeep.costs.take() if asked == _COSTS else upkeep.kept()
    except Exception as error:
        logging.getLogger(__name__).exception("maintenance failed")
        return f"maintenance: {type(error).__name__}: {error}"


@contextmanager
def _executor(storage: AnyStorage, *, spark: bool) -> Iterator[Executor]:
    """Spark on this machine, as maintenance has it by default, or processes that merge as Spark's do."""
    if not spark:
        with MergeProcesses(storage) as processes:
            yield processes
        return
    os.environ.update(spark_environment())
    with SparkExecutor(OptimizeSettings.load()) as executor:
        yield executor
