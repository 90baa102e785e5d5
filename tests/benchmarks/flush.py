"""`python -m tests.benchmarks.flush --tables 10000 --json`: what a small flush costs over all processes.

The real node with one worker against real Kafka and our catalog, local files, fsync on. Every table gets a
few records, which are flushed, and some more, which are flushed as well: so a table is created once and
appended to once. CPU of the worker, the main process and the catalog counts from the moment the node is
ready; Kafka's does not. The last line of the output is one JSON object with --json.

Then the same is done once more with timers (`timers.py`), which themselves take a tenth to a sixth of it:
`parts` are milliseconds a flush by process and part, the rest of each process under `other`, and
`ms_per_flush_timed` is what they are parts of.

ext4 looks for the number of a new file beyond all those that were freed in the last five minutes: where many
files were deleted just before, by an earlier run perhaps, the kernel takes several times as long. So
`kernel_ms_per_flush` is told apart, and with --folder nothing is deleted.
"""

import os
import platform
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.benchmarks.ingest import LOOK_S, PARTITIONS, TOPIC, WRITTEN, committed, counted, produce, records
from tests.benchmarks.node_processes import TIMED, Plain, Spent, Timed, running_catalog, running_node
from tests.benchmarks.timers import CATALOG, FOLDER_VARIABLE, MAIN, WORKER
from tests.pace import Pace
from tests.stack.support.waiting import wait_for

PROCESSES = (WORKER, MAIN, CATALOG)
ROUND_S = 900.0
OTHER = "other"


def parts_ms(spent: Spent, flushes: int) -> dict[str, dict[str, float]]:
    """Milliseconds a flush by process and part, the dearest first."""
    found: dict[str, dict[str, float]] = {}
    for process in PROCESSES:
        named = {part: took_s for (of, part), took_s in spent.parts_s.items() if of == process}
        named[OTHER] = spent.cpu_s[process] - sum(named.values())
        found[process] = {
            part: round(took_s * 1_000 / flushes, 4)
            for part, took_s in sorted(named.items(), key=lambda item: -item[1])
        }
    return found


@dataclass(frozen=True)
class Measured:
    """What was spent when the node was ready, after one flush of each table and after two."""

    spent: tuple[Spent, Spent, Spent]
    rows: int
    files: int
    flushes: int
    fewest: int
    walls_s: list[float]

    @property
    def whole(self) -> Spent:
        """What both flushes of all tables took."""
        ready, _, done = self.spent
        return done.since(ready)


def measure(folder: Path, tables: int, records_per_flush: int, interval_s: float, *, timed: bool) -> Measured:
    """Two flushes of each table, with a Kafka of their own."""
    folder.mkdir()
    with Stack(folder / "stack", tied=True) as stack:
        stack.start("kafka")
        return _measure(stack, folder, tables, records_per_flush, interval_s, timed=timed)


def _measure(
    stack: Stack, folder: Path, tables: int, records_per_flush: int, interval_s: float, *, timed: bool
) -> Measured:
    launcher = TIMED if timed else None
    bootstrap, count, port = (
        stack.address("kafka"),
        tables * records_per_flush,
        20_000 + os.getpid() % 10_000,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result()
    times = folder / "times"
    times.mkdir()
    environment = {**os.environ, **stack.environment(), FOLDER_VARIABLE: str(times)}
    with running_catalog(launcher, folder, environment) as (catalog_pid, address):
        of_node = {
            "FIRN_INGEST_CATALOG__URI": address,
            "FIRN_INGEST_TOPICS": orjson.dumps(
                [{"name": TOPIC, "format": "json", "tenant": ["header:tenant"]}]
            ).decode(),
            "FIRN_INGEST_NODE__PORT": str(port),
            "FIRN_INGEST_FLUSH__INTERVAL_S": str(interval_s),
            "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": str(interval_s),
            "FIRN_INGEST_TABLES__NEW_PER_MINUTE": "1000000",
        }
        with running_node(launcher, folder, environment | of_node, port) as pids:
            every = dict(zip(PROCESSES, (*pids, catalog_pid), strict=True))
            processes = Timed(times, list(every.values())) if timed else Plain(every)
            moments, walls_s = [processes.spent()], list[float]()
            for at in (1, 2):
                began_s = time.monotonic()
                produce(bootstrap, records(tables, count, zipf=False, seed=at))
                wanted = at * count
                what = f"{wanted:,} committed records"
                wait_for(lambda: counted(port)[WRITTEN] >= wanted, ROUND_S, what, LOOK_S)  # noqa: B023
                walls_s.append(round(time.monotonic() - began_s, 1))
                moments.append(processes.spent())
        _, rows, files, commits, fewest = committed(CatalogClient(address))
    ready, between, done = moments
    return Measured((ready, between, done), rows, files, commits, fewest, walls_s)


def _figures(measured: Measured, tables: int) -> dict[str, Any]:
    before, between, after = measured.spent
    spent, flushes = measured.whole, measured.flushes
    first, second = between.since(before), after.since(between)
    return {
        "rows_verified": measured.rows,
        "flushes": flushes,
        "files": measured.files,
        "commits_per_table_min": measured.fewest,
        "ms_per_flush": _ms(spent.cpu_s.total(), flushes),
        "ms_per_first_flush": _ms(first.cpu_s.total(), tables),
        "ms_per_second_flush": _ms(second.cpu_s.total(), flushes - tables),
        "kernel_ms_per_flush": _ms(spent.kernel_s.total(), flushes),
        "processes": {process: _ms(spent.cpu_s[process], flushes) for process in PROCESSES},
        "wall_s": measured.walls_s,
    }


def _ms(cpu_s: float, flushes: int) -> float:
    return round(cpu_s * 1_000 / flushes, 3)


def _parts(measured: Measured) -> dict[str, Any]:
    spent, flushes = measured.whole, measured.flushes
    return {
        "ms_per_flush_timed": _ms(spent.cpu_s.total(), flushes),
        "parts": parts_ms(spent, flushes),
        "calls": {f"{process}: {part}": calls for (process, part), calls in sorted(spent.calls.items())},
    }


def main(
    tables: Annotated[int, typer.Option(help="tables, of which each is flushed twice")] = 10_000,
    records_per_flush: Annotated[int, typer.Option(help="records of a flush on average")] = 20,
    interval_s: Annotated[
        float, typer.Option(help="seconds from a table's first record to its flush; all have to come by then")
    ] = 10.0,
    folder: Annotated[
        Path | None, typer.Option(help="where all files lie, and stay; else a temporary folder")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the last line is one JSON object")] = False,
) -> None:
    """Measures small flushes of many tables."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")
    with ExitStack() as context:
        place = folder or Path(context.enter_context(tempfile.TemporaryDirectory(prefix="firn-bench-")))
        with Pace() as pace:
            measured = measure(place / "plain", tables, records_per_flush, interval_s, timed=False)
            share = pace.mean()
        parted = measure(place / "timed", tables, records_per_flush, interval_s, timed=True)
    wanted = 2 * tables * records_per_flush
    result = {
        "records": wanted,
        **_figures(measured, tables),
        **_parts(parted),
        "pace": round(share, 2),
        "tables": tables,
        "records_per_flush": records_per_flush,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    if not as_json:
        for key, value in result.items():
            print(f"{key:22} {value}")
    else:
        print(orjson.dumps(result).decode())
    if any(each.rows != wanted or each.fewest < 2 for each in (measured, parted)):
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
