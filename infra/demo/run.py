"""The demo: starts the line, feeds it, waits until every record is accounted for, shows where to go on."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from rich.table import Table

from infra.demo.counts import RowCount, TableCount, count_dead_letters, count_rows, tables
from infra.demo.order_stream import OrderStream, report
from infra.demo.produce import HOURS_DEFAULT
from infra.demo.producer import TOPICS, create_topics
from infra.demo.record import JSON_TOPIC, ORDERS_STREAM, ORDERS_TENANT, ORDERS_TOPIC, TEXT_TOPIC
from infra.demo.second_half import disagreements, optimize, search
from infra.demo.spark_stretch import spark_ingests
from infra.demo.tally import Tally, TenantTally, read_tally
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.clock import SYSTEM_CLOCK
from lake.errors import PrerequisiteError, UnavailableError
from lake.terminal import TerminalConsole

SERVICES = ("kafka", "catalog", "trino", "ingest", "ingest-serve")
# What is started after the first counts, and stays.
SECOND = ("optimize", "query", "ui")
FLUSH_INTERVAL_S = 10
# Hours of logs arrive in seconds; small flushes leave the optimizer something to merge, as a day of trickling
# would.
FLUSH_BYTES = 256 * 1024
# One record in so many comes while Spark ingests.
SPARK_PART = 10
# One change of an order for so many records of logs.
RECORDS_PER_CHANGE = 12
LOAD_TIMEOUT_S = 240.0
VISIBLE_TIMEOUT_S = 120.0
TRICKLE_PER_S = 20.0
POLL_S = 1.0
STOP_TIMEOUT_S = 60.0
SETTINGS_OF_TOPICS: list[dict[str, object]] = [
    {
        "name": JSON_TOPIC,
        "format": "json",
        "tenant": ["header:tenant", "field:tenant"],
        "stream": ["header:stream"],
    },
    {"name": TEXT_TOPIC, "format": "text", "tenant": ["header:tenant"], "stream": ["header:stream"]},
    {
        "name": ORDERS_TOPIC,
        "tenant": [f"const:{ORDERS_TENANT}"],
        "stream": [f"const:{ORDERS_STREAM}"],
        "changes": {"mode": "upsert", "format": "debezium"},
    },
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides of the sum, per tenant."""

    produced: dict[str, TenantTally]
    written: dict[str, int]
    dead: dict[str, int]
    counted: dict[str, RowCount]
    visible_s: dict[str, float]

    def mismatches(self) -> list[str]:
        """A sentence for every sum that does not hold; none: the line kept its promises."""
        wrong = []
        for tenant, tally in self.produced.items():
            rows, dead = self.counted.get(tenant, RowCount()), self.dead.get(tenant, 0)
            if rows.rows + dead != tally.produced:
                wrong.append(
                    f"{tenant}: {tally.produced} produced, but {rows.rows} rows and {dead} dead letters"
                )
            if rows.distinct != rows.rows:
                wrong.append(f"{tenant}: {rows.rows - rows.distinct} rows are doubled")
            if dead != tally.expected_dead:
                wrong.append(f"{tenant}: {dead} dead letters, {tally.expected_dead} expected")
            if rows.with_errors != tally.expected_errors:
                wrong.append(
                    f"{tenant}: {rows.with_errors} rows with errors, {tally.expected_errors} expected"
                )
            if self.written.get(tenant, 0) != rows.rows:
                wrong.append(
                    f"{tenant}: the catalog says {self.written.get(tenant, 0)} rows, Trino counts {rows.rows}"
                )
        wrong += [
            f"{tenant}: {rows.rows} rows nobody produced"
            for tenant, rows in self.counted.items()
            if tenant not in self.produced
        ]
        return wrong


def run_demo(state: Path, records: int, seed: int, *, check: bool, console: TerminalConsole) -> None:
    """Runs the demo. With `check` it ends after the sums and raises UnavailableError where one does not hold;
    else it stays until Ctrl-C."""
    started_s = SYSTEM_CLOCK.monotonic_s()
    _empty(state)
    with Stack(
        state, tied=True, say=lambda line: console.print(line, style="dim", markup=False, highlight=False)
    ) as stack:
        stack.start("kafka")
        create_topics(stack.address("kafka"), names=(*TOPICS, ORDERS_TOPIC))
        stack.start(*SERVICES, environment=_environment())
        console.print(
            f"services are up after {SYSTEM_CLOCK.monotonic_s() - started_s:.0f} s", highlight=False
        )
        orders, changes = OrderStream(stack, seed), max(1, records // RECORDS_PER_CHANGE)
        orders.send(changes, HOURS_DEFAULT)
        tally, loaded_s = _load(stack, state, "load", records, seed, console)
        _require_sums(_wait_until_visible(stack, tally, loaded_s, console), state, console)
        _compare(orders, "workers", state, console)
        with spark_ingests(stack):
            orders.send(changes // 2)
            more, loaded_s = _load(stack, state, "spark-load", records // SPARK_PART, seed + 1, console)
            outcome = _wait_until_visible(stack, tally + more, loaded_s, console)
            _compare(orders, "Spark", state, console)
        console.print(f"Spark ingested {more.total.produced:,} of them", highlight=False)
        console.print(_report(outcome))
        _require_sums(outcome, state, console)
        orders.send(changes // 2)
        _compare(orders, "workers, again", state, console)
        _second_half(stack, orders, state, console)
        console.print(report(orders.stages))
        console.print(
            f"every record is accounted for, {SYSTEM_CLOCK.monotonic_s() - started_s:.0f} s after the start",
            highlight=False,
        )
        if not check:
            _stay(stack, orders, state, seed, console)


def _require_sums(outcome: Outcome, state: Path, console: TerminalConsole) -> None:
    """Raises UnavailableError where a sum does not hold, after all sentences about it."""
    wrong = outcome.mismatches()
    for sentence in wrong:
        console.print(sentence, style="red", markup=False, highlight=False)
    if wrong:
        raise UnavailableError(f"the numbers do not add up; the logs are in {state / 'logs'}")


def _compare(orders: OrderStream, name: str, state: Path, console: TerminalConsole) -> list[TableCount]:
    """The orders' table and its rows. Raises UnavailableError where they are not what the shop has, after all
    stages."""
    stage = orders.compare(name)
    if stage.mismatch:
        console.print(report(orders.stages))
        raise UnavailableError(f"{stage.mismatch}; the logs are in {state / 'logs'}")
    return [] if stage.table is None else [replace(stage.table, rows=stage.counted.rows)]


def _second_half(stack: Stack, orders: OrderStream, state: Path, console: TerminalConsole) -> None:
    """Compaction and search. Raises UnavailableError where a count changes or a search does not find what is
    there."""
    with (
        contextlib.closing(CatalogClient(stack.address("catalog"))) as catalog,
        console.status("merging small files on Spark"),
    ):
        before = tables(catalog)
        optimize(stack)
        after = tables(catalog)
        keyed = _compare(orders, "compaction", state, console)
        stack.start("query", "ui")
        searched = search(stack, [*after, *keyed])
    console.print(
        f"compaction: {sum(t.files for t in before)} files -> {sum(t.files for t in after)}, the same "
        f"{sum(t.rows for t in after):,} rows"
    )
    console.print(
        f"search: {sum(s.rows for s in searched):,} rows found in {len(searched)} tables through the API",
        highlight=False,
    )
    if wrong := disagreements(before, after, searched):
        raise UnavailableError("; ".join(wrong))


def _environment() -> dict[str, str]:
    return {
        "FIRN_INGEST_TOPICS": orjson.dumps(SETTINGS_OF_TOPICS).decode(),
        "FIRN_INGEST_FLUSH__INTERVAL_S": str(FLUSH_INTERVAL_S),
        "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": str(FLUSH_INTERVAL_S),
        "FIRN_INGEST_FLUSH__BYTES": str(FLUSH_BYTES),
    }


def _empty(state: Path) -> None:
    """The demo starts anew each time; what an earlier one left running is stopped first."""
    if (state / "stack.json").exists():
        Stack(state).stop()
    try:
        shutil.rmtree(state, ignore_errors=False)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise PrerequisiteError(
            f"the demo's folder {state} cannot be emptied ({error}); remove it by hand"
        ) from error


@contextlib.contextmanager
def _producer(stack: Stack, state: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    collect = [part for name in SERVICES for part in ("--collect", f"{name}={stack.log(name)}")]
    command = [
        sys.executable,
        "-m",
        "infra.demo.produce",
        "--bootstrap",
        stack.address("kafka"),
        "--positions",
        str(state / "positions.json"),
    ]
    with (state / "logs" / "produce.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *collect, *options],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _load(
    stack: Stack, state: Path, name: str, records: int, seed: int, console: TerminalConsole
) -> tuple[Tally, float]:
    """Produces one load; returns its tally, which is kept as NAME.json, and the monotonic time at its end."""
    file = state / f"{name}.json"
    deadline_s = SYSTEM_CLOCK.monotonic_s() + LOAD_TIMEOUT_S
    with (
        _producer(
            stack, state, "--records", str(records), "--seed", str(seed), "--tally", str(file)
        ) as process,
        console.status("") as status,
    ):
        while process.poll() is None:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise UnavailableError(
                    f"the load took longer than {LOAD_TIMEOUT_S:.0f} s; see {state / 'logs' / 'produce.log'}"
                )
            produced = read_tally(file)[1].total.produced if file.exists() else 0
            status.update(f"producing logs: {produced:,} of {records:,}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
    phase, tally = read_tally(file)
    if process.returncode or phase != "finished" or tally.failed:
        raise UnavailableError(
            f"producing the load failed ({tally.first_failure or phase}); see "
            f"{state / 'logs' / 'produce.log'}"
        )
    return tally, SYSTEM_CLOCK.monotonic_s()


def _wait_until_visible(stack: Stack, tally: Tally, loaded_s: float, console: TerminalConsole) -> Outcome:
    """Counts until every produced record is a row or a dead letter, or the time is over; the outcome shows
    which."""
    visible_s: dict[str, float] = {}
    with contextlib.closing(CatalogClient(stack.address("catalog"))) as catalog, console.status("") as status:
        while True:
            found = tables(catalog)
            written: dict[str, int] = {}
            for table in found:
                written[table.tenant] = written.get(table.tenant, 0) + table.rows
            counted, dead = (
                count_rows(stack.address("trino"), found),
                dict(count_dead_letters(stack.address("kafka"))),
            )
            now_s = SYSTEM_CLOCK.monotonic_s()
            for tenant, produced in tally.tenants.items():
                if counted.get(tenant, RowCount()).rows + dead.get(tenant, 0) >= produced.produced:
                    visible_s.setdefault(tenant, now_s - loaded_s)
            rows = sum(count.rows for count in counted.values())
            status.update(
                f"waiting until all is visible: {rows:,} rows in {len(found)} tables, {sum(dead.values()):,} "
                "dead letters"
            )
            if not stack.running("ingest"):
                raise UnavailableError(f"ingest ended by itself; see {stack.log('ingest')}")
            if len(visible_s) == len(tally.tenants) or now_s - loaded_s > VISIBLE_TIMEOUT_S:
                return Outcome(tally.tenants, written, dead, counted, visible_s)
            time.sleep(POLL_S)


def _report(outcome: Outcome) -> Table:
    table = Table(title="every tenant's records: where they are")
    table.add_column("tenant")
    for name in (
        "produced",
        "written",
        "rows with errors",
        "dead-lettered",
        "rows counted by Trino",
        "seconds until visible",
    ):
        table.add_column(name, justify="right")
    for tenant, tally in sorted(outcome.produced.items(), key=lambda item: -item[1].produced):
        rows = outcome.counted.get(tenant, RowCount())
        numbers = (
            tally.produced,
            outcome.written.get(tenant, 0),
            rows.with_errors,
            outcome.dead.get(tenant, 0),
            rows.rows,
        )
        seconds = outcome.visible_s.get(tenant)
        table.add_row(
            tenant, *(f"{number:,}" for number in numbers), "not yet" if seconds is None else f"{seconds:.0f}"
        )
    return table


def _stay(stack: Stack, orders: OrderStream, state: Path, seed: int, console: TerminalConsole) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    options = (
        "--records",
        "0",
        "--seed",
        str(seed + 2),
        "--trickle",
        str(TRICKLE_PER_S),
        "--tally",
        str(state / "trickle.json"),
    )
    with _producer(stack, state, *options) as process:
        console.print(
            f"a trickle of {TRICKLE_PER_S:.0f} records and a change of an order a second goes on; go on with",
            highlight=False,
        )
        for what, address in (
            ("search in the browser", stack.address("ui")),
            ("search API", stack.address("query")),
            ("Trino (catalog `lake`)", stack.address("trino")),
            ("Iceberg REST catalog", stack.address("catalog")),
            ("ingest: status and metrics", stack.address("ingest")),
            ("optimize: metrics", f"{stack.address('optimize')}/metrics"),
            ("Kafka", stack.address("kafka")),
            ("logs", str(state / "logs")),
        ):
            console.print(f"  {what:28} {address}", highlight=False)
        console.print("Ctrl-C stops everything", highlight=False)
        while not stop.wait(POLL_S):
            dead = [name for name in (*SERVICES, *SECOND) if not stack.running(name)] + (
                ["produce"] if process.poll() is not None else []
            )
            if dead:
                raise UnavailableError(f"{', '.join(dead)} ended by itself; its log is in {state / 'logs'}")
            orders.send(1)
        console.print("stopping")
