"""The search page while a search runs, and when it is ended, on both engines."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child
from tests.query.support.slow_search import (
    ENDLESS,
    HOURS,
    RANGE,
    RARE,
    START,
    fresh_mark,
    slow_query,
    slow_table,
)
from tests.stack.support.line import Sql
from tests.stack.support.waiting import pause, wait_for
from tests.ui.support.front_end import start_front_end
from tests.ui.support.gestures import cell, choose_row, expect_once

pytestmark = pytest.mark.stack
# Which engine a search gets that names none.
BYTES_FOR_DUCKDB = {"duckdb": 10**9, "trino": 0}
PATTERNS = {"duckdb": ENDLESS, "trino": 4}  # Trino takes its time to compile more
WORDS = 1_200  # half of what two threads need: this API has one
ENDS_WITHIN_S = 20.0
LOOKED_AT_S, BUSY_SHARE = 2.0, 0.04  # also beside much other load


class Pages:
    """A front end and the API behind it, which has much time and one engine."""

    def __init__(self, stack: Stack, trino: Sql, folder: Path, engine: str) -> None:
        settings = {
            **stack.environment(),
            "FIRN_QUERY_SEARCH__TIMEOUT_S": "600",
            "FIRN_QUERY_EMBEDDED__SCAN_BYTES_MAX": str(BYTES_FOR_DUCKDB[engine]),
            "FIRN_QUERY_STATE": str(folder / "state"),
            # Whatever is searched until somebody ends it takes from all tests beside it.
            "FIRN_QUERY_EMBEDDED__THREADS": "1",
        }
        self.engine, self._trino, self._mark = engine, trino, ""
        self.api = Child("query", folder, settings).start()
        self.ui = start_front_end(self.api.address, folder)

    def end(self) -> None:
        self.ui.kill()
        self.api.kill()

    def open(self, page: Page, table: LogTable) -> None:
        """A search that would take minutes."""
        self._mark = fresh_mark()
        query = slow_query(PATTERNS[self.engine], self._mark)
        where = {"tenant": table.tenant, "stream": "logs", "q": query, **RANGE}
        page.goto(f"{self.ui.address}/?{urlencode(where)}")

    def is_busy(self) -> bool:
        """Whether the engine works on that search: DuckDB keeps the API's process busy, Trino says so."""
        if self.engine == "duckdb":
            before_s = _cpu_s(self.api.pid)
            pause(LOOKED_AT_S)
            return _cpu_s(self.api.pid) - before_s > BUSY_SHARE * LOOKED_AT_S
        return bool(self._states() - {"FINISHED", "FAILED"})

    def is_ended(self) -> bool:
        """Whether the engine was stopped half-way."""
        return not self.is_busy() and (self.engine == "duckdb" or "FAILED" in self._states())

    def _states(self) -> set[str]:
        of_search = f"source = 'firn-query' AND query LIKE '%{self._mark}%'"
        return {row[0] for row in self._trino(f"SELECT state FROM system.runtime.queries WHERE {of_search}")}


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@pytest.fixture(scope="module")
def table(catalog_client: CatalogClient) -> LogTable:
    return slow_table(catalog_client, WORDS)


@pytest.fixture(scope="module", params=["duckdb", pytest.param("trino", marks=pytest.mark.prove)])
def pages(
    request: pytest.FixtureRequest, stack: Stack, trino: Sql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pages]:
    made = Pages(stack, trino, tmp_path_factory.mktemp(request.param), request.param)
    yield made
    made.end()


def wait_for_first_rows(page: Page, pages: Pages) -> None:
    """Until the newest files are done, and the engine works on the others, which take much longer."""
    expect_once(page.get_by_text(re.compile(rf"[1-9]\d* rows so far: [1-9]\d* of {HOURS} files, .* of ")))
    wait_for(pages.is_busy, 10.0, "the older files being searched")


def cancel(page: Page) -> None:
    page.get_by_role("button", name="Cancel").click()
    expect_once(page.get_by_text(re.compile(f"Cancelled after .* of {HOURS} files")))


def test_a_search_shows_how_far_it_is_and_its_first_rows_and_is_cancelled(
    page: Page, pages: Pages, table: LogTable
) -> None:
    """Rows of the newest hours stand on the page while older ones are searched; a click ends the engine, and
    what was found stays, to be looked at."""
    pages.open(page, table)
    wait_for_first_rows(page, pages)
    expect(cell(page, 0, 1)).to_contain_text(f"{RARE} {HOURS - 1} ")
    cancel(page)
    wait_for(pages.is_ended, ENDS_WITHIN_S, "the engine's end")
    expect_once(page.get_by_text("These are the rows that were found until then."))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    choose_row(page, 0)
    expect_once(page.get_by_text("Row", exact=True))


@pytest.mark.parametrize("pages", ["duckdb"], indirect=True)
@pytest.mark.prove
def test_another_search_ends_the_one_that_runs(page: Page, pages: Pages, table: LogTable) -> None:
    """Also before anything was cancelled: the page has the rows of the new one."""
    pages.open(page, table)
    wait_for_first_rows(page, pages)
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill(f"{RARE} timestamp:{START + timedelta(hours=7):%Y-%m-%dT%H}")
    box.press("Enter")
    expect_once(page.get_by_text("1 row", exact=True))
    expect(cell(page, 0, 2)).to_contain_text(f"{RARE} 7 ")
    expect(page.get_by_text("Cancelled")).to_have_count(0)
    wait_for(pages.is_ended, ENDS_WITHIN_S, "the engine's end")


@pytest.mark.parametrize("pages", ["duckdb"], indirect=True)
def test_a_page_that_is_left_ends_its_search(context: BrowserContext, pages: Pages, table: LogTable) -> None:
    """Nobody waits for its rows."""
    page = context.new_page()
    pages.open(page, table)
    wait_for_first_rows(page, pages)
    page.close()
    wait_for(pages.is_ended, ENDS_WITHIN_S, "the engine's end")
