"""`python -m tests.benchmarks.search --json`: how fast searches are, over 20 million rows of 50 tenants in 7
days of generated logs, and over 2 million access-log records of one tenant's week (`week.py`).

`--against victorialogs PATH` loads that week into a VictoriaLogs (a binary that is given) as well, asks it
the same, and prints the medians side by side. `--rows 0`: the week alone.

Each kind of question is asked of the API again and again, of tenants in turn, each time another range or
word. Beside it, the same SQL is sent straight to the engine: to Trino by its own client, to DuckDB over
exactly the same files, so that the difference is Firn's own share. The last line of the output is one JSON
object with --json; seconds, warm.
"""

import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import cycle, product
from pathlib import Path
from typing import Annotated, Any

import duckdb
import httpx
import orjson
import trino
import typer

from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.settings import QuerySettings
from lake.storage import local_path, open_storage
from query.executors.embedded import EmbeddedExecutor, sql_over
from query.executors.executor import Source
from query.executors.trino import TrinoExecutor
from query.files.file_index import FileIndex
from query.model.table_view import streams
from query.model.table_view import tenants as known_tenants
from query.search.file_planner import slices
from query.search.lag import UnknownLag
from query.search.search import Prepared, Searcher, SearchRequest, select_rows
from tests.benchmarks.log_volume import Loaded, load
from tests.benchmarks.victorialogs import victorialogs
from tests.benchmarks.week import TENANT, FirnStore, as_table, json_lines, load_week
from tests.benchmarks.week import measure as measure_week

HOURS = 7 * 24
PAGE_ROWS = 100
LARGEST = 10
WARM_UP = 2 * LARGEST  # questions of each kind
NEEDLES = (
    "deadlock",
    "05",
    "4711",
    "replica",
    "SocketTimeoutException",
    "denied",
    "refused",
    "404",
    "root",
    "panic",
)


@dataclass
class Bench:
    """The API, both engines as they are without it, and the tenants by size."""

    api: httpx.Client
    searcher: Searcher
    duck: duckdb.DuckDBPyConnection
    trino_address: tuple[str, int]
    tables: list[Loaded]
    start: datetime
    random: random.Random
    opened_files: int = 0  # for histograms without a filter

    @cached_property
    def turns(self) -> Iterator[tuple[Loaded, timedelta]]:
        """Each of the ten largest with a day and with a week, again and again."""
        return cycle(product(self.tables[:LARGEST], (timedelta(days=1), timedelta(hours=HOURS))))

    @property
    def end(self) -> datetime:
        return self.start + timedelta(hours=HOURS)

    def tenant(self) -> Loaded:
        """One of the ten largest."""
        return self.random.choice(self.tables[:LARGEST])

    def ask(self, path: str, loaded: Loaded, length: timedelta, **body: Any) -> tuple[float, dict[str, Any]]:
        """Seconds of one request, and its answer."""
        times = {"from": (self.end - length).isoformat(), "to": self.end.isoformat()}
        began_s = time.perf_counter()
        answer = self.api.post(f"/v1/{path}", json={"tenant": loaded.table.tenant.name, **times, **body})
        took_s = time.perf_counter() - began_s
        answer.raise_for_status()
        return took_s, answer.json()

    def needle(self, length: timedelta) -> float:
        """Seconds of the search for a rare word in any field."""
        return self.ask("search", self.tenant(), length, limit=PAGE_ROWS, query=self.random.choice(NEEDLES))[
            0
        ]

    def page(self) -> float:
        """Seconds of the newest rows of a day or a week."""
        return self.ask("search", *next(self.turns), limit=PAGE_ROWS)[0]

    def histogram(self) -> float:
        """Seconds of a histogram without a filter."""
        took_s, answer = self.ask("histogram", *next(self.turns), by="level")
        self.opened_files += answer["scanned"]["files"]
        return took_s

    def search_request(self, loaded: Loaded, length: timedelta, query: str = "") -> Prepared:
        return self.searcher.prepare(SearchRequest(loaded.table, self.end - length, self.end, query))

    def page_by_duckdb(self, prepared: Prepared) -> float:
        """Seconds of a page's SQL over the same files, slice by slice, straight in DuckDB."""
        names, took_s, left = [c.name for c in prepared.view.schema.columns], 0.0, PAGE_ROWS + 1
        for piece in slices(prepared.plan):
            select = select_rows(
                names, prepared.condition_in(piece.start, piece.end), left, newest_first=True
            )
            sql = sql_over([str(local_path(file.uri)) for file in piece.files], prepared.view.schema, select)
            began_s = time.perf_counter()
            rows = self.duck.execute(sql).fetchall()
            took_s += time.perf_counter() - began_s
            left -= len(rows)
            if left <= 0:
                break
        return took_s

    def page_by_trino(self, prepared: Prepared, *, one_piece: bool) -> float:
        """Seconds of a page's SQL by Trino's own client: slice by slice as the API asks it, or ORDER BY ...
        LIMIT over everything at once."""
        names = [c.name for c in prepared.view.schema.columns]
        engine = TrinoExecutor(self.searcher.settings)
        pieces = (
            [(prepared.plan.start, prepared.plan.end)]
            if one_piece
            else [(piece.start, piece.end) for piece in slices(prepared.plan)]
        )
        took_s, left = 0.0, PAGE_ROWS + 1
        for start, end in pieces:
            sql = engine.sql(
                Source(prepared.view, ()),
                select_rows(names, prepared.condition_in(start, end), left, newest_first=True),
            )
            host, port = self.trino_address
            began_s = time.perf_counter()
            connection: Any = trino.dbapi.Connection(
                host=host, port=port, user="bench", catalog="lake", http_scheme="http"
            )
            with closing(connection):
                rows = connection.cursor().execute(sql).fetchall()
            took_s += time.perf_counter() - began_s
            left -= len(rows)
            if left <= 0:
                break
        return took_s


def measure(bench: Bench, times: int, say: Callable[[str], None]) -> dict[str, float]:
    """Every kind of question, `times` times, after some that warm up."""
    day, week = timedelta(days=1), timedelta(hours=HOURS)
    kinds: dict[str, Callable[[], float]] = {
        "page": bench.page,
        "page_filtered": lambda: bench.ask(
            "search",
            bench.tenant(),
            week,
            limit=PAGE_ROWS,
            query="message:4?4 OR status:404 OR severity:error",
        )[0],
        "histogram": bench.histogram,
        "histogram_filtered": lambda: bench.ask(
            "histogram", bench.tenant(), week, by="level", query="message:timed"
        )[0],
        "fields": lambda: bench.ask("fields", bench.tenant(), week)[0],
        "values": lambda: bench.ask("values", bench.tenant(), day, field="severity")[0],
        "needle_hour": lambda: bench.needle(timedelta(hours=1)),
        "needle_day": lambda: bench.needle(day),
        "needle_week": lambda: bench.needle(week),
    }
    found: dict[str, float] = {}
    for name, once in kinds.items():
        for _ in range(WARM_UP):
            once()
        bench.opened_files = 0
        took = [once() for _ in range(times)]
        if name == "histogram":
            found["histogram_opened_files"] = bench.opened_files
        found[f"{name}_p50_s"], found[f"{name}_p95_s"] = _p50(took), _p95(took)
        say(f"{name:20} p50 {found[f'{name}_p50_s']:.4f} s   p95 {found[f'{name}_p95_s']:.4f} s")
    return found


def compare(bench: Bench, times: int, say: Callable[[str], None]) -> dict[str, float]:
    """Firn's share: the API's time beyond that of the same SQL straight in the engine; and what slices are
    worth."""
    week, found = timedelta(hours=HOURS), dict[str, float]()
    beyond, beyond_trino, shares_of_trino, ratios = list[float](), list[float](), list[float](), list[float]()
    for _ in range(times):
        for query in ("", "message:timed", "severity:error"):
            loaded = bench.tenant()
            prepared = bench.search_request(loaded, week, query)
            straight_s = min(bench.page_by_duckdb(prepared) for _ in range(2))
            firn_s = min(bench.ask("search", loaded, week, limit=PAGE_ROWS, query=query)[0] for _ in range(2))
            beyond.append((firn_s - straight_s) * 1_000)
    for _ in range(max(3, times // 5)):
        loaded = bench.tables[0]
        prepared = bench.search_request(loaded, week)
        bench.page_by_trino(prepared, one_piece=False)
        straight_s = min(bench.page_by_trino(prepared, one_piece=False) for _ in range(2))
        firn_s = min(bench.ask("search", loaded, week, limit=PAGE_ROWS, engine="trino")[0] for _ in range(2))
        beyond_trino.append((firn_s - straight_s) * 1_000)
        shares_of_trino.append(firn_s / straight_s - 1)
        whole_s = bench.page_by_trino(prepared, one_piece=True)
        ratios.append(whole_s / bench.ask("search", loaded, week, limit=PAGE_ROWS)[0])
        found["trino_page_s"], found["trino_one_piece_s"] = straight_s, whole_s
    found |= {"overhead_ms_p50": _p50(beyond), "overhead_ms_p95": _p95(beyond)}
    found |= {
        "overhead_trino_ms_p50": _p50(beyond_trino),
        "overhead_trino_share_p50": _p50(shares_of_trino),
        "first_page_speedup": _p50(ratios),
    }
    for name, value in found.items():
        say(f"{name:24} {value:.3f}")
    return found


def _p50(values: list[float]) -> float:
    return statistics.median(values)


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.95))]


def run(
    rows: Annotated[int, typer.Option(help="rows in all")] = 20_000_000,
    tenants: Annotated[int, typer.Option(help="tenants")] = 50,
    times: Annotated[int, typer.Option(help="questions of each kind")] = 40,
    week_rows: Annotated[int, typer.Option(help="records of the week of one tenant")] = 2_000_000,
    against: Annotated[
        tuple[str, Path] | None,
        typer.Option(help="another store, and its binary: victorialogs PATH", metavar="STORE PATH"),
    ] = None,
    state: Annotated[Path | None, typer.Option(help="folder of the stack; kept where it is given")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object as the last line")] = False,
) -> None:
    """Loads, asks, compares."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")  # Trino as people run it

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as scratch, Stack(state or Path(scratch), tied=True) as stack:
        stack.start("catalog", "trino", "query")
        start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS + 1)
        began_s = time.monotonic()
        result: dict[str, Any] = {"cores": os.cpu_count(), "machine": platform.machine()}
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            before = [view for tenant in known_tenants(catalog) for view in streams(catalog, tenant)]
            if before:  # a state that was kept
                start = min(view.committed_at for view in before if view.committed_at).replace(
                    minute=0, second=0, microsecond=0
                ) - timedelta(hours=HOURS)
            if week_rows:
                result |= _week(stack, catalog, week_rows, start, times, against, say)
            tables = [
                Loaded(view.id, view.totals.rows, view.totals.files, view.totals.size_bytes)
                for view in before
                if view.id.tenant.name != TENANT
            ]
            if rows and not tables:
                tables = list(load(catalog, rows=rows, tenants=tenants, start=start, hours=HOURS))
            if rows:
                tables.sort(key=lambda loaded: -loaded.rows)
                size = {
                    "rows": sum(t.rows for t in tables),
                    "files": sum(t.files for t in tables),
                    "bytes": sum(t.size_bytes for t in tables),
                }
                say(f"loaded {size} in {time.monotonic() - began_s:.0f} s")
                result |= {**size, "tenants": tenants, **_measured(stack, catalog, tables, start, times, say)}
    if as_json:
        print(
            orjson.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}).decode()
        )


def _week(
    stack: Stack,
    catalog: CatalogClient,
    rows: int,
    start: datetime,
    times: int,
    against: tuple[str, Path] | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The week of one tenant, on both engines and on the other store."""
    began_s = time.monotonic()
    loaded = load_week(catalog, rows=rows, start=start)
    say(f"loaded a week of {loaded.rows:,} records in {time.monotonic() - began_s:.0f} s")
    found: dict[str, Any] = {"week_rows": loaded.rows, "week_bytes": loaded.size_bytes}
    with httpx.Client(base_url=stack.address("query"), timeout=300.0, trust_env=False) as api:
        columns, answers = [], []
        for engine, suffix in (("auto", ""), ("trino", "_trino")):
            medians, answered = measure_week(FirnStore(api, engine), start, times, suffix, say)
            columns.append((f"Firn {engine}", {k.replace(suffix, ""): v for k, v in medians.items()}))
            answers.append(answered)
            found |= medians
    if against is not None:
        name, binary = against
        if name != "victorialogs":
            raise typer.BadParameter(f"{name}: only victorialogs is known")
        with tempfile.TemporaryDirectory() as scratch, victorialogs(binary, Path(scratch)) as store:
            store.load(json_lines(catalog, Path(scratch) / "lines.json"))
            medians, answered = measure_week(store, start, times, "_victorialogs", say)
            columns.append((name, {k.replace("_victorialogs", ""): v for k, v in medians.items()}))
            answers.append(answered)
            found |= {**medians, "week_bytes_victorialogs": store.size_bytes}
    unlike = {name for each in answers for name in each if each[name] != answers[0][name]}
    if unlike:
        raise RuntimeError(f"the stores answer differently: {[{n: a[n] for n in unlike} for a in answers]}")
    say(as_table(columns))
    return found


def _measured(
    stack: Stack,
    catalog: CatalogClient,
    tables: list[Loaded],
    start: datetime,
    times: int,
    say: Callable[[str], None],
) -> dict[str, float]:
    settings = QuerySettings.load(trino__uri=stack.address("trino"), state=str(stack.folder / "bench"))
    storage = open_storage()
    roots = [local_path(catalog.warehouse)] if catalog.warehouse else []
    embedded = EmbeddedExecutor(
        settings, lambda uris, _: [str(local_path(uri)) for uri in uris], lambda: roots
    )
    searcher = Searcher(
        catalog,
        FileIndex(storage),
        (embedded, TrinoExecutor(settings)),
        settings,
        UnknownLag(),
        SystemClock(),
    )
    duck = duckdb.connect(":memory:")
    duck.execute(
        "SET TimeZone = 'UTC'; SET parquet_metadata_cache = true; SET preserve_insertion_order = false"
    )
    with httpx.Client(base_url=stack.address("query"), timeout=300.0, trust_env=False) as api:
        bench = Bench(api, searcher, duck, host_port(stack.address("trino")), tables, start, random.Random(1))
        return {**measure(bench, times, say), **compare(bench, times, say)}


if __name__ == "__main__":
    typer.run(run)
