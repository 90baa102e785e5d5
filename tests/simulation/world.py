"""The world of the simulation: a catalog, a node, maintenance, searches, and the hours that go by.

An hour is four quarters, of each of which the records are flushed: tenants with much traffic in every
one, others in one of them. Every day tenants come and go, and every third day rows of some are erased.
Maintenance has its round every `round_hours` (in production it is one), and its look at tables that get
snapshots fast for each hour. It has a process of its own and works beside the writers, which it may fall
behind until the next round, but for the first and the last hours of Mondays: then one operation follows the
other, so that each has its costs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ingest.commit.table_states import table_name
from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, NotFoundError
from lake.retention import PROPERTY, spell_retention
from lake.settings import QuerySettings
from lake.storage import local_path
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.model.cancellation import Run
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from tests.simulation.counted import Costs, CountedStorage, Meter
from tests.simulation.erasing import Eraser
from tests.simulation.ingest import Node
from tests.simulation.moved_clock import MovedClock
from tests.simulation.processes import CatalogProcess
from tests.simulation.rows import Counted, live_rows
from tests.simulation.traffic import START, Arrivals, Keeping, Population, Tenant, Traffic
from tests.simulation.upkeep import Hour
from tests.simulation.upkeep_process import Place, UpkeepProcess

QUARTERS = 4
QUARTER = timedelta(hours=1) / QUARTERS
BUSY_ROWS = 40  # from so many records an hour on a tenant is flushed in each quarter
SEARCHES, COUNTED_SEARCHES = 1, 8  # an hour
SEARCH_S = 600.0
ERASED_TENANTS = 3
# Of what the search API remembers of files: it is full before the third week.
INDEX_FILES_MAX = 2_000
ENGINE_BYTES = 64 << 20
LOADED_TOGETHER, LOADS_S = 200, 60.0
DAY_H = 24


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated. `rows_per_tenant`: an hour, on the average of all. `week_h`: hours of a week, fewer
    in a small simulation, in which retentions are as much shorter. `come_and_go`: share of the tenants that
    changes a day; `erase_every_h`: hours between erasures; `counted`: hours of each week in which one
    operation follows the other and costs are counted; the tasks of each day are done after the last of a day,
    those of each week after the first round of one."""

    tenants: int
    rows_per_tenant: float = 0.2
    seed: int = 1
    round_hours: int = 1
    week_h: int = 7 * DAY_H
    keeping: Keeping = field(default_factory=Keeping)
    settings: dict[str, Any] = field(default_factory=dict)
    come_and_go: float = 0.005
    erase_every_h: int = 3 * DAY_H
    counted: tuple[range, ...] = (range(DAY_H // 4), range(DAY_H - DAY_H // 4, DAY_H))

    @property
    def hours_counted(self) -> int:
        """Of each week."""
        return sum(map(len, self.counted))

    def counts(self, hour: int) -> bool:
        """Whether costs are counted in an hour (0: the first)."""
        return any(hour % self.week_h in hours for hours in self.counted)


class World:
    """Everything that is there. `hour`: how many have gone by."""

    def __init__(self, folder: Path, plan: Plan, *, spark: bool = False) -> None:
        self.plan, self.folder, self.hour = plan, folder, 0
        with ExitStack() as stack:  # what cannot be begun ends what was
            self.clock = MovedClock(folder / "clock", START)
            self.process = stack.enter_context(CatalogProcess(folder / "lake", folder / "clock"))
            self.catalog = CatalogClient(self.process.uri)
            stack.callback(self.catalog.close)
            self.storage = CountedStorage(self.clock.simulated)
            self.meter = Meter(self.storage, self.process.pid, self.process.counts)
            self.costs = Costs(self.meter)
            pool = stack.enter_context(ThreadPoolExecutor(8))
            self.node = Node(self.catalog, self.storage, self.clock, pool)
            self.population = Population(plan.tenants, plan.keeping, plan.seed, plan.come_and_go)
            self.traffic = Traffic(plan.tenants, plan.tenants * plan.rows_per_tenant, plan.seed, plan.week_h)
            self.counted, self.done = Counted(), Counter[str]()
            place = Place(
                self.process.uri,
                self.process.pid,
                self.process.counts,
                folder / "clock",
                plan.settings,
                spark,
            )
            self.upkeep, self._retained_at = stack.enter_context(UpkeepProcess(place)), START
            self.index = FileIndex(self.storage, files_kept_max=INDEX_FILES_MAX)
            self.embedded = self._embedded()
            self.searcher = self.new_searcher(self.index)
            self.eraser = Eraser(self.catalog, self.storage, self.embedded, self.clock)
            self._left = list[str]()  # namespaces that are to go
            self.remembered = list[dict[str, int]]()  # of each day of the week
            for tenant in self.population.alive:
                self._welcome(tenant)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _query_settings(self) -> QuerySettings:
        # DuckDB fills what it may have with what it has read of files, until the next one begins.
        state = self.folder / "query"
        state.mkdir(exist_ok=True)
        return QuerySettings.load(state=str(state), embedded__memory_bytes=ENGINE_BYTES)

    def _embedded(self) -> EmbeddedExecutor:
        settings = self._query_settings()
        roots = [local_path(self.catalog.warehouse or "")]
        return EmbeddedExecutor(
            settings, lambda uris, _: [str(local_path(uri)) for uri in uris], lambda: roots
        )

    def engine_bytes(self) -> int:
        """What the engine says it has in memory."""
        with self.embedded._database_of_roots() as database, closing(database.connection.cursor()) as cursor:
            return int(cursor.sql("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()[0][0])

    def kept(self) -> dict[str, int]:
        """How much processes remember between operations; maintenance has to have settled."""
        return {
            "node_tables": len(self.node.states.lives),
            "node_relief_floors": len(self.node.committer.reliefs._floors),
            **self.upkeep.kept(),
            "index_manifests": len(self.index._manifests),
            "index_files": self.index._kept,
        }

    def new_searcher(self, index: FileIndex, catalog: CatalogClient | None = None) -> Searcher:
        """One that has planned nothing yet."""
        catalog, settings = catalog or self.catalog, self._query_settings()
        return Searcher(catalog, index, (self.embedded,), settings, UnknownLag(), self.clock)

    # ---- an hour

    def live(self) -> None:
        """Lets an hour go by."""
        began = START + timedelta(hours=self.hour)
        self.costs.counts = self.plan.counts(self.hour)
        if self.costs.counts:
            self.settle()
        if self.hour % DAY_H == 0:
            self._change_hands(self.hour // DAY_H)
            self.counted.forget(self.population.alive, self._retained_at)
        arrivals = list(self.traffic.arrivals(self.population.alive, self.hour))
        for quarter in range(QUARTERS):
            self.clock.move_to(began + (quarter + 1) * QUARTER)
            self._flush([part for each in arrivals if (part := _in_quarter(each, quarter)) is not None])
        self.hour += 1
        self._keep_up()
        for number in range(COUNTED_SEARCHES if self.costs.counts else SEARCHES):
            self._search(number)
        if self.hour % self.plan.erase_every_h == 0:
            self._erase()

    def _flush(self, arrivals: Sequence[Arrivals]) -> None:
        if not arrivals:
            return
        for each in arrivals:
            self.counted.note(each, self.clock.now())
        self.node.take({each.tenant.table: each.bodies() for each in arrivals}, self.costs)
        self.done["flushes"] += len(arrivals)

    def _keep_up(self) -> None:
        """Has maintenance do what is due after the hour. Where costs are counted it is waited for, else it
        goes on beside the next hours: a round has time until the next one."""
        is_round, ends_day = self.hour % self.plan.round_hours == 0, self.hour % DAY_H == 0
        if is_round or ends_day:
            self.settle()
        if ends_day:
            self.remembered.append(self.kept())
        self.upkeep.begin(Hour(self.plan.round_hours if is_round else 0, self.costs.counts))
        if self.costs.counts:
            self.settle()

    def settle(self) -> None:
        """Waits for maintenance."""
        did = self.upkeep.ended()
        if did is not None:
            self.done.update(did.counted)
            self._retained_at = did.retained_at

    def take_costs(self) -> Costs:
        """What operations have cost since they were taken last; maintenance has to have settled."""
        return Costs(self.meter, {**self.costs.take(), **self.upkeep.take_costs()})

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
            known = self.node.states.last_known(tenant.table)
            if known is not None and known.exists:  # one whose first records all came too late is not there
                return tenant

    def _search(self, number: int) -> None:
        tenant, now = self._drawn(number), self.clock.now()
        is_day = (self.hour + number) % 2 == 0
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

    def wrong_rows(self, tenant: Tenant, answer: Mapping[str, Any] | None) -> str:
        """What is wrong with the number of rows of a tenant's table, by what the catalog has of it; nothing
        where it is right."""
        least, most = self.counted.bounds(tenant, self._retained_at, self.clock.now())
        rows = 0 if answer is None else live_rows(answer)
        return "" if least <= rows <= most else f"{tenant.table}: {rows} rows, not {least} to {most}"

    def answers(self) -> Iterator[tuple[Tenant, dict[str, Any] | None]]:
        """What the catalog has of each tenant's table; None where there is none yet."""
        left = list(self.population.alive)
        while left:
            names = [table_name(tenant.table) for tenant in left[:LOADED_TOGETHER]]
            answers = self.catalog.load_tables(names, deadline_s=LOADS_S)
            for tenant, answer in zip(left, answers, strict=False):
                if isinstance(answer, Exception) and not isinstance(answer, NotFoundError):
                    raise answer
                yield tenant, None if isinstance(answer, Exception) else answer
            left = left[len(answers) :]


def _in_quarter(arrivals: Arrivals, quarter: int) -> Arrivals | None:
    """What of an hour's records is flushed in a quarter; None: nothing."""
    count = len(arrivals.times_us)
    if count < BUSY_ROWS:
        own = (arrivals.tenant.slot + arrivals.hour) % QUARTERS
        return arrivals if quarter == own else None
    edges = [count * at // QUARTERS for at in (quarter, quarter + 1)]
    times = arrivals.times_us[edges[0] : edges[1]]
    return Arrivals(arrivals.tenant, arrivals.hour, times, arrivals.fields)


Say = Callable[[str], None]
