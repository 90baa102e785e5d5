"""What is asked of the catalog of a fleet: loads, commits, lists; and the pages of the browser, by the code
that answers them."""

import base64
import http.client
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import orjson

from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import SystemClock
from lake.extras_client import TENANTS_PATH
from lake.tenant import TenantId
from query.model.table_view import every_stream, tenants
from query.tables.reached_tenants import ReachedTenants
from tests.benchmarks.fleet.own_tables import OwnTables
from tests.benchmarks.fleet.shape import Fleet, tenant

T = TypeVar("T")
PAGE = 1_000
NAMES_PAGE = 10_000  # as the browser's pages ask for them
LOADS, COMMITS, PAGES, TENANTS = 2_000, 400, 21, 100
CLIENTS = 8


class Timed:
    """Milliseconds of things that were done one after the other."""

    def __init__(self) -> None:
        self.ms: list[float] = []

    def __call__(self, work: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        found = work()
        self.ms.append((time.perf_counter() - began_s) * 1_000)
        return found

    def figures(self, name: str) -> dict[str, float]:
        ordered = sorted(self.ms)
        return {
            f"{name}_ms": round(statistics.median(ordered), 3),
            f"{name}_p99_ms": round(ordered[int(len(ordered) * 0.99)], 3),
        }


class Connection:
    """The thinnest client there is: what is measured is the catalog."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def get(self, path: str) -> bytes:
        self._http.request("GET", path)
        return self._read(path)

    def post(self, path: str, body: Any) -> bytes:
        self._http.request("POST", path, orjson.dumps(body), {"Content-Type": "application/json"})
        return self._read(path)

    def _read(self, path: str) -> bytes:
        answer = self._http.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {data[:300]!r}")
        return data


def loads(connection: Connection, names: Sequence[TableName]) -> dict[str, float]:
    """Tables at random, as they come from the storage or from the cache."""
    timed, draw = Timed(), random.Random(3)
    for _ in range(LOADS):
        name = draw.choice(names)
        timed(lambda path=f"/v1/namespaces/{name.namespace}/tables/{name.name}": connection.get(path))
    return timed.figures("load")


def commits(own: OwnTables, numbers: Sequence[int]) -> dict[str, float]:
    """One commit after the other, each of another table, and those of eight clients at once."""
    one = Timed()
    found = [(own.state(number), number) for number in numbers]
    prepared = [own.append_one(state) for state, _ in found if state is not None]
    for each in prepared[:COMMITS]:
        own.storage.write_all(each.files)
        one(lambda request=each.request: own.catalog.commit_all([request], timeout_s=60.0))
    return one.figures("commit") | {"commits_per_s_of_8": round(together(own, prepared[COMMITS:]), 1)}


def together(own: OwnTables, prepared: Sequence[Any]) -> float:
    """Commits a second that so many clients get through, each with tables of its own."""
    own.storage.write_all([file for each in prepared for file in each.files])

    def work(part: Sequence[Any]) -> None:
        for each in part:
            (result,) = own.catalog.commit_all([each.request], timeout_s=60.0)
            if result.status is not CommitStatus.COMMITTED:
                raise RuntimeError(str(result))

    began_s = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for one in [pool.submit(work, prepared[at::CLIENTS]) for at in range(CLIENTS)]:
            one.result()
    return len(prepared) / (time.perf_counter() - began_s)


def lists(connection: Connection, fleet: Fleet) -> dict[str, float]:
    """Pages of 1,000: tables of the tenant with most, namespaces, tenants with their numbers of tables; the
    first, and others in the middle."""
    draw = random.Random(4)
    figures: dict[str, float] = {}
    for name, path, last in (
        ("list_tables_page", f"/v1/namespaces/{tenant(0)}/tables", fleet.of_large_tenant),
        ("list_namespaces_page", "/v1/namespaces", fleet.tenants),
        ("list_tenants_page", TENANTS_PATH, fleet.tenants),
    ):
        timed = Timed()
        for _ in range(PAGES):
            number = draw.randrange(last)
            after = f"s{number}" if name == "list_tables_page" else tenant(number)
            page = f"{path}?pageSize={PAGE}&pageToken={_token(after)}"
            timed(lambda page=page: connection.get(page))
        figures |= timed.figures(name)
    slowest = max(value for name, value in figures.items() if name.endswith("page_ms"))
    return figures | {"list_page_ms": slowest}


def _token(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def pages(catalog: CatalogClient, own: Sequence[TableName]) -> dict[str, float]:
    """What the search API does for its pages: the names of all tenants by pages of 10,000, and a page of
    tenants with all that is known of their streams (of those here that have metadata of their own)."""
    reached, first, rest, streams = ReachedTenants(SystemClock()), Timed(), Timed(), Timed()

    def page(after: str) -> tuple[Sequence[TenantId], str | None]:
        return reached.of(None, lambda: tenants(catalog), anew=not after).page(after, NAMES_PAGE)

    some, after = first(lambda: page(""))
    names = len(some)
    while after is not None:
        some, after = rest(lambda after=after: page(after))
        names += len(some)
    namespaces = dict.fromkeys(name.namespace for name in own if name.namespace != tenant(0))
    for namespace in islice(namespaces, TENANTS):
        streams(lambda namespace=namespace: list(every_stream(catalog, TenantId(namespace))))
    return {
        "names_first_page_s": round(first.ms[0] / 1_000, 3),
        "names_next_page_ms": round(max(rest.ms, default=0.0), 3),
        "tenant_names": names,
        "streams_of_tenant_ms": round(statistics.median(streams.ms), 3),
    }
