"""`python -m tests.benchmarks.alerts --rules 1000 --json`: what evaluating many rules costs.

A real catalog on SQLite, local files, the evaluator in this process, without a receiver. Rules of five modes
lie over tables of tenants; each minute new rows come into half of the tables, and the other half rests. A
round is what all rules take for one minute: their tables loaded, their rows counted, their states written.
The last line of the output is one JSON object with --json: `cpu_s_per_round` of the evaluator's process,
`catalog_cpu_s_per_round` of the catalog's beside it, `round_s`; `resting_cpu_s_per_round` where no table has
new rows."""

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import orjson
import psutil
import typer

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.lease import Lease
from lake.settings import QuerySettings
from lake.storage import open_storage
from query.alerts.delivery import Delivery
from query.alerts.evaluator import Evaluator, EvaluatorParts, EvaluatorTimes
from query.alerts.opened import LEASE
from query.alerts.round import Surroundings
from query.alerts.rule import Rule
from query.alerts.rule_store import RuleStore, StoredRule
from query.alerts.senders import Webhooks
from query.alerts.tables import LoadedTables
from query.executors.embedded import EmbeddedExecutor
from query.files.file_cache import FileCache
from query.files.file_index import FileIndex
from query.files.pack_folder import PackFolder
from query.files.token_filters import TokenFilters
from query.model.search_usage import SearchUsage
from query.model.table_view import TableSource
from query.search.search import Searcher
from tests.benchmarks.kept_results import Keep, keep
from tests.query.support.alert_world import MovedClock, SaidLag
from tests.query.support.log_table import LogTable

START = datetime(2026, 9, 1, 10, tzinfo=UTC)
SERVICES, LEVELS = 10, ("info",) * 15 + ("warn",) * 3 + ("error",) * 2
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"condition": {"mode": "count", "over": 1_000_000}, "query": "severity:error AND service:s{at}"},
    {"condition": {"mode": "count", "over": 1_000_000}, "query": "refused", "group_by": ["service"]},
    {"condition": {"mode": "absence"}, "query": "service:s{at}"},
    {"condition": {"mode": "error_share", "over": 0.99, "at_least": 50}, "query": "service:s{at}"},
    {"condition": {"mode": "rate", "over": 1_000}, "query": "severity:warn AND service:s{at}"},
)


@dataclass
class Bench:
    """Rules over tables, and who evaluates them."""

    evaluator: Evaluator
    tables: Sequence[LogTable]
    clock: MovedClock
    lag: SaidLag
    rows: int
    catalog: psutil.Process

    def minute(self, busy: int) -> dict[str, float]:
        """A minute with new rows in so many tables: what the round took."""
        for table in self.tables[:busy]:
            table.append(rows_of(self.clock.now(), self.rows))
        self.clock.move(60)
        self.lag.complete_until = self.clock.now()
        catalog_s, cpu_s, wall_s = sum(self.catalog.cpu_times()[:2]), time.process_time(), time.perf_counter()
        windows = self.evaluator.step(None)
        return {
            "cpu_s": time.process_time() - cpu_s,
            "round_s": time.perf_counter() - wall_s,
            "catalog_cpu_s": sum(self.catalog.cpu_times()[:2]) - catalog_s,
            "windows": windows,
        }


def rows_of(start: datetime, count: int) -> list[dict[str, Any]]:
    """A minute of a table."""
    return [
        {
            "timestamp": start + timedelta(seconds=60 * at / count),
            "severity": LEVELS[at % len(LEVELS)],
            "service": f"s{at % SERVICES}",
            "message": f"connection {at} {'refused' if at % 7 == 0 else 'accepted'} by peer",
        }
        for at in range(count)
    ]


def rules_of(rules: int, tables: Sequence[LogTable]) -> Iterator[StoredRule]:
    """Rules of all modes in turn, over all tables in turn."""
    for at in range(rules):
        table, shape = tables[at % len(tables)], CONDITIONS[at // len(tables) % len(CONDITIONS)]
        written = {
            **shape,
            "query": shape["query"].format(at=at // len(tables) % SERVICES),
            "name": f"rule-{at:05}",
            "window": "5m",
            "delay": 0,
            "notify": [],
        }
        yield StoredRule(table.id.tenant, Rule.model_validate(written), "benchmark", "")


@contextmanager
def bench(folder: Path, rules: int, tables: int, rows: int) -> Iterator[Bench]:
    """A lake with an hour of rows."""
    with Stack(folder / "stack", tied=True) as stack:
        stack.start("catalog")
        with closing(CatalogClient(stack.address("catalog"))) as catalog:
            made = [LogTable(catalog, f"tenant{at:04}", as_flushes=True) for at in range(tables)]
            for minute in range(-10, 0):
                for table in made:
                    table.append(rows_of(START + timedelta(minutes=minute), rows))
            store = RuleStore(catalog)
            listed = list(rules_of(rules, made))
            for at in range(0, rules, 500):
                store.keep(listed[at : at + 500])
            process = next(each for each in psutil.process_iter() if _listens(each, stack.address("catalog")))
            clock, lag = MovedClock(START), SaidLag(START)
            evaluator = _evaluator(folder, catalog, store, clock, lag)
            evaluator.load()
            yield Bench(evaluator, made, clock, lag, rows, process)
            evaluator.parts.delivery.close()
            evaluator.parts.usage.close()


def _listens(process: psutil.Process, address: str) -> bool:
    port = int(address.rpartition(":")[2])
    try:
        return any(each.laddr.port == port and each.status == "LISTEN" for each in process.net_connections())
    except psutil.Error:
        return False


def _evaluator(
    folder: Path, catalog: CatalogClient, store: RuleStore, clock: MovedClock, lag: SaidLag
) -> Evaluator:
    settings = QuerySettings(state=str(folder / "state"))
    storage = open_storage()
    index, cache = FileIndex(storage), FileCache(storage, folder / "files", 0)
    assert catalog.warehouse is not None
    engine = EmbeddedExecutor(settings, cache.local_paths, lambda: [folder])
    filters = TokenFilters(storage, PackFolder(folder / "filters", 2**30))

    def searcher_of(tables: TableSource) -> Searcher:
        return Searcher(tables, index, (engine,), settings, lag, clock, filters)

    parts = EvaluatorParts(
        store=store,
        around=Surroundings(index, clock, groups_max=100),
        tables_of=lambda tables: LoadedTables(catalog, tables),
        searcher_of=searcher_of,
        lag=lag,
        delivery=Delivery({}, Webhooks((), "", clock), clock),
        alertmanagers=(),
        usage=SearchUsage(folder / "usage.db", clock),
        limits_of=lambda _: {},
        timeout_s=60.0,
        times=EvaluatorTimes(86_400.0, 60.0, 60.0),
        clock=clock,
    )
    return Evaluator(parts, lambda: Lease(None, LEASE, None, holder="benchmark"))  # type: ignore[arg-type]


def measured(made: Bench, busy: int, rounds: int) -> dict[str, float]:
    """The medians of some minutes."""
    found = [made.minute(busy) for _ in range(rounds)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def main(
    rules: Annotated[int, typer.Option(help="how many")] = 1_000,
    tables: Annotated[int, typer.Option(help="over which they lie")] = 100,
    rows: Annotated[int, typer.Option(help="of a table a minute")] = 1_000,
    rounds: Annotated[int, typer.Option(help="that are measured of each kind")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="only the JSON object")] = False,
    keeps: Keep = False,
) -> None:
    """Measure rounds of many rules."""
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder), rules, tables, rows) as made:
        made.evaluator.step(None)  # the first look of each rule
        made.minute(tables // 2)
        live = measured(made, tables // 2, rounds)
        for _ in range(6):
            made.minute(0)  # the windows have gone past the last rows
        resting = measured(made, 0, rounds)
        problems = sum(each.state.health.problem is not None for each in made.evaluator.parts.store.states())
    result = {
        "rules": rules,
        "tables": tables,
        "rows_per_table_and_minute": rows,
        "cpu_s_per_round": round(live["cpu_s"], 3),
        "round_s": round(live["round_s"], 3),
        "catalog_cpu_s_per_round": round(live["catalog_cpu_s"], 3),
        "resting_cpu_s_per_round": round(resting["cpu_s"], 3),
        "windows_per_round": live["windows"],
        "problems": problems,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    if keeps:
        keep("alerts", result)
    if not as_json:
        for name, value in result.items():
            print(f"{name:28} {value}", file=sys.stderr)
    print(orjson.dumps(result).decode())


if __name__ == "__main__":
    typer.run(main)
