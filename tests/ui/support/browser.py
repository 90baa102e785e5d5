"""A browser, and the pages of the shared stack. One for the whole run: Playwright cannot be started twice in
a process."""

import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from infra.local.supervisor import Stack

CHROMIUM = "/usr/bin/chromium-headless-shell"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # A page lives for seconds: to make its scripts faster is an eighth of all that it takes.
    "--js-flags=--no-opt --no-concurrent-recompilation",
]
PATIENCE_MS = 60_000
SIZE: ViewportSize = {"width": 1280, "height": 900}
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


# What the front end loads is loaded once for the pages of a context.
@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Where a module's pages live."""
    context = browser.new_context(viewport=SIZE, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(NO_MOVEMENT)
    yield context
    context.close()


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Iterator[Page]:
    """The page that tests of a module have one after the other: a new one would compile all scripts anew."""
    page = context.new_page()
    yield page
    page.close()


@pytest.fixture
def page(tab: Page, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A page of 1280 by 900 that shows nothing and knows nothing of those before; where the test fails, a
    picture of it is kept."""
    tab.set_viewport_size(SIZE)
    yield tab
    if request.node.stash.get(FAILED, False):
        tab.screenshot(path=tmp_path / "page.png")
        sys.stderr.write(f"the page when the test failed: {tmp_path / 'page.png'}\n")
    if tab.url.startswith("http"):
        tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.goto("about:blank")
    tab.context.clear_cookies()
