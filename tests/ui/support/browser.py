"""A browser, and the pages of the shared stack. One for the whole run: Playwright cannot be started twice in
a process."""

import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from infra.local.supervisor import Stack

CHROMIUM = "/usr/bin/chromium-headless-shell"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 60_000
# What turns, glides or shimmers while a page waits is painted sixty times a second, by the processor here.
NO_MOVEMENT = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important }";
  document.head.appendChild(style);
});
"""
expect.set_options(timeout=PATIENCE_MS)
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells the fixtures of a test that it failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def ui_uri(stack: Stack) -> str:
    """The address of the front end, and the API behind it, on the shared stack."""
    if not stack.running("ui"):
        stack.start("query", "ui")
    return stack.address("ui")


# While it is open an event loop runs in this thread, and tests behind it could start none.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window, which calls nobody."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


# Pages of one context share what they load: the front end's scripts are compiled once.
@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Where a module's pages live."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(NO_MOVEMENT)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A fresh page of 1280 by 900, which knows nothing of those before; where the test fails, a picture of it
    is kept."""
    page = context.new_page()
    yield page
    if request.node.stash.get(FAILED, False):
        page.screenshot(path=tmp_path / "page.png")
        sys.stderr.write(f"the page when the test failed: {tmp_path / 'page.png'}\n")
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear()")
    page.close()
    context.clear_cookies()
