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
from collections.abc import Callable, Iterator, Sequence
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
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError
from lake.limits import Limit
from lake.retention_policies import BELIEVED_S
from tests.benchmarks.flood import FLOOD, FLUSH_S, TICK_S, Sent, node_on, rows_of, waits_of
from tests.benchmarks.ingest import TOPIC
from tests.benchmarks.log_volume import load

SEARCHES = 200
NEW, NEW_EVERY_S, WARM_S = "new", 3.0, 5
HOURS = 7 * 24
EVERYTHING = "*q*x*z*"  # no whole word that a filter of files could tell
app = typer.Typer(add_completion=False)


class ToManyStreams(Sent):
    """The tenant `FLOOD` has so many streams, and sends to each in turn."""

    def __init__(self, bootstrap: str, streams: int) -> None:
        super().__init__(bootstrap)
        self._streams = itertools.cycle(range(streams))

    def begin(self, streams: int, ended: threading.Event) -> None:
        """Sends a record to each stream, as fast as the broker takes them."""
        at = 0
        while at < streams and not ended.is_set():
            headers = [("tenant", FLOOD.encode()), ("stream", b"s%06d" % at)]
            try:
                self._producer.produce(TOPIC, b'{"message":"first"}', headers=headers)
                at += 1
            except BufferError:  # more wait than the client takes
                self._producer.poll(TICK_S)

    def newcomers(self, ended: threading.Event) -> None:
        """Sends the first record of a new tenant, again and again."""
        while not ended.wait(NEW_EVERY_S):
            self._send(f"{NEW}{len(self.at):03}", b'{"message":"first"}')

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
    limit: Annotated[int, typer.Option(help="how many of them it may have; 0: any number")] = 0,
    per_minute: Annotated[int, typer.Option(help="tables that the node creates; its default")] = 10_000,
    active: Annotated[int, typer.Option(help="records a second that it sends, to its streams in turn")] = 100,
    tenants: Annotated[int, typer.Option(help="beside it")] = 20,
    each: Annotated[int, typer.Option(help="records a second of each of them")] = 50,
    seconds: Annotated[int, typer.Option(help="while its streams begin, and when they have begun")] = 60,
    all_s: Annotated[float, typer.Option(help="for which its streams are waited for")] = 600.0,
    without: Annotated[bool, typer.Option(help="the others alone, first")] = True,
) -> None:
    """Freshness and searches of others, and the first records of new tenants, beside a tenant with many
    streams: while these begin, all at once, and when they have begun; and lists of the catalog."""
    os.environ["FIRN_INGEST_TABLES__NEW_PER_MINUTE"] = str(per_minute)
    for many in (0, count) if without else (count,):
        with (
            _stack("kafka", "catalog", "query") as stack,
            closing(CatalogClient(stack.address("catalog"))) as catalog,
        ):
            run = _BesideStreams(stack, catalog, many, limit, tenants, each, seconds)
            for told in run.measured(active if many else 0, all_s):
                print(orjson.dumps({"streams": many, "limit": limit, **told}).decode(), flush=True)


class _BesideStreams:
    """The others beside a tenant with so many streams, on a stack of their own."""

    def __init__(
        self,
        stack: Stack,
        catalog: CatalogClient,
        streams: int,
        limit: int,
        tenants: int,
        each: int,
        seconds: int,
    ) -> None:
        self._stack, self._catalog, self._streams = stack, catalog, streams
        self._tenants, self._each, self._seconds = tenants, each, seconds
        self._room = min(streams, limit or streams)
        admin = AdminClient({"bootstrap.servers": stack.address("kafka")})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result()
        catalog.create_namespace(FLOOD, {Limit.STREAMS.property: str(limit)} if limit else {})
        self._sent = ToManyStreams(stack.address("kafka"), max(1, self._room))

    def measured(self, active: int, all_s: float) -> Iterator[dict[str, Any]]:
        """What there is to print: while the streams begin, then when all have begun that may."""
        node = node_on(self._stack)
        try:
            self._sent.run(self._tenants, self._each, 0, WARM_S)
            began_s = time.monotonic()
            yield {"when": "beginning", **self._beside(node.pid, self._streams, 0)}
            while self._there() < self._room:
                if time.monotonic() - began_s > all_s:
                    return
                threading.Event().wait(20 * TICK_S)
            took_s = round(time.monotonic() - began_s, 1)
            yield {"when": "begun", "begun_within_s": took_s, **self._beside(node.pid, 0, active)}
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(600)

    def _beside(self, pid: int, begin: int, active: int) -> dict[str, Any]:
        """While so many streams begin, or have so many records a second."""
        since_s, before_s, ended = time.time(), _cpu_s(pid), threading.Event()
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(self._sent.begin, begin, ended), pool.submit(self._sent.newcomers, ended)]
            self._sent.run(self._tenants, self._each, active, self._seconds)
            ended.set()
            for each in work:
                each.result()
        threading.Event().wait(5 * FLUSH_S)
        cpu_s = _cpu_s(pid) - before_s
        calm = [name for name in self._sent.at if not name.startswith(NEW)]
        new = [
            name for name in self._sent.at if name.startswith(NEW) and self._sent.at[name][0][1] >= since_s
        ]
        waits = sorted(wait for name in calm for wait in self._waits(name, since_s))
        lists_s = [_timed(lambda: list(self._catalog.tables(FLOOD))) for _ in range(3)]
        return {
            "records": len(waits),
            **_quantiles("fresh", waits),
            **self._rows(calm),
            "new_tenants": len(new),
            "new_tenants_s": sorted(round(wait, 1) for name in new for wait in self._waits(name, since_s)),
            "node_cpu_s": round(cpu_s, 1),
            "streams_there": self._there(),
            **self._searches(calm),
            "list_s": [round(took_s, 2) for took_s in lists_s],
        }

    def _waits(self, tenant: str, since_s: float) -> list[float]:
        """Of its records that were sent since then, as far as they are in its table."""
        try:
            waits = waits_of(self._catalog, self._sent, tenant)
        except NotFoundError:  # not even the first
            return []
        return [
            wait for (_, at_s), wait in zip(self._sent.at[tenant], waits, strict=False) if at_s >= since_s
        ]

    def _rows(self, tenants: Sequence[str]) -> dict[str, int]:
        """Records that are not in their tables, and rows that are there more than once."""
        more = [rows_of(self._catalog, name) - len(self._sent.at[name]) for name in tenants]
        return {"lost": -sum(min(0, each) for each in more), "doubled": sum(max(0, each) for each in more)}

    def _searches(self, tenants: Sequence[str]) -> dict[str, float]:
        with httpx.Client(base_url=self._stack.address("query"), timeout=60.0, trust_env=False) as api:
            took_s = (_page(api, tenants[at % len(tenants)]) for at in range(SEARCHES))
            return _quantiles("search", sorted(took_s))

    def _there(self) -> int:
        return sum(1 for _ in self._catalog.tables(FLOOD))


def _page(api: httpx.Client, tenant: str) -> float:
    body = {"tenant": tenant, "stream": "logs", "from": "now-15m", "to": "now+1m", "limit": 100}
    return _timed(lambda: api.post("/v1/search", json=body).raise_for_status())


@app.command()
def search(
    rows: Annotated[int, typer.Option(help="of all tenants together, by Zipf")] = 5_000_000,
    tenants: Annotated[int, typer.Option(help="the largest of which searches everything")] = 6,
    at_once: Annotated[int, typer.Option(help="of its searches")] = 8,
    seconds: Annotated[int, typer.Option(help="for how long each time")] = 60,
    rounds: Annotated[int, typer.Option(help="without it and beside it, in turn")] = 2,
    limited: Annotated[bool, typer.Option(help="with a limit of its searches at once, too")] = True,
) -> None:
    """Searches of others, alone and beside those of a tenant that reads all its files all the time; then with
    a limit of one search at once for that."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS + 1)
    with _stack("catalog", "query") as stack, closing(CatalogClient(stack.address("catalog"))) as catalog:
        loaded = list(load(catalog, rows=rows, tenants=tenants, start=start, hours=HOURS))
        loaded.sort(key=lambda each: -each.rows)
        bad, *others = [each.table.tenant.name for each in loaded]
        namespace = loaded[0].table.tenant.namespace
        ask = _Asker(stack.address("query"), start)
        ask.others(others, 10.0)  # warm
        last = ((at_once, "1"),) if limited else ()
        for greedy, limit in (*((0, ""), (at_once, "")) * rounds, *last):
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
