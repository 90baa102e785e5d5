"""`python -m tests.ui.support.screenshots http://127.0.0.1:PORT`: the pictures in docs/screenshots, taken
anew from the browser address of a running demo."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from playwright.sync_api import Page, expect, sync_playwright

from tests.ui.support.browser import CHROMIUM, OPTIONS, PATIENCE_MS
from tests.ui.support.gestures import choose, choose_row, settle

FOLDER = Path(__file__).parents[3] / "docs/screenshots"
PLOT_MS = 40_000  # until the plots of the health page have some points


def search(page: Page) -> None:
    """A row of a search in detail."""
    choose_row(page, 1)
    expect(page.get_by_test_id("stCode").first).to_contain_text(re.compile(r"\w"))


def sql(page: Page) -> None:
    """The answer of the example."""
    choose(page, "Tenant", "acme-shop")
    settle(page)
    page.get_by_role("textbox", name="Statement").press("Control+Enter")
    page.get_by_role("button", name="As CSV").first.wait_for()


def tenants(page: Page) -> None:
    """One stream in detail."""
    choose_row(page, 0)


def errors(page: Page) -> None:
    """A row with the value that did not fit."""
    page.get_by_test_id("stDataFrame").nth(1).locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 17})


def health(page: Page) -> None:
    """Plots with some points."""
    page.wait_for_timeout(PLOT_MS)


PAGES: dict[str, tuple[str, Callable[[Page], None]]] = {
    "search": ("?tenant=acme-shop&stream=logs&from=now-6h&q=failed OR declined OR timeout", search),
    "sql": ("sql", sql),
    "tenants": ("tenants", tenants),
    "errors": ("errors", errors),
    "dead-letters": ("dead-letters", tenants),
    "health": ("health", health),
}


def take(
    address: Annotated[str, typer.Argument(help="of the front end")],
    folder: Annotated[Path, typer.Option(help="where they go")] = FOLDER,
) -> None:
    """Takes a picture of every page, 1280 by 900."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_MS)
        for name, (path, prepare) in PAGES.items():
            page.goto(f"{address.rstrip('/')}/{path}")
            page.get_by_test_id("stSkeleton").first.wait_for(state="detached")
            settle(page)
            prepare(page)
            settle(page)
            page.mouse.move(0, 0)
            page.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    typer.run(take)
