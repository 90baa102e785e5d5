"""`python -m tests.benchmarks.flood`: how long the records of some tenants take to be in their tables, alone,
and beside one that sends fifty times its limit.

Real Kafka and catalog, local files, fsync on. A record's time is that from its acknowledgement by Kafka to
the snapshot that has it, by the clock of this machine; CPU seconds are those of the node. Prints a JSON
object for each run.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import orjson
import psutil
import typer
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.limits import Limit
from lake.marks import MARKS_PROPERTY, Marks, parse_marks
from tests.benchmarks.ingest import TOPIC, records

TIMES_OVER, TICK_S, FLUSH_S, READY_S = 50, 0.1, 1.0, 120.0
FLOOD = "flood"


def main(
    tenants: Annotated[int, typer.Option(help="beside the one that sends too much")] = 20,
    each: Annotated[int, typer.Option(help="records a second of each of them")] = 50,
    limit: Annotated[int, typer.Option(help="records a second that the other one may send")] = 100,
    seconds: Annotated[int, typer.Option(help="for how long they send")] = 60,
    runs: Annotated[int, typer.Option(help="in turn, without and with it")] = 2,
) -> None:
    """Measures both in turn, each on a stack of its own."""
    for _ in range(runs):
        for flood in (0, TIMES_OVER * limit):
            print(orjson.dumps(measure(tenants, each, limit, flood, seconds)).decode(), flush=True)


def measure(tenants: int, each: int, limit: int, flood: int, seconds: int) -> dict[str, Any]:
    """One run. `flood`: records a second of the tenant that may send `limit`."""
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start("kafka", "catalog")
        admin = AdminClient({"bootstrap.servers": stack.address("kafka")})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result()
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            catalog.create_namespace(FLOOD, {Limit.RECORDS_PER_S.property: str(limit)})
            node = node_on(stack)
            try:
                sent = Sent(stack.address("kafka"))
                sent.run(tenants, each, flood, seconds)
                threading.Event().wait(5 * FLUSH_S)
                times = psutil.Process(node.pid).children(recursive=True)
                used = [process.cpu_times() for process in (psutil.Process(node.pid), *times)]
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait(60)
            waits = sorted(
                wait for name in sent.at if name != FLOOD for wait in waits_of(catalog, sent, name)
            )
            flooded = rows_of(catalog, FLOOD) if flood else 0
    return {
        "flood_records_per_s": flood,
        "records": len(waits),
        "lost": sum(map(len, sent.at.values())) - len(sent.at.get(FLOOD, ())) - len(waits),
        "p50_s": round(waits[len(waits) // 2], 3),
        "p99_s": round(waits[len(waits) * 99 // 100], 3),
        "node_cpu_s": round(sum(cpu.user + cpu.system for cpu in used), 1),
        "flood_sent": len(sent.at.get(FLOOD, ())),
        "flood_rows": flooded,
    }


class Sent:
    """Sends records, and keeps the offset and the time of each acknowledgement, by tenant."""

    def __init__(self, bootstrap: str) -> None:
        self.at: dict[str, list[tuple[int, float]]] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4"})

    def run(self, tenants: int, each: int, flood: int, seconds: int) -> None:
        """The same number of each tenant's in each tick."""
        values = [value for _, value in records(1, 1_000, zipf=False, seed=1)]
        rates = {f"calm{number:03}": each for number in range(tenants)} | ({FLOOD: flood} if flood else {})
        owed, begun_s = Counter[str](), time.monotonic()
        for tick in range(round(seconds / TICK_S)):
            for tenant, rate in rates.items():
                due = int(rate * (tick + 1) * TICK_S)
                for at in range(owed[tenant], due):
                    self._send(tenant, values[at % len(values)])
                owed[tenant] = due
            while (left_s := begun_s + (tick + 1) * TICK_S - time.monotonic()) > 0:
                self._producer.poll(left_s)  # returns with each acknowledgement
        if self._producer.flush(60):
            raise RuntimeError("the broker did not take all records")

    def _send(self, tenant: str, value: bytes) -> None:
        known = self.at.setdefault(tenant, [])

        def acknowledged(error: object, message: Message) -> None:
            if error is None:
                known.append((message.offset(), time.time()))

        self._producer.produce(TOPIC, value, headers=[("tenant", tenant.encode())], on_delivery=acknowledged)
        self._producer.poll(0)


def node_on(stack: Stack) -> "subprocess.Popen[bytes]":
    """A node that reads the topic, once it does."""
    environment = {
        **os.environ,
        **stack.environment(),
        "FIRN_INGEST_TOPICS": orjson.dumps(
            [{"name": TOPIC, "format": "json", "tenant": ["header:tenant"]}]
        ).decode(),
        "FIRN_INGEST_NODE__PORT": str(20_000 + os.getpid() % 10_000),
        "FIRN_INGEST_FLUSH__INTERVAL_S": str(FLUSH_S),
        "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": str(FLUSH_S),
        "FIRN_INGEST_COMMIT__SNAPSHOTS_MAX": "10000",
        "FIRN_INGEST_COMMIT__MANIFESTS_MAX": "10000",
    }
    log = stack.folder / "logs" / "ingest.log"
    with log.open("ab") as output:
        node = subprocess.Popen(
            [sys.executable, "-m", "ingest", "run"], env=environment, stdout=output, stderr=output
        )
    until_s = time.monotonic() + READY_S
    while b"partition.assigned" not in log.read_bytes():
        if time.monotonic() > until_s or node.poll() is not None:
            raise RuntimeError(log.read_text()[-2_000:])
        threading.Event().wait(TICK_S)
    return node


def waits_of(catalog: CatalogClient, sent: Sent, tenant: str) -> list[float]:
    """Seconds until each record of a tenant was in its table."""
    commits = sorted(
        (next(iter(_marks(snapshot).offsets.values()), 0), int(snapshot["timestamp-ms"]) / 1_000)
        for snapshot in _metadata(catalog, tenant)["snapshots"]
    )
    waits, at = list[float](), 0
    for offset, sent_s in sent.at[tenant]:
        while at < len(commits) and commits[at][0] <= offset:
            at += 1
        if at < len(commits):
            waits.append(max(0.0, commits[at][1] - sent_s))
    return waits


def _marks(snapshot: Mapping[str, Any]) -> Marks:
    return parse_marks(snapshot["summary"].get(MARKS_PROPERTY))


def _metadata(catalog: CatalogClient, tenant: str) -> dict[str, Any]:
    return dict(catalog.load_table(TableName(tenant, "logs"))["metadata"])


def rows_of(catalog: CatalogClient, tenant: str) -> int:
    """How many rows a tenant's table has."""
    metadata = _metadata(catalog, tenant)
    head = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    return int(head["summary"]["total-records"])


if __name__ == "__main__":
    typer.run(main)
