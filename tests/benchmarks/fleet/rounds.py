"""Maintenance of a fleet: its rounds, its looks and what it does once a day; the driver's part alone, as
nothing is merged here."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms
from lake.storage import AnyStorage
from optimize.inventory import NamedTables
from optimize.maintenance import Maintenance
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.merge_job import Bin, JobResult
from optimize.snapshot_watch import SnapshotWatch
from tests.benchmarks.fleet.questions import Connection
from tests.benchmarks.fleet.server import Server
from tests.optimize.support.maintained import InProcess, maintenance
from tests.simulation.processes import memory_mb


class MergesNothing(InProcess):
    """Executors that give every bin back as it came: what is merged costs as much in a small fleet. `tables`:
    how many would have been."""

    def __init__(self, storage: AnyStorage) -> None:
        super().__init__(storage)
        self.tables: set[str] = set()

    def run(self, bins: Sequence[Bin], halted: Callable[[], bool]) -> Iterator[list[JobResult]]:
        self.tables |= {str(job.table) for one in bins for job in one.jobs}
        return iter(())


class Bystander:
    """Asks the catalog for its configuration, again and again. `longest_ms`: the longest it had to wait."""

    def __init__(self, port: int) -> None:
        self.longest_ms = 0.0
        self._connection, self._ended = Connection(port), threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._ended.wait(0.01):
            began_s = time.perf_counter()
            self._connection.get("/v1/config")
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - began_s) * 1_000)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class Rounds:
    """One leader's."""

    def __init__(self, catalog: CatalogClient, storage: AnyStorage, server: Server) -> None:
        self.executor = MergesNothing(storage)
        self.maintenance: Maintenance = maintenance(
            catalog, storage=storage, executor=self.executor, merge__round_cost_s_max=1e9
        )
        self.watch = SnapshotWatch(catalog, self.maintenance.settings)
        self._server = server

    def timed(self, name: str, work: Callable[[], Any]) -> dict[str, Any]:
        """Seconds of something, the CPU seconds of this process and of the catalog, and how long somebody
        else waited for an answer of the catalog meanwhile, at the most."""
        with Bystander(self._server.port) as bystander:
            own_s, catalog_s = time.process_time(), self._server.cpu_s()
            began_s = time.perf_counter()
            work()
            wall_s = time.perf_counter() - began_s
        return {
            f"{name}_s": round(wall_s, 3),
            f"{name}_others_wait_ms": round(bystander.longest_ms, 1),
            f"{name}_cpu_s": round(time.process_time() - own_s, 3),
            f"{name}_catalog_cpu_s": round(self._server.cpu_s() - catalog_s, 3),
        }

    def round(self, name: str) -> dict[str, Any]:
        """One round; how many tables it has looked at, and how many had something to merge."""
        self.executor.tables.clear()
        reports: list[Any] = []
        found = self.timed(name, lambda: reports.append(self.maintenance.run()))
        (report,) = reports
        if report.failures:
            raise RuntimeError(f"the round failed: {next(iter(report.failures.items()))}")
        return found | {f"{name}_tables": report.tables, f"{name}_merges": len(self.executor.tables)}

    def look(self, name: str) -> dict[str, Any]:
        """A look for tables that get snapshots fast; what it remembers afterwards."""
        before_mb = memory_mb()
        now_ms = epoch_ms(self.maintenance.clock.now())
        found = self.timed(name, lambda: self.watch.crowded(now_ms))
        remembered = len(self.watch._files)
        grown = (memory_mb() - before_mb) * 1_048_576
        return found | {
            f"{name}_partitions": remembered,
            f"{name}_bytes_per_partition": round(grown / remembered) if remembered else 0,
        }

    def daily(self, tables: Sequence[TableName]) -> dict[str, Any]:
        """What is done daily with some tables of which no row goes."""
        tasks = MaintenanceTasks(replace(self.maintenance, inventory=NamedTables(tables)))
        found = self.timed("daily", lambda: list(tasks.retention(expire=True)))
        return {
            "daily_tables": len(tables),
            "daily_ms_per_table": round(found["daily_s"] * 1_000 / len(tables), 3),
            "daily_cpu_ms_per_table": round(
                (found["daily_cpu_s"] + found["daily_catalog_cpu_s"]) * 1_000 / len(tables), 3
            ),
        }
