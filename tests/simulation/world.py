"""The world of the simulation: a catalog, a node, maintenance, searches, and the hours that go by.

An hour is four quarters, of each of which the records are flushed: tenants with much traffic in every
one, others in one of them. Every day tenants come and go, and every third day rows of some are erased.
Maintenance has its round every `round_hours` (in production it is one), and its look at tables that get
snapshots fast each hour.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms, moment_of
from lake.errors import ConflictError, FatalError
from lake.retention import PROPERTY, spell_retention
from lake.settings import QuerySettings
from lake.storage import local_path
from optimize.maintenance import Maintenance, RoundReport
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.snapshot_watch import SnapshotWatch
from optimize.spark_executor import Executor
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.model.cancellation import Run
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from tests.optimize.support.maintained import InProcess, maintenance
from tests.simulation.counted import Costs, CountedStorage, Meter
from tests.simulation.erasing import Eraser
from tests.simulation.ingest import Node
from tests.simulation.moved_clock import MovedClock
from tests.simulation.processes import CatalogProcess
from tests.simulation.rows import Counted, live_rows
from tests.simulation.traffic import START, Arrivals, Keeping, Population, Tenant, Traffic

QUARTERS = 4
QUARTER = timedelta(hours=1) / QUARTERS
BUSY_ROWS = 40  # from so many records an hour on a tenant is flushed in each quarter
SEARCHES = 1  # an hour
SEARCH_S = 600.0
ERASED_TENANTS = 3
# Of what the search API remembers of files: it is full before the third week.
INDEX_FILES_MAX = 2_000
ENGINE_BYTES = 64 << 20
SECONDS_OF_AN_HOUR = 600.0  # that the machine takes for an hour at most
DAY_H = 24


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated. `rows_per_tenant`: an hour, on the average of all. `week_h`: hours of a week, fewer
    in a small simulation, in which retentions are as much shorter. `come_and_go`: share of the tenants that
    changes a day; `erase_every_h`: hours between erasures."""

    tenants: int
    rows_per_tenant: float = 0.3
    seed: int = 1
    round_hours: int = 1
    week_h: int = 7 * DAY_H
    keeping: Keeping = field(default_factory=Keeping)
    settings: dict[str, Any] = field(default_factory=dict)
    come_and_go: float = 0.005
    erase_every_h: int = 3 * DAY_H


class World:
    """Everything that is there. `hour`: how many have gone by."""

    def __init__(self, folder: Path, plan: Plan, executor: Executor | None = None) -> None:
        self.plan, self.folder, self.hour = plan, folder, 0
        self._stack = ExitStack()
        self.clock = MovedClock(folder / "clock", START)
        self.process = self._stack.enter_context(CatalogProcess(folder / "lake", folder / "clock"))
        self.catalog = CatalogClient(self.process.uri)
        self._stack.callback(self.catalog.close)
        self.storage = CountedStorage(self.clock.simulated)
        self.meter = Meter(self.storage, self.process.pid, self.process.counts)
        self.costs = Costs(self.meter)
        pool = self._stack.enter_context(ThreadPoolExecutor(8))
        self.node = Node(self.catalog, self.storage, self.clock, pool)
        self.population = Population(plan.tenants, plan.keeping, plan.seed, plan.come_and_go)
        self.traffic = Traffic(plan.tenants, plan.tenants * plan.rows_per_tenant, plan.seed, plan.week_h)
        self.counted, self.done = Counted(), Counter[str]()
        self.maintenance = self._maintenance(executor or InProcess(self.storage))
        self._tasks, self._retained_at = MaintenanceTasks(self.maintenance), START
        self._watch = SnapshotWatch(self.catalog, self.maintenance.settings)
        self.index = FileIndex(self.storage, files_kept_max=INDEX_FILES_MAX)
        self.embedded = self._embedded()
        self.searcher = self.new_searcher(self.index)
        self.eraser = Eraser(self.catalog, self.storage, self.embedded, self.clock)
        self._left = list[str]()  # namespaces that are to go
        for tenant in self.population.alive:
            self._welcome(tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _maintenance(self, executor: Executor) -> Maintenance:
        # The storage is a local disk, which nobody has to spare; a pause of the throttle would be the
        # machine's time.
        # What is done daily is done at the same hour of each day, and not in the next round for some seconds.
        more = {
            "retention__storage_requests_per_s_max": 1e9,
            "retention__interval_s": 86_400.0 - SECONDS_OF_AN_HOUR,
            "retention__orphan_interval_s": 7 * 86_400.0 - SECONDS_OF_AN_HOUR,
            **self.plan.settings,
        }
        return maintenance(self.catalog, clock=self.clock, storage=self.storage, executor=executor, **more)

    def _query_settings(self) -> QuerySettings:
        # DuckDB fills what it may have with what it has read of files, and then forgets the oldest.
        state = self.folder / "query"
        state.mkdir(exist_ok=True)
        return QuerySettings.load(state=str(state), embedded__memory_bytes=ENGINE_BYTES)

    def _embedded(self) -> EmbeddedExecutor:
        settings = self._query_settings()
        roots = [local_path(self.catalog.warehouse or "")]
        return EmbeddedExecutor(
            settings, lambda uris, _: [str(local_path(uri)) for uri in uris], lambda: roots
        )

    def new_searcher(self, index: FileIndex, catalog: CatalogClient | None = None) -> Searcher:
        """One that has planned nothing yet."""
        catalog, settings = catalog or self.catalog, self._query_settings()
        return Searcher(catalog, index, (self.embedded,), settings, UnknownLag(), self.clock)

    # ---- an hour

    def live(self) -> None:
        """Lets an hour go by."""
        began = START + timedelta(hours=self.hour)
        if self.hour % DAY_H == 0:
            self._change_hands(self.hour // DAY_H)
        arrivals = list(self.traffic.arrivals(self.population.alive, self.hour))
        for quarter in range(QUARTERS):
            self.clock.move_to(began + (quarter + 1) * QUARTER)
            self._flush([part for each in arrivals if (part := _in_quarter(each, quarter)) is not None])
        self.hour += 1
        self._look()
        if self.hour % self.plan.round_hours == 0:
            self._maintain()
        for _ in range(SEARCHES):
            self._search()
        if self.hour % self.plan.erase_every_h == 0:
            self._erase()

    def _flush(self, arrivals: Sequence[Arrivals]) -> None:
        if not arrivals:
            return
        for each in arrivals:
            self.counted.note(each, self.clock.now())
        self.node.take({each.tenant.table: each.bodies() for each in arrivals}, self.costs)
        self.done["flushes"] += len(arrivals)

    def _look(self) -> None:
        with self.costs.of("snapshot_watch") as done:
            crowded = self._watch.crowded(epoch_ms(self.clock.now()))
            done.append(1)
        if crowded:
            with self.costs.of("expire") as done:
                self._watch.note(self.maintenance.expire(crowded).snapshots_left)
                done.append(len(crowded))

    def _maintain(self) -> None:
        with self.costs.of("round", with_executors=True) as done:
            report = self.maintenance.run()
            _check(report)
            self._tasks.note_round()
            done.append(self.plan.round_hours)
        self.done.update(
            rounds=1,
            merges=report.merged_tables,
            merged_files=report.files_before,
            deleted=report.files_deleted,
        )
        with self.costs.of("daily_tasks", with_executors=True) as done:
            self._tasks.run_due()
            done.append(self.plan.round_hours)
        self._retained_at = moment_of(self._tasks._last("retention")[1])

    # ---- tenants

    def _welcome(self, tenant: Tenant) -> None:
        properties = {} if tenant.keeps_h is None else {PROPERTY: spell_retention(tenant.keeps_h)}
        self.catalog.create_namespace(tenant.table.tenant.namespace, properties)

    def _change_hands(self, day: int) -> None:
        for gone, come in self.population.change_hands(day) if day else ():
            for table in self.catalog.tables(gone.table.tenant.namespace):
                self.catalog.drop_table(table, purge=True)
            self._left.append(gone.table.tenant.namespace)
            self._welcome(come)
            self.done["tenants_gone"] += 1
            self.counted.sent.pop(gone.table, None)
        self._left = [namespace for namespace in self._left if not self._drop(namespace)]

    def _drop(self, namespace: str) -> bool:
        try:
            self.catalog.drop_namespace(namespace)
        except ConflictError:  # its tables may still come back
            return False
        return True

    # ---- searches and erasures

    def _drawn(self, number: int = 0) -> Tenant:
        """A tenant that has a table: in the same hour of each week the same slots are tried."""
        draws = np.random.default_rng((self.plan.seed, 3, self.hour % self.plan.week_h, number))
        while True:
            tenant = self.population.alive[int(draws.integers(self.plan.tenants))]
            if self.node.states.last_known(tenant.table) is not None:
                return tenant

    def _search(self) -> None:
        tenant, now = self._drawn(), self.clock.now()
        is_day = self.hour % 2 == 0
        start = now - timedelta(days=1) if is_day else START - timedelta(days=90)
        request = SearchRequest(tenant.table, start, now, "took")
        with self.costs.of("search_day" if is_day else "search_everything") as done:
            self.searcher.page(request, Run(SEARCH_S), limit=20)
            done.append(1)
        self.done["searches"] += 1

    def _erase(self) -> None:
        chosen = dict.fromkeys(self._drawn(number).table for number in range(ERASED_TENANTS))
        with self.costs.of("erasure") as done:
            erased = self.eraser.erase(list(chosen), f"user:user{self.hour % 50}", START, self.clock.now())
            done.append(len(chosen))
        self.counted.erased.update(erased)
        self.done["erased_rows"] += sum(erased.values())

    # ---- whether all is there

    def wrong_rows(self) -> list[str]:
        """Tables that have more or fewer rows than they should."""
        wrong = []
        for tenant in self.population.alive:
            state = self.state_of(tenant)
            least, most = self.counted.bounds(tenant, self._retained_at, self.clock.now())
            rows = 0 if state is None else live_rows(state)
            if not least <= rows <= most:
                wrong.append(f"{tenant.table}: {rows} rows, not {least} to {most}")
        return wrong

    def state_of(self, tenant: Tenant) -> dict[str, Any] | None:
        """What the catalog has of a tenant's table; None where there is none yet."""
        name = TableName(tenant.table.tenant.namespace, tenant.table.table)
        return self.catalog.load_table(name) if self.catalog.table_exists(name) else None


def _in_quarter(arrivals: Arrivals, quarter: int) -> Arrivals | None:
    """What of an hour's records is flushed in a quarter; None: nothing."""
    count = len(arrivals.times_us)
    if count < BUSY_ROWS:
        own = (arrivals.tenant.slot + arrivals.hour) % QUARTERS
        return arrivals if quarter == own else None
    edges = [count * at // QUARTERS for at in (quarter, quarter + 1)]
    times = arrivals.times_us[edges[0] : edges[1]]
    return Arrivals(arrivals.tenant, arrivals.hour, times, arrivals.fields)


def _check(report: RoundReport) -> None:
    if report.failures:
        raise FatalError(f"maintenance failed: {next(iter(report.failures.items()))}")


Say = Callable[[str], None]
