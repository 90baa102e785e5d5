"""The demo's second half: the first round of the optimizer, which then stays, and a search of every table
through the API."""

import re
import time
from dataclasses import dataclass
from typing import Any

import httpx

from infra.demo.counts import TableCount
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.errors import UnavailableError
from lake.table_layout import STREAM_PROPERTY

OPTIMIZER_TIMEOUT_S = 240.0
POLL_S = 0.5
# An hour is merged as soon as it is over, and a round begins every minute, so that who watches the Health
# page sees it at work. One task at a time with half the usual heap: beside Kafka and Trino, on a small
# machine, that is enough for a demo's hours.
OPTIMIZER = {
    "FIRN_OPTIMIZE_INTERVAL_S": "60",
    "FIRN_OPTIMIZE_SNAPSHOTS__INTERVAL_S": "30",
    "FIRN_OPTIMIZE_MERGE__CLOSED_AFTER_S": "0",
    "FIRN_OPTIMIZE_MERGE__LATE_COOLDOWN_S": "900",
    "FIRN_OPTIMIZE_RETENTION__READER_GRACE_S": "600",
    "FIRN_OPTIMIZE_SPARK__MASTER": "local[1]",
    "FIRN_OPTIMIZE_SPARK__DRIVER_MEMORY_MB": "512",
}
_ROUND_ENDED = re.compile(r"^firn_optimize_last_round_timestamp_seconds (\S+)$", re.MULTILINE)
_FAILURES = re.compile(r"^firn_optimize_table_failures_total (\S+)$", re.MULTILINE)
SEARCH_TIMEOUT_S = 60.0
RANGE = {"from": "now-30d", "to": "now+2d"}


@dataclass(frozen=True, slots=True)
class SearchCount:
    """What the search API says of one table: rows by its histogram, and those of a first page."""

    table: TableCount
    rows: int
    first_page: int


def optimize(stack: Stack) -> None:
    """Starts the optimizer and waits for the end of its first round. Raises UnavailableError with where its
    log is."""
    stack.start("optimize", environment=OPTIMIZER)
    deadline_s = time.monotonic() + OPTIMIZER_TIMEOUT_S
    while not (said := _said(stack)).round_ended:
        if not stack.running("optimize"):
            raise UnavailableError(f"the optimizer ended by itself; see {stack.log('optimize')}")
        if time.monotonic() > deadline_s:
            raise UnavailableError(
                f"the optimizer's first round took longer than {OPTIMIZER_TIMEOUT_S:.0f} s; see "
                f"{stack.log('optimize')}"
            )
        time.sleep(POLL_S)
    if said.failures:
        raise UnavailableError(
            f"the optimizer failed for {said.failures:.0f} tables; see {stack.log('optimize')}"
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """What the optimizer's metrics tell: when its last round ended (epoch seconds, 0: none yet), and how many
    tables failed."""

    round_ended: float = 0.0
    failures: float = 0.0


def _said(stack: Stack) -> _Said:
    try:
        text = httpx.get(
            f"{stack.address('optimize')}/metrics", timeout=SEARCH_TIMEOUT_S, trust_env=False
        ).text
    except httpx.HTTPError:
        return _Said()
    ended, failures = _ROUND_ENDED.search(text), _FAILURES.search(text)
    return _Said(float(ended[1]) if ended else 0.0, float(failures[1]) if failures else 0.0)


def search(stack: Stack, found: list[TableCount]) -> list[SearchCount]:
    """Asks the search API for every table: a histogram of all its rows and one page. Raises UnavailableError
    where it does not answer."""
    counted = []
    catalog = CatalogClient(stack.address("catalog"))
    with httpx.Client(base_url=stack.address("query"), timeout=SEARCH_TIMEOUT_S, trust_env=False) as http:
        for table in found:
            stream = catalog.load_table(table.name)["metadata"]["properties"][STREAM_PROPERTY]
            question = {"tenant": table.tenant, "stream": stream, **RANGE}
            histogram, page = (_ask(http, path, question) for path in ("/v1/histogram", "/v1/search"))
            counted.append(SearchCount(table, histogram["rows"], len(page["rows"])))
    catalog.close()
    return counted


def _ask(http: httpx.Client, path: str, question: dict[str, str]) -> dict[str, Any]:
    try:
        response = http.post(path, json=question)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise UnavailableError(f"the search API did not answer {path} {question}: {error}") from error
    return dict(response.json())


def disagreements(
    before: list[TableCount], after: list[TableCount], searched: list[SearchCount]
) -> list[str]:
    """A sentence for everything that compaction or search got wrong; none: rows are the same, files fewer,
    searches complete."""
    rows = {table.name: table.rows for table in before}
    wrong = [
        f"{t.name}: {rows.get(t.name, 0)} rows before compaction, {t.rows} after"
        for t in after
        if t.rows != rows.get(t.name, 0)
    ]
    files = sum(table.files for table in before), sum(table.files for table in after)
    if files[1] >= files[0]:
        wrong.append(f"compaction left {files[1]} of {files[0]} files")
    wrong += [
        f"{s.table.name}: search counts {s.rows} rows, the table has {s.table.rows}"
        for s in searched
        if s.rows != s.table.rows
    ]
    wrong += [
        f"{s.table.name}: search shows no row of {s.table.rows}"
        for s in searched
        if s.table.rows and not s.first_page
    ]
    return wrong
