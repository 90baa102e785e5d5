"""`python -m tests.benchmarks.cost_search --json`: CPU and files of a mixed search, by how much its table has
of a week.

The mix is what people ask of a log: the newest rows, the same with a filter, histograms, a rare word in an
hour, a day and a week. Each of the ten largest of some tenants is asked all of it, over HTTP, warm; CPU is
that of the API and its engine, the catalog included. A line through the tenants says what a search costs at
least, and for each byte that the table has of the week.
"""

import itertools
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import orjson
import psutil
import typer

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from query.model.table_view import streams
from query.model.table_view import tenants as known_tenants
from tests.benchmarks.cost import conditions
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.log_volume import Loaded, load
from tests.benchmarks.search import HOURS, LARGEST, NEEDLES, PAGE_ROWS

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(hours=HOURS)
WARM_UP = 1


def questions(draws: random.Random) -> Iterator[tuple[str, timedelta, dict[str, Any]]]:
    """One of each kind: path, length of the time range, and what else is asked."""
    needles: dict[str, Any] = {"limit": PAGE_ROWS, "query": draws.choice(NEEDLES)}
    yield "search", DAY, {"limit": PAGE_ROWS}
    yield "search", WEEK, {"limit": PAGE_ROWS}
    yield "search", WEEK, {"limit": PAGE_ROWS, "query": "message:4?4 OR status:404 OR severity:error"}
    yield "histogram", WEEK, {"by": "level"}
    yield "histogram", WEEK, {"by": "level", "query": "message:timed"}
    yield "search", HOUR, needles
    yield "search", DAY, needles
    yield "search", WEEK, needles


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of some processes and their children until now."""
    roots = [psutil.Process(pid) for pid in pids]
    times = [each.cpu_times() for root in roots for each in (root, *root.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def ask(api: httpx.Client, table: Loaded, end: datetime, times: int, pids: Sequence[int]) -> dict[str, float]:
    """The whole mix of one table so many times: means of a search."""
    draws, began_s = random.Random(table.rows), 0.0
    searches = read = files = 0
    for at in range(WARM_UP + times):
        if at == WARM_UP:
            began_s, searches, read, files = cpu_s(pids), 0, 0, 0
        for path, length, body in questions(draws):
            span = {"from": (end - length).isoformat(), "to": end.isoformat()}
            answer = api.post(f"/v1/{path}", json={"tenant": table.table.tenant.name, **span, **body})
            answer.raise_for_status()
            scanned = answer.json()["scanned"]
            searches, read, files = searches + 1, read + scanned["bytes"], files + scanned["files"]
    return {
        "week_bytes": table.size_bytes,
        "cpu_s": (cpu_s(pids) - began_s) / searches,
        "read_bytes": read / searches,
        "files": files / searches,
    }


def line(found: Sequence[dict[str, float]], what: str) -> tuple[float, float]:
    """What it is at least, and for each byte of the week; never below 0."""
    weeks, values = [each["week_bytes"] for each in found], [each[what] for each in found]
    slope, least = np.polyfit(weeks, values, 1)
    if least < 0 or slope < 0:
        return (0.0, sum(values) / sum(weeks)) if least < 0 else (sum(values) / len(values), 0.0)
    return float(least), float(slope)


def main(
    rows: Annotated[int, typer.Option(help="rows in all", min=10_000)] = 4_000_000,
    tenants: Annotated[int, typer.Option(help="tenants", min=LARGEST)] = 50,
    times: Annotated[int, typer.Option(help="how often each of the mix is asked of a tenant", min=1)] = 5,
    state: Annotated[Path | None, typer.Option(help="folder of the stack; kept where it is given")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Loads and asks."""
    os.environ.setdefault("FIRN_INFRA_QUICK_JAVA", "false")
    with tempfile.TemporaryDirectory() as scratch, Stack(state or Path(scratch), tied=True) as stack:
        stack.start("catalog", "query")
        start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS + 1)
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            views = [view for tenant in known_tenants(catalog) for view in streams(catalog, tenant)]
            tables = [
                Loaded(view.id, view.totals.rows, view.totals.files, view.totals.size_bytes) for view in views
            ]
            if views:  # a state that was kept
                committed = min(view.committed_at for view in views if view.committed_at)
                start = committed.replace(minute=0, second=0, microsecond=0) - WEEK
            else:
                tables = list(load(catalog, rows=rows, tenants=tenants, start=start, hours=HOURS))
        tables.sort(key=lambda one: -one.rows)
        pids = [stack.pid("query"), stack.pid("catalog")]
        with httpx.Client(base_url=stack.address("query"), timeout=300.0, trust_env=False) as api:
            end = start + WEEK
            found = [ask(api, table, end, times, pids) for table in itertools.islice(tables, LARGEST)]
        memory = psutil.Process(stack.pid("query")).memory_info().rss
    result = {
        **conditions(os.getloadavg()[:1]),
        "rows": rows,
        "tenants": tenants,
        "by_table": [{name: round(value, 6) for name, value in each.items()} for each in found],
        **{what: line(found, what) for what in ("cpu_s", "read_bytes")},
        "files": sum(each["files"] for each in found) / len(found),
        "rss_bytes": memory,
    }
    if keeps:
        keep("cost_search", result)
    typer.echo(orjson.dumps(result, option=None if as_json else orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
