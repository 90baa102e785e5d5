"""Maintenance of a fleet: its rounds, its looks and what it does once a day; the driver's part alone, as
nothing is merged here."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms
from lake.storage import AnyStorage
from optimize.inventory import NamedTables
from optimize.maintenance import Maintenance
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.merge_job import Bin, JobResult
from optimize.snapshot_watch import SnapshotWatch
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
        """Seconds of something, and the CPU seconds of this process and of the catalog."""
        own_s, catalog_s, began_s = time.process_time(), self._server.cpu_s(), time.perf_counter()
        work()
        return {
            f"{name}_s": round(time.perf_counter() - began_s, 3),
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
