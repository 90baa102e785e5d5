"""The figures of a week: shapes of tables, what operations have cost in it, and what is measured at its
end."""

import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import median_low
from typing import Any

from optimize.history import TABLE as HISTORY
from query.files.file_index import FileIndex
from query.search.search import SearchRequest
from tests.simulation.counted import Costs, in_parts
from tests.simulation.processes import Heap, memory_mb
from tests.simulation.shapes import Tables, database_figures, shape_of, spreads
from tests.simulation.traffic import FOR_EVER, START, Tenant
from tests.simulation.world import DAY_H, QUARTERS, World
from tests.simulation.yardstick import fresh_costs

PLANNED_TENANTS = 60
TASKS = ("daily_tasks", "weekly_tasks")
# Of a week's operations so many samples, whose median counts: hours of a day differ, and so do rounds.
PARTS = 7
BATCH_MAX = 200
OPERATIONS = (
    "flush",
    "commit",
    "snapshot_watch",
    "expire",
    "round",
    "daily_tasks",
    "weekly_tasks",
    "search_day",
    "search_everything",
    "erasure",
)


def figures_of_week(
    world: World, number: int, fresh: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Any]:
    """The figures at the end of week `number`; the next week's costs begin with none. `fresh`: what the same
    operations cost on a fresh catalog; None: it is measured."""
    world.settle()
    costs, tables = world.take_costs(), Tables.of(world)
    for name in OPERATIONS:
        costs.samples[name] = in_parts(costs.samples.get(name, ()), PARTS)
    for name in TASKS:
        # They are looked at after each round, and done after one of those that are counted.
        costs.samples[name] = [(1, spent) for _, spent in in_parts(costs.samples[name], 1)]
    _measure_plans(world, costs, tables.level)
    operations = {name: figures for name in (*OPERATIONS, *_PLANS) if (figures := costs.figures(name))}
    return {
        "week": number,
        "tables": {name: spreads(found) for name, found in sorted(tables.shapes.items())},
        "count": {name: len(found) for name, found in sorted(tables.shapes.items())},
        "system_table": _system_table(world),
        "database": database_figures(world.process.database),
        "names_files": _names_files(world),
        "operations": operations,
        "maintenance_cpu_s_per_hour": _maintenance_s(world, costs),
        "fresh": _fresh(world, costs, number) if fresh is None else fresh,
        "memory_mb": {
            "catalog": memory_mb(world.process.pid),
            "maintenance": memory_mb(world.upkeep.pid),
            "client": memory_mb(),
        },
        "client_parts_mb": _client_parts_mb(world),
        "kept": kept(world),
        "wrong_rows": tables.wrong,
        "done": dict(world.done),
    }


def _client_parts_mb(world: World) -> dict[str, float]:
    """What the client's memory is made of besides Python's small objects: blocks of the C library that are in
    use, and free ones that it keeps; of the former or beside them what the engine says it holds."""
    heap = Heap.now()
    return {
        "heap": round(heap.used_bytes / 2**20, 1),
        "heap_free": round(heap.free_bytes / 2**20, 1),
        "engine": round(world.engine_bytes() / 2**20, 1),
    }


_PLANS = ("plan_day", "plan_everything", "plan_for_ever")


def _measure_plans(world: World, costs: Costs, level: Sequence[Tenant]) -> None:
    """Plans of searches over a day and over everything, each from nothing but the catalog."""
    now, beginning = world.clock.now(), START - timedelta(days=90)
    # Of all sizes, in the same slots every week.
    chosen = level[:: max(1, len(level) // PLANNED_TENANTS)]
    ever = [world.population.alive[FOR_EVER]] * len(chosen)
    for name, start, tenants in (
        ("plan_day", now - timedelta(days=1), chosen),
        ("plan_everything", beginning, chosen),
        ("plan_for_ever", beginning, ever),
    ):
        for tenant in tenants:
            searcher = world.new_searcher(FileIndex(world.storage))
            with costs.of(name) as done:
                searcher.prepare(SearchRequest(tenant.table, start, now))
                done.append(1)


def _maintenance_s(world: World, costs: Costs) -> float:
    """CPU seconds of all processes for maintenance of an hour; tasks of days and weeks are shared out."""

    def of_hour(names: Sequence[str], hours: int) -> float:
        return sum(spent.cpu_s for name in names for _, spent in costs.samples.get(name, ())) / hours

    week_h = world.plan.week_h
    each_hour = of_hour(("snapshot_watch", "expire", "round"), world.plan.hours_counted)
    daily, weekly = of_hour(TASKS[:1], min(DAY_H, week_h)), of_hour(TASKS[1:], week_h)
    return round(each_hour + daily + weekly, 4)


def _fresh(world: World, costs: Costs, number: int) -> Mapping[str, Mapping[str, float]]:
    samples = costs.samples.get("commit", [])
    batches = world.plan.hours_counted * QUARTERS
    batch = max(1, min(BATCH_MAX, sum(count for count, _ in samples) // batches))
    folder = world.folder / f"fresh-{number}"
    found = fresh_costs(world, folder, batch)
    shutil.rmtree(folder)
    return {name: found.figures(name) for name in ("flush", "commit", "plan")}


def _system_table(world: World) -> dict[str, float]:
    if not world.catalog.table_exists(HISTORY):
        return {}
    shape = shape_of(world, world.catalog.load_table(HISTORY))
    return {name: getattr(shape, name) for name in shape.__slots__}


def _names_files(world: World) -> int:
    return len(list((world.process.warehouse / "_firn" / "names").glob("*")))


def kept(world: World) -> dict[str, int]:
    """How much processes remember between operations."""
    days, world.remembered = world.remembered or [world.kept()], []
    return of_most_days(days)


def of_most_days(days: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The median of a week's days: a moment's count is of the last hours, and of how far a round had come in
    these."""
    return {name: median_low(day[name] for day in days) for name in days[0]}
