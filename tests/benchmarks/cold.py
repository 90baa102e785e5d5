"""`python -m tests.benchmarks.cold --tenants 1000 --days 365 --json`: a year of tenants with little traffic,
hour by hour, and what of it is left once the hours are cold.

A small tenant writes one file of some rows in every hour. Each of `--maintained` tenants lives its year on a
simulated clock: a month's hours are written by ingestion's writers and committed, then maintenance runs its
rounds at the end of the month and when the month is cold. All other tenants stand in the catalog's index with
the partitions they would have by then, so that the question for cold hours is asked over all of them.

Merges run in this process instead of on Spark: the same plan, merge, proofs and commits, without its start.
"""

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import typer

from infra.demo.profiles import EVENT_SHAPES
from infra.local.supervisor import Stack
from ingest.write.writer import write_many_hours
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.clock import SystemClock, epoch_ms, epoch_us
from lake.commit import TableState, creation_request, load_state, new_table_state, prepare_append
from lake.errors import UnavailableError
from lake.log_schema import SYSTEM_COLUMNS, LogSchema
from lake.marks import Marks, TopicPartition
from lake.settings import OptimizeSettings, QuerySettings
from lake.span import Span, Unit
from lake.storage import AnyStorage, local_path, open_storage
from lake.table_layout import US_PER_HOUR, partition_path
from lake.tenant import TableId, TenantId
from optimize.cold_hours import ColdHours
from optimize.table_view import load_view
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.model.cancellation import Run
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.log_volume import sample_of
from tests.optimize.support.maintained import FixedClock, maintenance

START = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SHAPES = tuple(EVENT_SHAPES)
RARE = "x7k2q9needle"  # one row of the year has it
SEARCH_S = 600.0
_UTC = pa.timestamp("us", "UTC")
Say = Callable[[str], None]


@dataclass
class Tenant:
    """A tenant that is really there. `offset`: how many rows it has written."""

    table: TableId
    state: TableState
    sample: pa.Table
    schema: LogSchema
    random: np.random.Generator
    offset: int = 0

    @property
    def name(self) -> TableName:
        return self.state.name


@dataclass
class Year:
    """What is measured on the way. `files_at_end`: live ones when the last hour was written, with a week of
    hours and some days that are not cold."""

    maintenance_cpu_s: float = 0.0
    files_at_end: int = 0
    hour_files: int = 0
    hour_bytes: int = 0


def new_tenant(catalog: CatalogClient, at: int, warehouse: str) -> Tenant:
    """A tenant with a table of one of the demo's shapes; the table comes with its first commit."""
    table = TableId(TenantId(f"cold-{at:04d}"), "logs")
    name = TableName(table.tenant.namespace, table.table)
    state = new_table_state(name, table.tenant.name, "logs", warehouse)
    sample = sample_of(SHAPES[at % len(SHAPES)], START, at % len(SHAPES))
    fields = [name for name in sample.column_names if name not in SYSTEM_COLUMNS]
    schema = state.schema.with_strings(
        {name: (state.last_column_id + at, f"/{name}") for at, name in enumerate(fields, 1)}, 1
    )
    catalog.create_namespace(table.tenant.namespace, {})
    return Tenant(table, state, sample, schema, np.random.default_rng(at))


def write_days(
    catalog: CatalogClient, storage: AnyStorage, tenant: Tenant, first: datetime, days: int, rows: int
) -> tuple[int, int]:
    """Every hour of these days as a file of `rows` rows, in one commit; how many files and bytes."""
    hour, hours = epoch_us(first) // US_PER_HOUR, days * 24
    columns = _rows(tenant, hour, hours, rows, needle=tenant.offset == 0)
    found = load_state(catalog, storage, tenant.name)
    state = tenant.state if found is None else found
    schema = tenant.schema if found is None else found.schema
    files = write_many_hours(storage, state.location, columns, schema)
    tenant.offset += len(columns)
    marks = Marks({TopicPartition("bench-topic", 0): tenant.offset})
    prepared = prepare_append(state, files, schema, marks, epoch_ms(first + days * DAY))
    storage.write_all(list(prepared.files))
    (result,) = catalog.commit_all([prepared.request])
    if result.status is not CommitStatus.COMMITTED:
        raise UnavailableError(f"{tenant.name}: {result}")
    return len(files), sum(file.size_bytes for file in files)


def _rows(tenant: Tenant, hour: int, hours: int, rows: int, *, needle: bool) -> pa.Table:
    """Rows of consecutive hours, drawn from the sample; with `needle` the first of all has the rare word."""
    count = hours * rows
    drawn = tenant.sample.take(pa.array(tenant.random.integers(0, len(tenant.sample), count)))
    within = np.sort(tenant.random.integers(0, US_PER_HOUR, (hours, rows)), axis=1)
    starts = (hour + np.arange(hours))[:, None] * US_PER_HOUR
    times = pa.array((starts + within).reshape(-1), pa.int64()).cast(_UTC)
    offsets = pa.array(np.arange(tenant.offset, tenant.offset + count), pa.int64())
    text = next(name for name in drawn.column_names if name not in SYSTEM_COLUMNS)
    texts = drawn.column(text).to_pylist()
    if needle:
        texts[0] = f"{texts[0]} {RARE}"
    replaced: dict[str, Any] = {
        "timestamp": times,
        "observed_timestamp": times,
        text: pa.array(texts, pa.string()),
        "_offset": offsets,
        "_topic": pa.array(["bench"] * count),
        "_topic_id": pa.array(["bench-topic"] * count),
    }
    return pa.table({name: replaced.get(name, drawn.column(name)) for name in drawn.column_names})


def live(bench: "Bench") -> tuple[int, int]:
    """Live data files of the maintained tenants, and their bytes."""
    totals = [_totals(bench, tenant) for tenant in bench.tenants]
    return sum(files for files, _ in totals), sum(size for _, size in totals)


def _totals(bench: "Bench", tenant: Tenant) -> tuple[int, int]:
    view = load_view(bench.catalog, bench.storage, tenant.name)
    if view is None:
        raise UnavailableError(f"{tenant.name} is gone")
    files = [file for partition in view.partitions().values() for file in partition.files]
    return len(files), sum(file.size_bytes for file in files)


@dataclass
class Bench:
    """The catalog, the storage and the tenants."""

    stack: Stack
    catalog: CatalogClient
    storage: AnyStorage
    tenants: list[Tenant]
    days: int
    rows: int
    say: Say

    @property
    def end(self) -> datetime:
        return START + self.days * DAY

    def round(self, now: datetime, year: Year) -> None:
        """One round at that time over the tenants that are there; files that nobody reaches any more are
        deleted in it. Raises UnavailableError where a table failed."""
        process, began = psutil.Process(), psutil.Process().cpu_times()
        report = maintenance(
            self.catalog,
            [tenant.name for tenant in self.tenants],
            clock=FixedClock(now),
            retention__reader_grace_s=0,
            retention__storage_requests_per_s_max=1e6,
            snapshots__age_max_s=3_600,
            snapshots__count_max=2,
        ).run()
        spent = process.cpu_times()
        year.maintenance_cpu_s += spent.user + spent.system - began.user - began.system
        if report.failures:
            raise UnavailableError(f"maintenance failed: {next(iter(report.failures.items()))}")

    def objects(self) -> int:
        """Everything that lies below the locations of the maintained tables."""
        return sum(len(list(self.storage.list(tenant.state.location))) for tenant in self.tenants)

    def questions(self, times: int) -> dict[str, float]:
        """What a search over the whole year costs: its planning from nothing, and finding a rare word."""
        planning, needle = list[float](), list[float]()
        for tenant in self.tenants:
            searcher = self._searcher()
            request = SearchRequest(tenant.table, START, self.end + 60 * DAY, RARE)
            began_s = time.perf_counter()
            searcher.prepare(request)
            planning.append((time.perf_counter() - began_s) * 1_000)
            for _ in range(times):
                began_s = time.perf_counter()
                page = searcher.page(request, Run(SEARCH_S), limit=100)
                needle.append(time.perf_counter() - began_s)
                if len(page.rows) != 1:
                    raise UnavailableError(f"{tenant.name}: the rare word is in {page.rows}; {page.basis}")
        return {"planning_ms": statistics.median(planning), "year_needle_p50_s": statistics.median(needle)}

    def _searcher(self) -> Searcher:
        settings = QuerySettings.load(state=str(self.stack.folder / "bench"))
        roots = [local_path(self.catalog.warehouse)] if self.catalog.warehouse else []
        embedded = EmbeddedExecutor(
            settings, lambda uris, _: [str(local_path(uri)) for uri in uris], lambda: roots
        )
        return Searcher(
            self.catalog, FileIndex(self.storage), (embedded,), settings, UnknownLag(), SystemClock()
        )

    # ---- tenants that stand in the catalog's index alone

    def stand_in(self, count: int, warehouse: str) -> None:
        """Creates tables without files."""
        for at in range(count):
            name = TableName(TenantId(f"index{at:04d}").namespace, "logs")
            self.catalog.create_namespace(name.namespace, {})
            state = new_table_state(name, f"index{at:04d}", "logs", warehouse)
            self.catalog.create_table(name, creation_request(state))

    def index(self, paths: list[str]) -> None:
        """Gives each of these tables the partitions, of one small file each, in the catalog's database."""
        (file,) = self.stack.folder.rglob("catalog.db")
        with closing(sqlite3.connect(file, timeout=60)) as database:
            ids = "SELECT id FROM tables WHERE namespace LIKE 'index%'"
            database.execute(f"DELETE FROM partitions WHERE table_id IN ({ids})")
            for (table_id,) in database.execute(ids).fetchall():
                rows = [(table_id, path, 1, 0, 10_000, self.rows, 0) for path in paths]
                database.executemany("INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                database.commit()

    def look(self, now: datetime) -> tuple[float, int]:
        """Seconds of the question for cold hours of all tables, and how many days and months it names."""
        settings = OptimizeSettings.load(catalog__uri=self.catalog.uri)
        began_s = time.perf_counter()
        found = sum(1 for _ in ColdHours(self.catalog, settings).spans(epoch_ms(now)))
        return time.perf_counter() - began_s, found


def months(days: int) -> Iterator[tuple[datetime, int]]:
    """The calendar months of so many days from the start, each with its number of days."""
    at, end = START, START + days * DAY
    while at < end:
        following = (at + 32 * DAY).replace(day=1)
        yield at, (min(following, end) - at).days
        at = following


def measure(bench: Bench, others: int, times: int, warehouse: str) -> dict[str, Any]:
    """The year, month by month; then the questions once more, over what is left of it."""
    year, hours = Year(), [epoch_us(START) // US_PER_HOUR + at for at in range(bench.days * 24)]
    bench.say(f"{others} tables in the index alone")
    bench.stand_in(others, warehouse)
    cold = bench.end + 7 * DAY
    bench.index([span.path for span in spans_of(hours, cold)])
    # One more, with the first one's kind of records, lives the year without maintenance.
    before = replace(bench, tenants=[new_tenant(bench.catalog, len(SHAPES) * 1_000, warehouse)])
    for first, days in months(bench.days):
        write_days(bench.catalog, bench.storage, before.tenants[0], first, days, bench.rows)
    asked_before, objects_before = before.questions(times), before.objects()
    bench.say(f"hour by hour: {asked_before}, {objects_before} objects of a tenant")
    for first, days in months(bench.days):
        for tenant in bench.tenants:
            files, size = write_days(bench.catalog, bench.storage, tenant, first, days, bench.rows)
            year.hour_files += files
            year.hour_bytes += size
        bench.round(first + days * DAY, year)
        year.files_at_end, _ = live(bench)
        bench.round(first + days * DAY + 7 * DAY, year)
        bench.say(f"{first:%Y-%m}: {live(bench)[0]} files live of {year.hour_files}")
    bench.round(cold + timedelta(hours=1), year)
    files, size = live(bench)
    asked, objects = bench.questions(times), bench.objects()
    look_after_s, _ = bench.look(cold)
    bench.index([partition_path(hour) for hour in hours])
    look_before_s, due = bench.look(cold)
    count = len(bench.tenants)
    return {
        "tenants": others + count + 1,
        "tenants_maintained": count,
        "days": bench.days,
        "rows_per_hour": bench.rows,
        "files_before": year.hour_files,
        "files_at_the_end_of_the_year": year.files_at_end,
        "files_after": files,
        "files_fewer": round(year.hour_files / files, 1),
        "bytes_before": year.hour_bytes,
        "bytes_after": size,
        "objects_per_tenant_year_before": objects_before,
        "objects_per_tenant_year": round(objects / count, 1),
        "planning_ms_before": round(asked_before["planning_ms"], 1),
        "planning_ms": round(asked["planning_ms"], 1),
        "year_needle_before_p50_s": round(asked_before["year_needle_p50_s"], 4),
        "year_needle_p50_s": round(asked["year_needle_p50_s"], 4),
        "maintenance_cpu_s_per_tenant_year": round(year.maintenance_cpu_s / count, 1),
        "cold_days_and_months_before": due,
        "look_before_s": round(look_before_s, 2),
        "look_s": round(look_after_s, 2),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def spans_of(hours: list[int], now: datetime) -> list[Span]:
    """What is left of hours once all of them are cold: months, and days of one that is not."""
    ended_h = (epoch_us(now) - 7 * 24 * US_PER_HOUR) // US_PER_HOUR
    found = [Span.holding(Unit.MONTH, hour) for hour in hours]
    return list(
        dict.fromkeys(
            month if month.hours.stop <= ended_h else Span.holding(Unit.DAY, hour)
            for month, hour in zip(found, hours, strict=True)
        )
    )


def main(
    tenants: Annotated[int, typer.Option(help="tenants in all", min=2)] = 1_000,
    days: Annotated[int, typer.Option(help="days of data", min=1)] = 365,
    maintained: Annotated[int, typer.Option(help="tenants that really live their year", min=1)] = 5,
    rows: Annotated[int, typer.Option(help="rows of an hour", min=1)] = 20,
    times: Annotated[int, typer.Option(help="searches of each tenant", min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Lives the year."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    maintained = min(maintained, tenants - 1)
    with (
        tempfile.TemporaryDirectory(prefix="firn-benchmark-") as folder,
        Stack(Path(folder), tied=True) as stack,
    ):
        stack.start("catalog")
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            warehouse = catalog.warehouse
            if warehouse is None:
                raise UnavailableError("the catalog does not say where tables go")
            own = [new_tenant(catalog, at, warehouse) for at in range(maintained)]
            bench = Bench(stack, catalog, open_storage(), own, days, rows, say)
            result = measure(bench, tenants - maintained - 1, times, warehouse)
    if keeps:
        keep("cold", result)
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    typer.echo(text if as_json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    typer.run(main)
