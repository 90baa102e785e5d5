"""`python -m tests.benchmarks.changes --changes 2000000 --keys 1000000 --tables 10 --json`: keyed tables from
a preloaded topic of Debezium's messages, and what the same changes cost Spark's MERGE INTO.

Real Kafka and catalog, local files, fsync on. Firn (the node with its worker, and the catalog) runs on one
core; its CPU seconds are those of all its processes, from their start to the last commit. `changes_per_s`:
changes by these seconds, which is what one core does; `changes_per_s_wall`: by the clock, start of the
processes included, which says the same on a machine that does nothing else.

`read_amplification`: bytes of the live data and delete files, which a full scan reads, by those of the same
rows in new files; before and after one round of maintenance.

MERGE: all changes count as those of an hour (--minutes), and what comes in a minute is merged into each table
once; compare `merges_per_table` with `commits_per_table_min` of Firn. It is measured on a sample, two tables
(one copy-on-write, one merge-on-read) and the last minutes of each, the start of Spark and the first two
minutes left out. Copy-on-write is what Iceberg does unless it is told otherwise; merge-on-read is cheaper,
and leaves deletes to be maintained, as Firn does. The copy that was merged into has to equal Firn's table.
Every table of Firn is compared with what it should be. The last line of the output is one JSON object with
--json.
"""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen

import orjson
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog

from infra.local.services.optimize import environment as spark_environment
from infra.local.supervisor import Stack
from ingest.commit.live_rows import LiveRowsReader
from lake.catalog_client import CatalogClient, TableName
from lake.commit import load_state
from lake.data_file import DATA
from lake.errors import UnavailableError
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.benchmarks.change_load import Message, Truth, messages
from tests.benchmarks.ingest import LOG_END_CHARACTERS, Usage
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.optimize import timed
from tests.benchmarks.spark_merge import WARM_UP
from tests.pace import Pace

TOPIC = "bench.changes"
PARTITIONS = 4
TIMEOUT_S = 1_800.0
MODES = ("copy-on-write", "merge-on-read")


def tenant(table: int) -> str:
    return f"shop-{table:03}"


def table_name(table: int) -> TableName:
    return TableName(to_identifier(tenant(table)), "logs")


@dataclass
class Minutes:
    """The last minutes of the sampled tables, which are written for MERGE. A minute is so many changes of all
    tables."""

    folder: Path
    changes: int
    per_minute: int
    kept: int
    _values: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=dict)

    def take(self, message: Message, at: int) -> None:
        """Notes the change number `at`."""
        minute = (self.changes - 1 - at) // self.per_minute  # from the end
        if message.table < len(MODES) and minute < self.kept and message.value is not None:
            self._values.setdefault((message.table, minute), []).append((at, message.value))

    def write(self) -> dict[str, Any]:
        """By mode of the merge: its table, and a file for each minute, in their order."""
        sampled: dict[str, Any] = {}
        for (table, minute), values in sorted(self._values.items(), key=lambda item: -item[0][1]):
            path = self.folder / f"minute-{table}-{minute}.parquet"
            offsets, texts = zip(*values, strict=True)
            pq.write_table(pa.table({"offset": offsets, "value": pa.array(texts).cast(pa.string())}), path)
            sample = sampled.setdefault(MODES[table], {"table": str(table_name(table)), "minutes": []})
            sample["minutes"].append(str(path))
        return sampled


def preload(
    bootstrap: str, changes: int, keys: int, truths: list[Truth], minutes: Minutes, seed: int
) -> tuple[int, int]:
    """Fills the topic; returns the number of messages and the bytes of all values."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,  # a request that is sent again keeps its place
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            "batch.num.messages": 10_000,
        }
    )
    count = size = at = 0
    for message in messages(changes, keys, truths, seed):
        while True:
            try:
                producer.produce(
                    TOPIC,
                    message.value,
                    message.key,
                    message.number % PARTITIONS,
                    headers=[("tenant", tenant(message.table).encode())],
                )
                break
            except BufferError:
                producer.poll(0.2)
        producer.poll(0)
        minutes.take(message, at)
        count, size, at = count + 1, size + len(message.value or b""), at + message.is_change
    if producer.flush(120):
        raise UnavailableError("the broker did not take all messages")
    return count, size


@contextmanager
def node(stack: Stack, port: int, flush_interval_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """A node that ingests the topic, on the last core, as the catalog does; it is stopped politely."""
    topic = {
        "name": TOPIC,
        "tenant": ["header:tenant"],
        "changes": {"mode": "upsert", "format": "debezium"},
    }
    environment = {
        **os.environ,
        **stack.environment(),
        "FIRN_INGEST_TOPICS": orjson.dumps([topic]).decode(),
        "FIRN_INGEST_NODE__PORT": str(port),
        "FIRN_INGEST_FLUSH__INTERVAL_S": str(flush_interval_s),
        "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": str(flush_interval_s),
        "FIRN_INGEST_KEY_INDEX__FOLDER": str(stack.folder / "keys"),
        "FIRN_INGEST_SHUTDOWN_S": "600",
    }
    core = [max(psutil.Process().cpu_affinity())]
    psutil.Process(stack.pid("catalog")).cpu_affinity(core)
    with (stack.folder / "logs" / "ingest.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ingest", "run"], env=environment, stdout=log, stderr=log
        )
    psutil.Process(process.pid).cpu_affinity(core)  # before it has children
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def ingest(stack: Stack, changes: int, count: int, flush_interval_s: float) -> dict[str, object]:
    """Runs the ingester until the group has stored the offset of the last message."""
    port, tick = 20_000 + os.getpid() % 10_000, threading.Event()
    started_s = time.monotonic()
    with node(stack, port, flush_interval_s) as process:
        usage = Usage([process.pid, stack.pid("catalog")])
        before_s, stored = usage.cpu_s(), 0
        while process.poll() is None and stored < count and time.monotonic() - started_s < TIMEOUT_S:
            tick.wait(0.25)
            usage.sample()
            cpu_s, wall_s = usage.cpu_s() - before_s, time.monotonic() - started_s
            stored = _stored(port)
        if stored < count:
            log = (stack.folder / "logs" / "ingest.log").read_text(errors="replace")
            raise UnavailableError(f"{stored} of {count} messages: {log[-LOG_END_CHARACTERS:]}")
    return {
        "cpu_s_per_million": round(cpu_s * 1_000_000 / changes, 2),
        "changes_per_s": round(changes / cpu_s),
        "changes_per_s_wall": round(changes / wall_s),
        "wall_s": round(wall_s, 1),
        "peak_rss_mb": round(usage.peak_rss / 1_048_576),
    }


def _stored(port: int) -> int:
    """The sum of the offsets that the group has stored."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=5) as answer:
            return sum(partition["stored"] or 0 for partition in orjson.loads(answer.read())["partitions"])
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class Files:
    """The live files of all tables, and how often these were committed: the fewest of one table."""

    data_files: int
    delete_files: int
    size_bytes: int
    commits_min: int


def live_files(catalog: CatalogClient, names: Sequence[TableName]) -> Files:
    """Looks at every table's newest snapshot."""
    reader = LiveRowsReader(storage := open_storage())
    states = [load_state(catalog, storage, name) for name in names]
    entries = [entry for state in states if state is not None for entry in reader.read(state).all]
    data = len([entry for entry in entries if entry.file.content == DATA])
    size = sum(entry.file.size_bytes for entry in entries)
    commits = min(catalog.load_table(name)["metadata"]["last-sequence-number"] for name in names)
    return Files(data, len(entries) - data, size, commits)


def different(uri: str, truths: Sequence[Truth]) -> list[str]:
    """A sentence for each table that is not what it should be, as PyIceberg reads it."""
    catalog, wrong = load_catalog("bench", type="rest", uri=uri), []
    for number, truth in enumerate(truths):
        table = catalog.load_table(tuple(table_name(number)))
        rows = table.scan(selected_fields=("id", "amount")).to_arrow()
        cents = pc.sum(rows["amount"]).as_py()
        found = (rows.num_rows, pc.sum(rows["id"]).as_py(), int(cents * 100))
        if found != truth.sums:
            wrong.append(f"{table_name(number)}: {found} instead of {truth.sums}")
    return wrong


def compared(stack: Stack, tables: int, sampled: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What Spark does: the rows of the tables freshly written, and the minutes merged."""
    work = {
        "tables": [str(table_name(table)) for table in range(tables)],
        "sampled": sampled,
        "catalog_pid": stack.pid("catalog"),
        "answer": str(folder / "answer.json"),
    }
    (folder / "work.json").write_bytes(orjson.dumps(work))
    command = [sys.executable, "-m", "tests.benchmarks.spark_merge", str(folder / "work.json")]
    timed(command, {**stack.environment(), **spark_environment()})
    return dict(orjson.loads((folder / "answer.json").read_bytes()))


def maintained(stack: Stack, names: Sequence[TableName]) -> float:
    """CPU seconds of one round of maintenance."""
    tables = [part for name in names for part in ("--table", str(name))]
    variables = {"FIRN_OPTIMIZE_RETENTION__READER_GRACE_S": "0"}
    command = [sys.executable, "-m", "optimize", "run", "--once", *tables]
    return timed(command, {**stack.environment(), **spark_environment(), **variables})[1]


def main(
    changes: Annotated[int, typer.Option(help="changes in the preloaded topic", min=1)] = 2_000_000,
    keys: Annotated[int, typer.Option(help="keys of all tables together", min=1)] = 1_000_000,
    tables: Annotated[int, typer.Option(help="tables", min=len(MODES))] = 10,
    minutes: Annotated[
        int, typer.Option(help="within which the changes come: merges of a table", min=1)
    ] = 60,
    merge_minutes: Annotated[int, typer.Option(help="minutes of the sample that are merged", min=1)] = 20,
    flush_interval_s: Annotated[float, typer.Option(help="seconds between flushes of a table")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the changes")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="the last line is one JSON object")] = False,
    keeps: Keep = False,
) -> None:
    """Measures change streams from a preloaded topic."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")
    truths, names = [Truth() for _ in range(tables)], [table_name(table) for table in range(tables)]
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start("kafka", "catalog")
        catalog, uri = CatalogClient(stack.address("catalog")), stack.address("catalog")
        last = Minutes(Path(folder), changes, changes // minutes, merge_minutes + WARM_UP)
        count, size = preload(stack.address("kafka"), changes, keys, truths, last, seed)
        with Pace() as pace:
            result = ingest(stack, changes, count, flush_interval_s)
            result["pace"] = round(pace.mean(), 2)
        wrong = different(uri, truths)
        before = live_files(catalog, names)
        spark = compared(stack, tables, last.write(), Path(folder))
        maintenance_s = maintained(stack, names)
        wrong += [f"after maintenance, {sentence}" for sentence in different(uri, truths)]
        after = live_files(catalog, names)
    result |= _read_amplification(before, after, spark["fresh_bytes"]) | {
        "maintenance_cpu_s": round(maintenance_s, 1)
    }
    result |= _ratios(spark["merged"], float(str(result["cpu_s_per_million"])))
    result |= {
        "changes": changes,
        "keys": keys,
        "tables": tables,
        "rows": sum(len(truth.amounts) for truth in truths),
        "bytes_per_message": round(size / count),
        "flush_interval_s": flush_interval_s,
        "merges_per_table": minutes,
        "merge_sample": f"{merge_minutes} minutes of {changes // minutes // tables} changes, for each mode",
        "different": wrong,
        "load_average": os.getloadavg()[0],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    if keeps:
        keep("changes", result)
    lines = [f"{key:28} {value}" for key, value in result.items()]
    print(orjson.dumps(result).decode() if as_json else "\n".join(lines))
    if wrong or not result["merge_equal"]:
        raise SystemExit(1)


def _read_amplification(before: Files, after: Files, fresh_bytes: int) -> dict[str, object]:
    return {
        "commits_per_table_min": before.commits_min,
        "data_files": before.data_files,
        "data_files_after_maintenance": after.data_files,
        "delete_files": before.delete_files,
        "delete_files_after_maintenance": after.delete_files,
        "read_amplification_before_maintenance": round(before.size_bytes / fresh_bytes, 2),
        "read_amplification": round(after.size_bytes / fresh_bytes, 2),
        "fresh_bytes": fresh_bytes,
    }


def _ratios(merged: Mapping[str, Mapping[str, Any]], ours: float) -> dict[str, object]:
    """CPU seconds of MERGE for a million changes, and how many times those of Firn they are, by mode."""
    said: dict[str, object] = {"merge_equal": all(of["is_equal"] for of in merged.values())}
    for mode, of in merged.items():
        spent, name = of["cpu_s"] * 1_000_000 / of["changes"], mode.replace("-", "_")
        said |= {f"merge_cpu_s_per_million_{name}": round(spent, 1), f"ratio_{name}": round(spent / ours, 1)}
    return said


if __name__ == "__main__":
    typer.run(main)
