"""The same operations on a fresh catalog with fresh tables, at the same moment of the machine: what the
machine does otherwise, other load and the state of its disk, is in both, so times are compared with
these."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np

from lake.catalog_client import CatalogClient
from lake.tenant import TableId
from query.files.file_index import FileIndex
from query.search.search import SearchRequest
from tests.simulation.counted import Costs, CountedStorage, Meter
from tests.simulation.ingest import Node
from tests.simulation.processes import CatalogProcess
from tests.simulation.traffic import START, Arrivals, Tenant
from tests.simulation.world import World

WARM_UP, TIMES = 2, 8  # commits of each table
ROWS = 2


def fresh_costs(world: World, folder: Path, tables: int) -> Costs:
    """What flushes, commits and plans cost on `tables` tables that are committed to together."""
    with (
        CatalogProcess(folder, world.folder / "clock") as process,
        closing(CatalogClient(process.uri)) as catalog,
        ThreadPoolExecutor(8) as pool,
    ):
        storage = CountedStorage()
        meter = Meter(storage, process.pid, process.counts)
        node, costs = Node(catalog, storage, world.clock, pool), Costs(meter)
        for time in range(WARM_UP + TIMES):
            costs = Costs(meter) if time == WARM_UP else costs
            node.take(_records(world, tables, time), costs)
        now = world.clock.now()
        for at in range(tables):
            searcher = world.new_searcher(FileIndex(storage), catalog)
            request = SearchRequest(_tenant(at).table, now - timedelta(days=1), now)
            with costs.of("plan") as done:
                searcher.prepare(request)
                done.append(1)
        return costs


def _tenant(at: int) -> Tenant:
    return Tenant(at, 0, None)


def _records(world: World, tables: int, time: int) -> dict[TableId, list[bytes]]:
    hour = world.hour - 1
    draws = np.random.default_rng((world.hour, time))
    start_us = int((START + timedelta(hours=hour)).timestamp()) * 1_000_000
    times = [start_us + int(at) for at in draws.integers(0, 3_600_000_000, ROWS)]
    return {_tenant(at).table: Arrivals(_tenant(at), hour, times, 0).bodies() for at in range(tables)}
