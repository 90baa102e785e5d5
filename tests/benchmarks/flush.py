"""`python -m tests.benchmarks.flush --tables 10000 --json`: what a small flush costs over all processes.

The real node with one worker against real Kafka and our catalog, local files, fsync on. Every table gets a
few records, which are flushed, and some more, which are flushed as well: so a table is created once and
appended to once. CPU of the worker, the main process and the catalog counts from the moment the node is
ready; Kafka's does not. `parts` are milliseconds a flush by process and part (`timers.py`), the rest of each
process under `other`. The last line of the output is one JSON object with --json.

ext4 looks for the number of a new file beyond all those that were freed in the last five minutes: where many
files were deleted just before, by an earlier run perhaps, the kernel takes several times as long. So
`kernel_ms_per_flush` is told apart, and with --folder nothing is deleted.
"""

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
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
from tests.benchmarks.node_processes import TIMED, Spent, Timed, running_catalog, running_node
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


def measure(
    stack: Stack, folder: Path, tables: int, records_per_flush: int, interval_s: float
) -> dict[str, Any]:
    """Two flushes of each table, in a folder of their own."""
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
    with running_catalog(TIMED, folder, environment) as (catalog_pid, address):
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
        with running_node(TIMED, folder, environment | of_node, port) as pids:
            timed = Timed(times, [*pids, catalog_pid])
            moments, walls_s = [timed.spent()], list[float]()
            for at in (1, 2):
                began_s = time.monotonic()
                produce(bootstrap, records(tables, count, zipf=False, seed=at))
                wanted = at * count
                what = f"{wanted:,} committed records"
                wait_for(lambda: counted(port)[WRITTEN] >= wanted, ROUND_S, what, LOOK_S)  # noqa: B023
                walls_s.append(round(time.monotonic() - began_s, 1))
                moments.append(timed.spent())
        _, rows, files, commits, fewest = committed(CatalogClient(address))
    return {
        "records": 2 * count,
        "rows_verified": rows,
        "flushes": commits,
        "files": files,
        "commits_per_table_min": fewest,
        **_figures(moments, tables, commits),
        "wall_s": walls_s,
    }


def _figures(moments: Sequence[Spent], tables: int, flushes: int) -> dict[str, Any]:
    before, between, after = moments
    spent = after.since(before)
    first, second = between.since(before), after.since(between)
    return {
        "ms_per_flush": round(spent.cpu_s.total() * 1_000 / flushes, 3),
        "ms_per_first_flush": round(first.cpu_s.total() * 1_000 / tables, 3),
        "ms_per_second_flush": round(second.cpu_s.total() * 1_000 / (flushes - tables), 3),
        "kernel_ms_per_flush": round(spent.kernel_s.total() * 1_000 / flushes, 3),
        "processes": {process: round(spent.cpu_s[process] * 1_000 / flushes, 3) for process in PROCESSES},
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
        stack = context.enter_context(Stack(place / "stack", tied=True))
        stack.start("kafka")
        pace = context.enter_context(Pace())
        result = measure(stack, place, tables, records_per_flush, interval_s)
        result["pace"] = round(pace.mean(), 2)
    result |= {
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
    if result["rows_verified"] != result["records"] or result["commits_per_table_min"] < 2:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
