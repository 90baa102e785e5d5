"""Pictures of the pages for docs/screenshots: as wide as a desk and as a telephone, light and dark."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, expect

from tests.ui.support.gestures import choose, choose_row, settle
from tests.ui.support.menu import Entry
from tests.ui.support.pictured import BOARD

FOLDER = Path(__file__).parents[3] / "docs/screenshots"
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
# The height that a page has at least, and at most: what lies below is not seen.
HEIGHTS_PX = {1280: (800, 1500), 400: (800, 2000)}
QUALITY = 72
TENANT = "acme-shop"
CONTENT_PX = "document.querySelector('[data-testid=stMain]').scrollHeight"


def file_of(entry: Entry, width: int, scheme: Scheme) -> Path:
    """Where a picture is kept."""
    return FOLDER / f"{entry.called}-{width}-{scheme}.webp"


def _search(page: Page) -> None:
    """A row of a search in detail."""
    choose_row(page, 1)
    expect(page.get_by_role("tab", name="JSON")).to_be_visible()
    expect(page.get_by_test_id("stCode").first).to_contain_text(re.compile(r"\w"))


def _sql(page: Page) -> None:
    """The answer of the example."""
    choose(page, "Tenant", TENANT)
    settle(page)
    page.get_by_role("textbox", name="Statement").press("Control+Enter")
    page.get_by_role("button", name="As CSV").first.wait_for()


def _first_row(page: Page) -> None:
    """What is listed first, in detail."""
    choose_row(page, 0)


def _alerts(page: Page) -> None:
    """What fires."""
    choose(page, "Tenant", TENANT)


def _errors(page: Page) -> None:
    """A row with the value that did not fit."""
    choose(page, "Tenant", TENANT)
    settle(page)
    page.get_by_test_id("stDataFrame").nth(1).locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 17})


def _health(page: Page) -> None:
    """Plots with some points."""
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(2)


def _boards(page: Page) -> None:
    """Every tile of the board."""
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(2)
    expect(page.get_by_test_id("stMetricValue")).to_have_count(1)
    expect(page.get_by_test_id("stDataFrame")).to_have_count(1)


def _tail(page: Page, send: Callable[[], int]) -> None:
    """So many lines of a tail that runs as are sent."""
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.locator(".firn-tail li")).to_have_count(send())


# A page that is not among these is shown as it opens.
QUERIES = {
    "search": f"?tenant={TENANT}&stream=logs&from=now-6h&q=failed OR declined OR timeout",
    "tail": f"?tenant={TENANT}&stream=logs",
    "boards": f"?tenant={TENANT}&board={BOARD}",
}
PREPARED: dict[str, Callable[[Page], None]] = {
    "search": _search,
    "sql": _sql,
    "boards": _boards,
    "tenants": _first_row,
    "alerts": _alerts,
    "errors": _errors,
    "dead-letters": _first_row,
    "health": _health,
}


def take(page: Page, address: str, entry: Entry, width: int, send: Callable[[], int]) -> None:
    """Takes the pictures of a page. `address`: of the front end; `send`: has records come to a live tail."""
    least, most = HEIGHTS_PX[width]
    page.set_viewport_size({"width": width, "height": least})
    page.goto(f"{address.rstrip('/')}/{entry.path}{QUERIES.get(entry.called, '')}")
    page.get_by_test_id("stSkeleton").first.wait_for(state="detached")
    settle(page)
    if entry.called == "tail":
        _tail(page, send)
    else:
        PREPARED.get(entry.called, settle)(page)
    settle(page)
    page.set_viewport_size({"width": width, "height": min(max(least, page.evaluate(CONTENT_PX)), most)})
    page.mouse.move(0, 0)
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop = 0")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        settle(page)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.save(file_of(entry, width, scheme), "WEBP", quality=QUALITY, method=6)
    page.emulate_media(color_scheme="light")
