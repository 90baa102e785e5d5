"""`python -m tests.benchmarks.fleet.ingest_memory URI FILE`: what a node remembers of each table that it has
met, by the real classes; FILE has their names, one a line. The last line is one JSON object.

The main process has the state of each and hands a worker a view of it, which comes through a pipe, as a copy.
"""

import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from ingest.node.worker_tables import WorkerTable
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.storage import open_storage
from lake.tenant import TableId, TenantId
from tests.simulation.ingest import Node
from tests.simulation.processes import memory_mb

WARM_UP = 500


def measure(uri: str, tables: list[TableId]) -> dict[str, float]:
    """Bytes of memory per table, of the main process and of a worker; the first tables bring libraries in."""
    with ThreadPoolExecutor(8) as pool:
        node = Node(CatalogClient(uri), open_storage(), SystemClock(), pool)
        node._know(tables[:WARM_UP])
        gc.collect()
        before_mb = memory_mb()
        for at in range(WARM_UP, len(tables), 1_000):
            node._know(tables[at : at + 1_000])
        gc.collect()
        main_mb = memory_mb()
        views = [node.states.view(table) for table in tables]
        gc.collect()
        told_mb = memory_mb()
        known = {
            pickle.loads(pickle.dumps(table)): WorkerTable(pickle.loads(pickle.dumps(view)))
            for table, view in zip(tables, views, strict=True)
        }
        gc.collect()
        worker_mb = memory_mb()
        count = len(tables) - WARM_UP
        return {
            "ingest_tables": count,
            "ingest_main_bytes_per_table": round((main_mb - before_mb) * 1_048_576 / count),
            "ingest_worker_bytes_per_table": round((worker_mb - told_mb) * 1_048_576 / len(known)),
        }


def main(uri: str, names: Path) -> None:
    """Prints the figures."""
    lines = [line.split() for line in names.read_text().splitlines()]
    tables = [TableId(TenantId(namespace), stream) for namespace, stream in lines]
    sys.stdout.write(orjson.dumps(measure(uri, tables)).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
