"""What a person does on the pages, each gesture when the page before it is drawn: Streamlit replaces elements
while its script runs."""

import re
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PageTimeoutError

from tests.query.support.log_table import LogTable

QUIET_MS = 700
TRY_MS, TRIES = 20_000, 3
IS_QUIET = """quietMs => {
    const app = document.querySelector(
        '[data-testid=stApp][data-test-connection-state=CONNECTED][data-test-script-state=notRunning]');
    if (!app) window.firnBusyAt = performance.now();
    return performance.now() - (window.firnBusyAt ??= performance.now()) > quietMs;
}"""


def settle(page: Page) -> None:
    """Returns when the page is drawn: its script has not run for a while."""
    page.evaluate("window.firnBusyAt = performance.now()")
    page.wait_for_function(IS_QUIET, arg=QUIET_MS, polling=50)


def expect_once(wanted: Locator) -> None:
    """Waits until this is seen exactly once: while a script runs, what it drew before can stand beside it."""
    expect(wanted.filter(visible=True)).to_have_count(1)


def open_page(page: Page, address: str, text: str) -> None:
    """Opens a page and waits for this text; opens it again, as a person would, where the page says instead
    that a service did not answer in time (the machine is busy)."""
    for _ in range(TRIES):
        page.goto(address)
        try:
            page.get_by_text(text).filter(visible=True).first.wait_for(timeout=TRY_MS)
        except PageTimeoutError:
            continue
        expect_once(page.get_by_text(text))
        return
    raise AssertionError(
        f"{address} does not show “{text}”, but: {page.locator('body').inner_text()[:2_000]}"
    )


def open_search(page: Page, uri: str, table: LogTable, **more: str) -> None:
    """Opens the search page by an address and waits for its answer."""
    page.goto(f"{uri}/?{urlencode({'tenant': table.tenant, 'stream': 'logs', 'from': 'now-1h', **more})}")
    expect(page.get_by_text(re.compile(r"\d rows?", re.IGNORECASE)).first).to_be_visible()


def cell(page: Page, row: int, column: int) -> Any:
    """A cell of the result table, which is drawn on a canvas and described in a table for screen readers."""
    return page.get_by_test_id("stDataFrame").first.get_by_test_id(f"glide-cell-{column}-{row}")


def open_list(page: Page, box: Locator) -> None:
    """Opens the list of a box by a key; once more where it closed because the page moved under it."""
    bring_into_view(page, box)
    for _ in range(TRIES):
        box.press("ArrowDown")
        try:
            page.get_by_role("option").first.wait_for(timeout=TRY_MS)
        except PageTimeoutError:
            continue
        return
    raise AssertionError("a list does not open")


def choose(page: Page, label: str, option: str, *, exact: bool = True) -> None:
    """Takes an option of a list by typing it; once more where the list closed because the page moved under
    it."""
    box = page.get_by_role("combobox", name=label)
    bring_into_view(page, box)
    listed = page.get_by_role("option", name=option, exact=exact).first
    for _ in range(TRIES):
        box.fill("")
        box.fill(option)
        try:
            listed.click(timeout=TRY_MS)
        except PageTimeoutError:
            continue
        return
    raise AssertionError(f"{label} does not offer {option}")


def choose_row(page: Page, row: int) -> None:
    """Clicks the box before a row."""
    settle(page)
    page.get_by_test_id("stDataFrame").first.locator(".dvn-scroller").click(
        position={"x": 17, "y": 36 + 35 * row + 17}
    )


def choose_value(page: Page, row: int) -> None:
    """Clicks a value of the row that is open."""
    fields = page.get_by_test_id("stDataFrame").nth(1)
    bring_into_view(page, fields)
    width = fields.evaluate("element => element.clientWidth")
    fields.locator(".dvn-scroller").click(position={"x": width - 40, "y": 36 + 35 * row + 17})


def bring_into_view(page: Page, target: Locator) -> None:
    """Scrolls until it is seen."""
    settle(page)
    target.scroll_into_view_if_needed()
    expect(target).to_be_in_viewport()
