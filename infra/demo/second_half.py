"""The demo's second half: one run of the optimizer, and a search of every table through the API."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from infra.demo.counts import TableCount
from infra.local import jvm_parts
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.errors import UnavailableError
from lake.table_layout import STREAM_PROPERTY

OPTIMIZER_TIMEOUT_S = 240.0
SEARCH_TIMEOUT_S = 60.0
RANGE = {"from": "now-30d", "to": "now+2d"}


@dataclass(frozen=True, slots=True)
class SearchCount:
    """What the search API says of one table: rows by its histogram, and those of a first page."""

    table: TableCount
    rows: int
    first_page: int


def optimize(stack: Stack, logs: Path) -> None:
    """Runs the optimizer once over every closed hour. Raises UnavailableError with where its log is."""
    environment = {**os.environ, **stack.environment(), "FIRN_OPTIMIZE_CLOSED_AFTER_S": "0", "FIRN_OPTIMIZE_SPARK_JARS": str(jvm_parts.folder("spark"))}
    with (logs / "optimize.log").open("ab") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "optimize", "run", "--once"], stdout=log, stderr=log, env=environment, timeout=OPTIMIZER_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"the optimizer took longer than {OPTIMIZER_TIMEOUT_S:.0f} s; see {logs / 'optimize.log'}") from error
    if done.returncode:
        raise UnavailableError(f"the optimizer ended with exit code {done.returncode}; see {logs / 'optimize.log'}")


def search(stack: Stack, found: list[TableCount]) -> list[SearchCount]:
    """Asks the search API for every table: a histogram of all its rows and one page. Raises UnavailableError where it does not answer."""
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


def disagreements(before: list[TableCount], after: list[TableCount], searched: list[SearchCount]) -> list[str]:
    """A sentence for everything that compaction or search got wrong; none: rows are the same, files fewer, searches complete."""
    rows = {table.name: table.rows for table in before}
    wrong = [f"{t.name}: {rows.get(t.name, 0)} rows before compaction, {t.rows} after" for t in after if t.rows != rows.get(t.name, 0)]
    files = sum(table.files for table in before), sum(table.files for table in after)
    if files[1] >= files[0]:
        wrong.append(f"compaction left {files[1]} of {files[0]} files")
    wrong += [f"{s.table.name}: search counts {s.rows} rows, the table has {s.table.rows}" for s in searched if s.rows != s.table.rows]
    wrong += [f"{s.table.name}: search shows no row of {s.table.rows}" for s in searched if s.table.rows and not s.first_page]
    return wrong
