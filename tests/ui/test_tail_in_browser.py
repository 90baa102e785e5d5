"""The live tail in a real browser: it ends with its page, its session and its visitor, and shows text as
text."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.stack.support.waiting import wait_for
from tests.ui.support.front_end import start_front_end
from tests.ui.support.gestures import expect_once, settle
from tests.ui.support.tail_server import TailServer, event, record, tail_server

pytestmark = pytest.mark.stack
KEY = "firn_0a1b2c_secret"
HOST = "foreign.example"
HOSTILE = [
    f"![s](//{HOST}/p.png) [click](https://{HOST}/) https://{HOST}/auto",
    f"<img src=https://{HOST}/v.png onerror=alert(1)><a href=//{HOST}>x</a>",
    f"</li></ol><script src=//{HOST}/s.js></script>",
]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def api() -> Iterator[TailServer]:
    with tail_server(key=KEY) as running:
        yield running


@pytest.fixture(scope="module")
def pages(api: TailServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a front end on that API."""
    child = start_front_end(api.address, Path(tmp_path_factory.mktemp("ui")))
    yield child.address
    child.kill()


def sign_in(page: Page, address: str, **asked: str) -> None:
    """Opens the page of the tail and shows it the key."""
    page.goto(f"{address}/tail?{urlencode(asked)}")
    settle(page)  # else the key is typed into a page that is drawn anew, and Enter sends nothing
    box = page.get_by_label("API key")
    box.fill(KEY)
    box.press("Enter")
    expect(page.get_by_role("heading", name="Live tail")).to_be_visible()


def start(page: Page, api: TailServer) -> None:
    settle(page)  # a click into a page that is being drawn has it drawn twice, and the tail begun twice
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert api.tails == 1


def is_over(api: TailServer) -> None:
    wait_for(lambda: api.tails == 0, WAIT_S, "the end of the tail")


@pytest.mark.parametrize("width", [1280, pytest.param(400, marks=pytest.mark.prove)])
def test_records_come_to_the_page_by_themselves_and_hostile_ones_are_text(
    page: Page, api: TailServer, pages: str, width: int
) -> None:
    """Nothing is fetched from elsewhere, nothing leads there, nothing lies beside the screen."""
    page.set_viewport_size({"width": width, "height": 900})
    foreign = list[str]()
    page.on("request", lambda request: foreign.append(request.url) if HOST in request.url else None)
    sign_in(page, pages, tenant="acme", stream="web", words="of the net")
    expect(page.get_by_role("textbox", name="Words", exact=True)).to_have_value("of the net")
    start(page, api)
    assert api.asked[-1] == {"tenant": "acme", "stream": "web", "words": "of the net"}
    api.say(*(record(text, text) for text in HOSTILE), event("dropped", records=7, total=7))
    lines = page.locator(".firn-tail li")
    expect(lines).to_have_count(4)
    expect(lines.first).to_have_text("7 records left out here: they came faster than they could be read")
    for line, text in zip((3, 2, 1), HOSTILE, strict=True):
        expect(lines.nth(line)).to_contain_text(text)
    assert page.locator(".firn-tail").locator("img, a, script, iframe").count() == 0
    assert foreign == []
    wide = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{wide}.scrollWidth - {wide}.clientWidth") == 0
    page.get_by_role("button", name="Stop").click()
    is_over(api)
    expect(page.get_by_role("button", name="Start")).to_be_visible()


@pytest.mark.prove
def test_the_tail_ends_when_its_page_or_its_visitor_leaves(page: Page, api: TailServer, pages: str) -> None:
    """Another page, signing out, another address: each is noticed at once, though no record comes. What one
    key has seen is not there for the next one."""
    sign_in(page, pages)
    start(page, api)
    page.get_by_role("link", name="Errors", exact=True).click()
    is_over(api)
    page.get_by_role("link", name="Live tail", exact=True).click()
    expect_once(page.get_by_text("Nothing runs yet."))
    start(page, api)
    api.say(record("seen by one key"))
    expect(page.locator(".firn-tail li")).to_have_count(1)
    settle(page)
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_role("button", name="Sign out").click()
    is_over(api)
    settle(page)
    box = page.get_by_label("API key")
    box.fill(KEY)
    box.press("Enter")
    expect_once(page.get_by_text("Nothing runs yet."))
    start(page, api)
    page.goto("about:blank")
    is_over(api)


def test_the_tail_ends_with_a_closed_tab(context: BrowserContext, api: TailServer, pages: str) -> None:
    """Streamlit keeps the session for a while; the tail is not kept."""
    tab = context.new_page()
    sign_in(tab, pages)
    start(tab, api)
    tab.close()
    is_over(api)
