"""The catalog on PostgreSQL, with one process and with two: commits a second, and whose the CPU is."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from catalog.store.database import Database, migrate
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.storage import open_storage
from tests.benchmarks.fleet import questions
from tests.benchmarks.fleet.own_tables import OwnTables
from tests.benchmarks.fleet.rounds import Rounds
from tests.benchmarks.fleet.rows import fill_postgres
from tests.benchmarks.fleet.server import Server, cpu_s
from tests.benchmarks.fleet.shape import Fleet

Json = dict[str, Any]
SINGLE, BATCHES, BATCH = 800, 5, 1_000


def measure_postgres(folder: Path, fleet: Fleet, say: Callable[[str], object]) -> Json:
    """A server of its own, whose every commit is on the disk."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")
    with Stack(folder / "stack", tied=True) as stack:
        stack.start("postgres")
        url, pid = stack.address("postgres"), stack.pid("postgres")
        database = Database(url)
        migrate(database)
        database.close()
        result: Json = {"tables": fleet.tables}
        with Server(folder, url) as server:
            own = OwnTables.of(fleet, CatalogClient(server.uri), open_storage())
            result |= own.make()
            shared = str(own.catalog.load_table(fleet.name(fleet.own()[0]))["metadata-location"])
        filled = fill_postgres(url, fleet, f"file://{folder}/warehouse", shared)
        result |= {f"fill_{name}": round(value, 1) for name, value in filled.items()}
        result["database_mb"] = _size_mb(url)
        say(f"PostgreSQL: {result}")
        for workers in (1, 2):
            with Server(folder, url, workers) as server:
                own = OwnTables.of(fleet, CatalogClient(server.uri), open_storage())
                result[f"processes_{workers}"] = _loaded(own, server, pid)
                say(f"{workers} processes: {result[f'processes_{workers}']}")
                if workers == 1:
                    result |= questions.lists(questions.Connection(server.port), fleet)
                    rounds = Rounds(own.catalog, own.storage, server)
                    result |= rounds.round("round_first") | rounds.round("round_idle")
    return result


def _size_mb(url: str) -> int:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return 0 if row is None else int(row[0]) // 1_048_576


def _loaded(own: OwnTables, server: Server, postgres: int) -> Json:
    """Commits of eight clients at once, one by one and in requests of 1,000."""
    numbers = list(own.fleet.own())
    chosen = random.Random(5).sample(numbers, SINGLE)
    prepared = [own.append_one(state) for number in chosen if (state := own.state(number)) is not None]
    found: Json = {"start_s": round(server.start_s, 3)}
    with _shares(found, "single", server, postgres, len(prepared)):
        found["commits_per_s_of_8"] = round(questions.together(own, prepared), 1)
    spent_s = commits = 0.0
    groups = [list(own.change(numbers[:BATCH], 0)) for _ in range(1)]
    for _ in range(BATCHES):
        (batch,) = groups[0]
        with _shares(found, "batch", server, postgres, len(batch)):
            spent_s += own.commit(batch)
        commits += len(batch)
        groups = [[[own.append_one(each.after) for each in batch]]]
    return found | {"batch_commits_per_s": round(commits / spent_s)}


@contextmanager
def _shares(found: Json, name: str, server: Server, postgres: int, commits: int) -> Iterator[None]:
    """Notes CPU milliseconds for each commit: of the catalog, of PostgreSQL, and of who asks; and how busy
    both cores were."""
    before, began_s, busy = _cpu(server, postgres), time.perf_counter(), _busy_s()
    yield
    spent = {key: value - before[key] for key, value in _cpu(server, postgres).items()}
    wall_s = time.perf_counter() - began_s
    found |= {f"{name}_{key}_cpu_ms": round(value * 1_000 / commits, 3) for key, value in spent.items()}
    found[f"{name}_cores_busy"] = round((_busy_s() - busy) / wall_s, 2)


def _cpu(server: Server, postgres: int) -> dict[str, float]:
    return {"catalog": server.cpu_s(), "postgres": cpu_s(postgres), "client": time.process_time()}


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.softirq + times.irq)
