"""`python -m tests.benchmarks.neighbours streams|search`: what a tenant with very many streams, or with
searches that read everything all the time, costs the others.

Real Kafka, catalog and API, local files, fsync on. Each command measures the others alone first, then beside
that tenant, on a stack of its own each time, and prints a JSON object for each.
"""

import itertools
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import orjson
import psutil
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.limits import Limit
from lake.retention_policies import BELIEVED_S
from tests.benchmarks.flood import FLOOD, FLUSH_S, TICK_S, Sent, node_on, waits_of
from tests.benchmarks.ingest import TOPIC
from tests.benchmarks.log_volume import load

SEARCHES, CREATED_S = 200, 3_600.0
HOURS = 7 * 24
EVERYTHING = "*q*x*z*"  # no whole word that a filter of files could tell
app = typer.Typer(add_completion=False)


class ToManyStreams(Sent):
    """The tenant `FLOOD` has so many streams, and sends to each in turn."""

    def __init__(self, bootstrap: str, streams: int) -> None:
        super().__init__(bootstrap)
        self._streams = itertools.cycle(range(streams))

    def _send(self, tenant: str, value: bytes) -> None:
        if tenant != FLOOD:
            super()._send(tenant, value)
            return
        headers = [("tenant", FLOOD.encode()), ("stream", b"s%06d" % next(self._streams))]
        self._producer.produce(TOPIC, value, headers=headers)
        self._producer.poll(0)


@app.command()
def streams(
    count: Annotated[int, typer.Option(help="streams of the one tenant")] = 100_000,
    active: Annotated[int, typer.Option(help="records a second that it sends, to its streams in turn")] = 100,
    tenants: Annotated[int, typer.Option(help="beside it")] = 20,
    each: Annotated[int, typer.Option(help="records a second of each of them")] = 50,
    seconds: Annotated[int, typer.Option(help="for how long they send")] = 60,
) -> None:
    """Freshness and searches of others beside a tenant with many streams; and lists of the catalog."""
    os.environ["FIRN_INGEST_TABLES__NEW_PER_MINUTE"] = str(10_000_000)
    for many in (0, count):
        told = _beside_streams(many, active if many else 0, tenants, each, seconds)
        print(orjson.dumps(told).decode(), flush=True)


def _beside_streams(many: int, active: int, tenants: int, each: int, seconds: int) -> dict[str, Any]:
    with _stack("kafka", "catalog", "query") as stack:
        admin = AdminClient({"bootstrap.servers": stack.address("kafka")})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result()
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            node = node_on(stack)
            try:
                before_s, began_s = _cpu_s(node.pid), time.monotonic()
                _create(stack, catalog, many)
                created_s, created_cpu_s = time.monotonic() - began_s, _cpu_s(node.pid) - before_s
                sent, before_s = ToManyStreams(stack.address("kafka"), max(1, many)), _cpu_s(node.pid)
                sent.run(tenants, each, active, seconds)
                threading.Event().wait(5 * FLUSH_S)
                cpu_s = _cpu_s(node.pid) - before_s
                waits = sorted(wait for name in sent.at for wait in waits_of(catalog, sent, name))
                lists_s = [_timed(lambda: list(catalog.tables(FLOOD))) for _ in range(3)] if many else []
                with httpx.Client(base_url=stack.address("query"), timeout=60.0, trust_env=False) as api:
                    names = list(sent.at)
                    searches = sorted(_page(api, names[at % len(names)]) for at in range(SEARCHES))
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait(600)
    return {
        "streams": many,
        "created_s": round(created_s, 1),
        "created_cpu_s": round(created_cpu_s, 1),
        "records": len(waits),
        **_quantiles("fresh", waits),
        "node_cpu_s": round(cpu_s, 1),
        **_quantiles("search", searches),
        "list_s": [round(took_s, 2) for took_s in lists_s],
    }


def _create(stack: Stack, catalog: CatalogClient, many: int) -> None:
    """Sends a record to each stream; returns when all have their tables."""
    if not many:
        return
    producer = Producer({"bootstrap.servers": stack.address("kafka"), "linger.ms": 5})
    for at in range(many):
        headers = [("tenant", FLOOD.encode()), ("stream", b"s%06d" % at)]
        producer.produce(TOPIC, b'{"message":"first"}', headers=headers)
        producer.poll(0)
    producer.flush(120)
    until_s = time.monotonic() + CREATED_S
    while FLOOD not in catalog.namespaces() or sum(1 for _ in catalog.tables(FLOOD)) < many:
        if time.monotonic() > until_s:
            raise RuntimeError("the streams do not come")
        threading.Event().wait(20 * TICK_S)


def _page(api: httpx.Client, tenant: str) -> float:
    body = {"tenant": tenant, "stream": "logs", "from": "now-15m", "to": "now+1m", "limit": 100}
    return _timed(lambda: api.post("/v1/search", json=body).raise_for_status())


@app.command()
def search(
    rows: Annotated[int, typer.Option(help="of all tenants together, by Zipf")] = 5_000_000,
    tenants: Annotated[int, typer.Option(help="the largest of which searches everything")] = 6,
    at_once: Annotated[int, typer.Option(help="of its searches")] = 8,
    seconds: Annotated[int, typer.Option(help="for how long each time")] = 60,
) -> None:
    """Searches of others beside those of a tenant that reads all its files all the time; then with a limit of
    one search at once for that."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS + 1)
    with _stack("catalog", "query") as stack, closing(CatalogClient(stack.address("catalog"))) as catalog:
        loaded = list(load(catalog, rows=rows, tenants=tenants, start=start, hours=HOURS))
        loaded.sort(key=lambda each: -each.rows)
        bad, *others = [each.table.tenant.name for each in loaded]
        namespace = loaded[0].table.tenant.namespace
        ask = _Asker(stack.address("query"), start)
        ask.others(others, 10.0)  # warm
        for greedy, limit in ((0, ""), (at_once, ""), (at_once, "1")):
            if limit:
                catalog.update_namespace(namespace, {Limit.SEARCHES_AT_ONCE.property: limit}, [])
                threading.Event().wait(BELIEVED_S + 1)
            with ask.everything(bad, greedy) as done:
                waits = ask.others(others, seconds)
            told = {
                "greedy_at_once": greedy,
                "limit": limit,
                "searches": len(waits),
                **_quantiles("search", sorted(waits)),
            }
            told |= {"greedy_searches": len(done), "greedy_refused": sum(code == 429 for code in done)}
            print(orjson.dumps(told | {"rows": sum(each.rows for each in loaded)}).decode(), flush=True)


class _Asker:
    """Asks the API about the whole week."""

    def __init__(self, uri: str, start: datetime) -> None:
        self._http = httpx.Client(base_url=uri, timeout=300.0, trust_env=False)
        self._times = {"from": start.isoformat(), "to": (start + timedelta(hours=HOURS)).isoformat()}

    def _search(self, tenant: str, query: str) -> int:
        body = {"tenant": tenant, "stream": "logs", **self._times, "query": query, "limit": 100}
        return self._http.post("/v1/search", json=body).status_code

    def others(self, names: list[str], seconds: float) -> list[float]:
        """Seconds of each search of tenants who ask now and then, one after the other each."""
        until_s = time.monotonic() + seconds

        def work(name: str) -> list[float]:
            draw, waits = random.Random(name), list[float]()
            while time.monotonic() < until_s:
                query = draw.choice(("", "deadlock", "refused", "4711"))
                waits.append(_timed(partial(self._search, name, query)))
                threading.Event().wait(0.2)
            return waits

        with ThreadPoolExecutor(len(names)) as pool:
            return [wait for waits in pool.map(work, names) for wait in waits]

    @contextmanager
    def everything(self, name: str, at_once: int) -> Iterator[list[int]]:
        """Meanwhile so many threads of a tenant search all of it, again and again; the status of each."""
        ended, codes = threading.Event(), list[int]()

        def work() -> None:
            while not ended.is_set():
                codes.append(self._search(name, EVERYTHING))
                ended.wait(0.05 if codes[-1] == httpx.codes.TOO_MANY_REQUESTS else 0)

        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        try:
            yield codes
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@contextmanager
def _stack(*services: str) -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start(*services)
        yield stack


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _cpu_s(pid: int) -> float:
    """Seconds that a process and its children have used."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _quantiles(name: str, waits: list[float]) -> dict[str, float]:
    if not waits:
        return {}
    return {
        f"{name}_p50_s": round(waits[len(waits) // 2], 3),
        f"{name}_p99_s": round(waits[len(waits) * 99 // 100], 3),
    }


if __name__ == "__main__":
    app()
