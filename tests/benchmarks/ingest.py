"""`python -m tests.benchmarks.ingest --tenants T --records N`: CPU seconds per million records, from a
preloaded topic to committed rows.

Real Kafka and catalog, local files, fsync on. CPU seconds are those of every Firn process, the catalog
included; Kafka's are not, and neither are those of Spark's JVM with --engine spark, which are told apart.
Then `batch_overhead_s` is what a job takes beyond its slowest task (the median) and `job_records_per_s` what
jobs read in a second, both without the first one, which starts the executors' Python: give --task-records, so
that there are some. The last line of the output is one JSON object with --json.

With --nodes 2 two nodes share the input; --keyed has producers send each tenant to one partition, as Firn's
partitioner says. `records_per_s` is of the time from when all nodes have committed something until most
records are: behind that a node whose partitions had less waits for the other, and the last rows for a flush.
"""

import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen

import orjson
import psutil
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.ports import reserve_free
from infra.local.supervisor import Stack
from ingest.kafka.partitioner import partition_of
from lake.catalog_client import CatalogClient
from tests.pace import Pace

TOPIC = "bench"
PARTITIONS = 4
# What answers to the benchmark's own looks take is counted with all else.
LOOK_S = 1.0
STEADY = 0.85  # of the records, those of the time in which every node has more of them to read
TIMEOUT_S = 1_800.0
WRITTEN = "firn_ingest_records_written_total"
LOG_END_CHARACTERS = 4_000
_USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"


@dataclass
class Usage:
    """CPU seconds and peak memory of some process trees."""

    roots: list[int]
    peak_rss: int = 0
    _seen: dict[tuple[int, float], tuple[bool, float]] = field(
        default_factory=dict
    )  # by pid and start: whether it is a JVM, and CPU seconds

    def processes(self) -> list[psutil.Process]:
        found = []
        for pid in self.roots:
            try:
                root = psutil.Process(pid)
                found += [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def cpu_s(self) -> float:
        """CPU seconds of all processes but JVMs; those that have ended count as far as they were seen."""
        for process in self.processes():
            try:
                times = process.cpu_times()
                self._seen[process.pid, process.create_time()] = (
                    process.name() == "java",
                    times.user + times.system,
                )
            except psutil.NoSuchProcess:
                continue
        return sum(seconds for is_jvm, seconds in self._seen.values() if not is_jvm)

    @property
    def jvm_cpu_s(self) -> float:
        """The same of JVMs, as of the last look."""
        return sum(seconds for is_jvm, seconds in self._seen.values() if is_jvm)

    def sample(self) -> None:
        rss = 0
        for process in self.processes():
            try:
                rss += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak_rss = max(self.peak_rss, rss)


def records(tenants: int, count: int, *, zipf: bool, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """(tenant, JSON of about 390 bytes) in random order of tenants; every tenant occurs at least three times
    when count allows."""
    draw = random.Random(seed)
    weights = list(accumulate(1 / (at + 1) if zipf else 1.0 for at in range(tenants)))
    start_us = int(time.time() * 1_000_000) - count * 10
    for at in range(count):
        tenant = at % tenants if at < tenants * 3 else bisect(weights, draw.random() * weights[-1])
        moment = datetime.fromtimestamp((start_us + at * 10) / 1_000_000, UTC)
        yield (
            b"tenant-%05d" % tenant,
            b'{"tenant":"tenant-%05d","timestamp":"%s","level":"%s","message":"request %d handled for user '
            b'%d in zone %d","host":"host-%02d",'
            b'"service":"checkout",'
            b'"status":%d,"latency_ms":%.3f,"path":"/api/v1/items/%d","method":"GET","request_id":"%032x","client_ip":"10.0.%d.%d","user_agent":"%s"}'
            % (
                tenant,
                moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode(),
                (b"INFO", b"INFO", b"WARN", b"ERROR")[at & 3],
                at,
                draw.getrandbits(30),
                at % 9,
                at % 50,
                (200, 200, 404, 500)[at >> 2 & 3],
                draw.random() * 100,
                draw.getrandbits(20),
                draw.getrandbits(128),
                at % 256,
                at % 200,
                _USER_AGENT.encode(),
            ),
        )


def preload(bootstrap: str, tenants: int, count: int, *, zipf: bool, seed: int, keyed: bool = False) -> int:
    """Makes and fills the topic; returns the bytes of all values. `keyed`: a tenant goes to one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result()
    return produce(bootstrap, records(tenants, count, zipf=zipf, seed=seed), keyed=keyed)


def produce(
    bootstrap: str, values: Iterable[tuple[bytes, bytes]], topic: str = TOPIC, *, keyed: bool = False
) -> int:
    """Sends records, as tenant and value; returns the bytes of all values."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "batch.num.messages": 10_000,
        }
    )
    size, places = 0, dict[bytes, int]()
    for tenant, value in values:
        size += len(value)
        where: dict[str, int] = {}
        if keyed:
            if tenant not in places:
                places[tenant] = partition_of(tenant.decode(), PARTITIONS)
            where["partition"] = places[tenant]
        while True:
            try:
                producer.produce(topic, value, headers=[("tenant", tenant)], **where)
                break
            except BufferError:
                producer.poll(0.2)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records")
    return size


def committed(catalog: CatalogClient) -> tuple[int, int, int, int, int]:
    """Tables by the catalog, rows, files and commits of all of them, and the fewest commits of one."""
    tables = rows = files = commits = 0
    fewest = sys.maxsize
    for namespace in catalog.namespaces():
        for name in catalog.tables(namespace):
            metadata = catalog.load_table(name)["metadata"]
            head = next(
                (
                    s
                    for s in metadata.get("snapshots", ())
                    if s["snapshot-id"] == metadata.get("current-snapshot-id")
                ),
                None,
            )
            if head is not None:
                tables += 1
                rows += int(head["summary"]["total-records"])
                files += int(head["summary"]["total-data-files"])
                commits += head["sequence-number"]
                fewest = min(fewest, head["sequence-number"])
    return tables, rows, files, commits, 0 if fewest == sys.maxsize else fewest


def counted(port: int) -> Counter[str]:
    """What the ingester counts, by the name of the metric, with its labels; nothing while it does not
    answer."""
    found = Counter[str]()
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(("firn_ingest_records_written_total", "firn_ingest_table_commits_total")):
                    name, _, value = line.rpartition(" ")
                    found[name] += int(float(value))
    except OSError:
        pass
    return found


def main(
    tenants: Annotated[int, typer.Option(help="tables")] = 100,
    count: Annotated[int, typer.Option("--records", help="records in the preloaded topic")] = 1_000_000,
    zipf: Annotated[bool, typer.Option("--zipf", help="tenants by Zipf instead of uniform")] = False,
    flush_interval_s: Annotated[
        float,
        typer.Option(help="0: one flush per table, at the end; with little traffic three times as long"),
    ] = 3.0,
    workers: Annotated[int, typer.Option(help="worker processes of a node")] = 1,
    nodes: Annotated[int, typer.Option(help="that share the input", min=1)] = 1,
    keyed: Annotated[bool, typer.Option("--keyed", help="a tenant goes to one partition")] = False,
    core_each: Annotated[
        bool, typer.Option("--core-each", help="a node has one core, each another; what else runs has all")
    ] = False,
    engine: Annotated[str, typer.Option(help="local or spark")] = "local",
    master: Annotated[str, typer.Option(help="Spark master, with --engine spark")] = "local[2]",
    task_records: Annotated[int, typer.Option(help="records of one task, with --engine spark")] = 1_000_000,
    rule: Annotated[
        str, typer.Option(help="rule for the tenant: header:tenant or field:tenant")
    ] = "header:tenant",
    seed: Annotated[int, typer.Option(help="of the records")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="the last line is one JSON object")] = False,
) -> None:
    """Measures ingestion from a preloaded topic."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start("kafka", "catalog")
        size = preload(stack.address("kafka"), tenants, count, zipf=zipf, seed=seed, keyed=keyed)
        settings = {
            "workers": str(workers),
            "shares": str(nodes),
            "engine": engine,
            "spark__master": master,
            "spark__task_records_max": str(task_records),
        }
        with Pace() as pace:
            result = measure(stack, count, flush_interval_s, rule, settings, core_each=core_each)
            result["pace"] = round(pace.mean(), 2)
    result |= {
        "tenants": tenants,
        "zipf": zipf,
        "bytes_per_record": round(size / count),
        "workers": workers,
        "nodes": nodes,
        "keyed": keyed,
        "core_each": core_each,
        "engine": engine if engine == "local" else f"{engine}, {master}",
        "rule": rule,
        "flush_interval_s": flush_interval_s,
    }
    result |= {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    if not as_json:
        for key, value in result.items():
            print(f"{key:22} {value}")
    else:
        print(orjson.dumps(result).decode())
    if result["rows_verified"] != count:
        raise SystemExit(1)


def jobs(log: Path) -> dict[str, float]:
    """What jobs of Spark took beyond their slowest tasks, what they read in a second, how many of them handed
    on; without the first, which starts the executors' Python. Nothing where there was no other."""
    events = [
        orjson.loads(line)
        for line in log.read_bytes().splitlines()
        if line.startswith(b'{"') and b'"job.ended"' in line
    ][1:]
    if not events:
        return {}
    beyond = sorted(event["wall_s"] - event["task_s"] for event in events)
    return {
        "batch_overhead_s": round(beyond[len(beyond) // 2], 3),
        "job_records_per_s": round(
            sum(event["records"] for event in events) / sum(event["wall_s"] for event in events)
        ),
        "jobs_handed_on": sum(event["handed_on"] for event in events),
    }


def measure(
    stack: Stack,
    count: int,
    flush_interval_s: float,
    rule: str,
    settings: Mapping[str, str],
    *,
    core_each: bool = False,
) -> dict[str, object]:
    """Runs the ingester until every record is committed."""
    ports = [reserve_free() for _ in range(int(settings["shares"]))]
    topics = [{"name": TOPIC, "format": "json", "tenant": [rule]}]
    environment = {
        **os.environ,
        **stack.environment(),
        "FIRN_INGEST_TOPICS": orjson.dumps(topics).decode(),
        **{f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()},
        "FIRN_INGEST_FLUSH__INTERVAL_S": str(flush_interval_s or 3_600),
        "FIRN_INGEST_SHUTDOWN_S": "600",
    }
    log_file = stack.folder / "logs" / "ingest.log"
    log = log_file.open("ab")
    started_s = time.monotonic()
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "ingest", "run"],
            env={**environment, "FIRN_INGEST_NODE__PORT": str(port)},
            stdout=log,
            stderr=log,
        )
        for port in ports
    ]
    if core_each:  # before they have processes of their own, which get what their parent has
        for core, process in enumerate(nodes):
            os.sched_setaffinity(process.pid, {core})
    usage = Usage([*(node.pid for node in nodes), stack.pid("catalog")])
    before_s = usage.cpu_s()
    tick = threading.Event()
    end_s, cpu_s, found, seen = started_s, 0.0, Counter[str](), list[tuple[float, int]]()
    try:
        while all(node.poll() is None for node in nodes) and time.monotonic() - started_s < TIMEOUT_S:
            tick.wait(LOOK_S)
            usage.sample()
            cpu_s, end_s = usage.cpu_s() - before_s, time.monotonic()
            of_each = [counted(port) for port in ports]
            found = sum(of_each, Counter[str]())
            if all(each[WRITTEN] for each in of_each):
                seen.append((end_s, found[WRITTEN]))
            if flush_interval_s == 0 and _routed(ports) >= count:
                _end(nodes)
                flush_interval_s = 1.0  # ask once
            elif flush_interval_s and found[WRITTEN] >= count:
                break
    finally:
        _end(nodes)
        codes = [node.wait(60) for node in nodes]
        log.close()
    catalog = CatalogClient(stack.address("catalog"))
    tables, rows, files, commits, fewest = committed(catalog)
    if rows != count:
        sys.stderr.write(
            f"{log_file.read_text(errors='replace')[-LOG_END_CHARACTERS:]}\nthe nodes ended with exit codes "
            f"{codes}\n"
        )
    conflicts = sum(number for name, number in found.items() if 'status="conflict"' in name)
    return {
        "records": count,
        "cpu_s_per_million": round(cpu_s * 1_000_000 / count, 2),
        "wall_s": round(end_s - started_s, 1),
        "records_per_s": _rate(seen, round(STEADY * count)),
        "peak_rss_mb": round(usage.peak_rss / 1_048_576),
        "files": files,
        "files_per_table": round(files / tables, 2) if tables else 0.0,
        "commits": commits,
        "commits_per_table": round(commits / tables, 2) if tables else 0.0,
        "commits_per_table_min": fewest,
        "conflicts_per_commit": round(conflicts / commits, 3) if commits else 0.0,
        "rows_verified": rows,
        **(
            {"jvm_cpu_s": round(usage.jvm_cpu_s, 1), **jobs(log_file)}
            if settings["engine"] == "spark"
            else {}
        ),
    }


def _end(nodes: Iterable[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)


def _rate(seen: Sequence[tuple[float, int]], count: int) -> int:
    """Records a second between the first look and the last one that saw at most so many."""
    steady = [each for each in seen if each[1] <= count]
    if len(steady) < 2:
        return 0
    (began_s, first), (ended_s, last) = steady[0], steady[-1]
    return round((last - first) / (ended_s - began_s))


def _routed(ports: Iterable[int]) -> int:
    try:
        return sum(p["routed"] for port in ports for p in _status(port)["partitions"])
    except OSError:
        return 0


def _status(port: int) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=5) as answer:
        return dict(orjson.loads(answer.read()))


if __name__ == "__main__":
    typer.run(main)
