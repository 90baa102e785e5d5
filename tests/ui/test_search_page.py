"""The search page as a person uses it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.query.log_table import LogTable, fresh_tenant

pytestmark = pytest.mark.stack

ROWS = 400


@pytest.fixture(scope="module")
def table(catalog_client: Any) -> LogTable:
    """An hour of logs; every fiftieth line is a refused connection."""
    table = LogTable(catalog_client, fresh_tenant("browser"))
    start = datetime.now(UTC) - timedelta(minutes=50)
    table.append(
        [
            {
                "timestamp": start + timedelta(seconds=7 * at),
                "severity": "ERROR" if at % 50 == 0 else "INFO",
                "message": f"connection refused number {at}" if at % 50 == 0 else f"item {at} served",
                "host": f"web-{at % 3}",
            }
            for at in range(ROWS)
        ]
    )
    return table


def open_search(page: Page, uri: str, table: LogTable, **more: str) -> None:
    """Opens the page by an address and waits for its answer."""
    page.goto(f"{uri}/?{urlencode({'tenant': table.tenant, 'stream': 'logs', 'from': 'now-1h', **more})}")
    expect(page.get_by_text(re.compile(r"\d rows?", re.IGNORECASE)).first).to_be_visible()


def cell(page: Page, row: int, column: int) -> Any:
    """A cell of the result table, which is drawn on a canvas and described in a table for screen readers."""
    return page.get_by_test_id("stDataFrame").first.get_by_test_id(f"glide-cell-{column}-{row}")


def choose_row(page: Page, row: int) -> None:
    """Clicks the box before a row."""
    page.get_by_test_id("stDataFrame").first.locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 35 * row + 17})


def test_a_search_is_typed_a_row_opened_and_the_link_opens_it_again(page: Page, ui_uri: str, table: LogTable) -> None:
    """Typing words shows the histogram and the right rows; a row shows its fields; its link shows the same rows, even after more came."""
    open_search(page, ui_uri, table)
    expect(page.get_by_text("400 rows")).to_be_visible()
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill("refused")
    box.press("Enter")
    expect(page.get_by_text("8 rows")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first).to_be_visible()
    expect(cell(page, 0, 3)).to_have_text("connection refused number 350")
    expect(cell(page, 7, 3)).to_have_text("connection refused number 0")
    choose_row(page, 1)
    expect(page.get_by_text("connection refused number 300", exact=True).last).to_be_visible()
    page.get_by_role("tab", name="Origin").click()
    expect(page.get_by_text("These coordinates identify the row")).to_be_visible()
    page.get_by_role("button", name="Link").click()
    link = page.get_by_test_id("stCode").filter(has_text="pin=").inner_text().strip()
    assert {"tenant", "q", "pin", "row"} <= set(parse_qs(urlsplit(link).query))
    table.append([{"timestamp": datetime.now(UTC) - timedelta(minutes=20), "message": "connection refused later"}])
    page.goto(link)
    expect(page.get_by_text("8 rows")).to_be_visible()
    expect(page.get_by_text("pinned")).to_be_visible()
    expect(cell(page, 1, 3)).to_have_text("connection refused number 300")
    expect(page.get_by_text("connection refused number 300", exact=True).last).to_be_visible()


def test_a_wrong_query_is_shown_with_the_place_of_its_fault(page: Page, ui_uri: str, table: LogTable) -> None:
    """The error is a sentence, the query is repeated, and a caret stands below the fault."""
    open_search(page, ui_uri, table)
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill('message:"never closed')
    box.press("Enter")
    expect(page.get_by_test_id("stCode").first).to_contain_text("never closed")
    expect(page.get_by_test_id("stCode").first).to_contain_text("^")


def test_a_search_that_finds_nothing_says_what_to_do(page: Page, ui_uri: str, table: LogTable) -> None:
    """An empty page is not silent: it says how new the stream is, and which field was probably meant."""
    open_search(page, ui_uri, table, q="hots:web-1")
    expect(page.get_by_text("Did you mean host")).to_be_visible()
    expect(page.get_by_text("No row in this time range matches.")).to_be_visible()


def test_the_tenants_page_lists_rows_files_and_freshness(page: Page, ui_uri: str, table: LogTable) -> None:
    """Every stream with its counts; the filter finds one of them."""
    page.goto(f"{ui_uri}/tenants")
    expect(page.get_by_text("Tenants and streams").first).to_be_visible()
    box = page.get_by_placeholder("part of a tenant's or stream's name")
    box.fill(table.tenant)
    box.press("Enter")
    expect(page.get_by_text("1 stream.")).to_be_visible()
    expect(cell(page, 0, 1)).to_have_text(table.tenant)  # column 0 is the box to choose a row
