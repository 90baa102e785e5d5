"""A browser, and the pages of the shared stack."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from infra.local.supervisor import Stack

CHROMIUM = "/usr/bin/chromium"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def ui_uri(stack: Stack) -> str:
    """The address of the front end, and the API behind it, on the shared stack."""
    if not stack.running("ui"):
        stack.start("query", "ui")
    return stack.address("ui")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window, which calls nobody."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page of 1280 by 900."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def query_uri(stack: Stack, ui_uri: str) -> str:
    """The address of the API behind the pages of the shared stack."""
    return stack.address("query")
