"""The pages of an API that asks for keys: each key sees its own tenant, on every page, and nothing of the
other one."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from infra.local.supervisor import Stack
from tests.query.support.guarded import SECRET, START, Guarded, start_guarded
from tests.query.support.processes import run
from tests.ui.support.front_end import start_front_end
from tests.ui.support.gestures import cell, choose_row, expect_once, open_list, settle
from ui.exposure import check_host

pytestmark = pytest.mark.stack

OURS, THEIRS = "Alder", "Birch"


@pytest.fixture(scope="module")
def guarded(stack: Stack, catalog_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A catalog and an API that want keys, with two tenants."""
    guarded = start_guarded(stack, catalog_client, tmp_path_factory.mktemp("keys"), (OURS, THEIRS))
    yield guarded
    guarded.end()


@pytest.fixture(scope="module")
def guarded_ui(guarded: Guarded) -> Iterator[str]:
    """The front end on that API."""
    child = start_front_end(guarded.api.address, guarded.folder)
    yield child.address
    child.kill()


def sign_in(page: Page, key: str) -> None:
    """Types a key into the form, once the page listens."""
    box = page.get_by_label("API key")
    expect(box).to_be_visible()
    settle(page)
    box.fill(key)
    box.press("Enter")


def shows(page: Page, guarded: Guarded, own: str) -> None:
    """Nothing of the other tenant stands on the page, neither in text nor in tables nor in any list that can
    be opened."""
    settle(page)
    foreign = next(table for table in (guarded.mine, guarded.theirs) if table.tenant != own)
    hidden = (foreign.tenant, foreign.name.namespace, *((SECRET,) if own == OURS else ("of Mine",)))
    read = [page.content()]
    for box in page.get_by_role("combobox").all():
        open_list(page, box)
        read.append(page.content())
        page.keyboard.press("Escape")
    for content in read:
        assert not [word for word in hidden if word in content], page.url


KEYS = pytest.mark.parametrize(
    ("key", "own"), [("mine", OURS), pytest.param("theirs", THEIRS, marks=pytest.mark.prove)]
)
# A page takes seconds of a processor: what the API keeps apart for the one is shown for the one.
A_KEY = pytest.mark.parametrize(("key", "own"), [("mine", OURS)])


@pytest.fixture
def signed_in(page: Page, guarded: Guarded, guarded_ui: str) -> Callable[..., Page]:
    """`signed_in(key, path)`: the page at that path, opened with one of the keys."""

    def open_with(key: str, path: str) -> Page:
        page.goto(f"{guarded_ui}/{path}")
        sign_in(page, guarded.keys[key])
        expect(page.get_by_text("signed in with key")).to_be_attached()
        return page

    return open_with


@KEYS
def test_the_search_page_knows_one_tenant(
    signed_in: Callable[..., Page], guarded: Guarded, key: str, own: str
) -> None:
    """Rows, fields and values of its own; lists, links, exports and saved searches of nobody else."""
    times = {"from": START.isoformat(), "to": START.replace(hour=11).isoformat()}
    page = signed_in(key, f"?{urlencode(times)}")
    expect(page.get_by_text("30 rows").first).to_be_visible()
    expect(cell(page, 0, 2)).to_have_text(f"{'of Mine' if own == OURS else SECRET} 29")
    for name in ("Export", "Saved"):
        page.get_by_role("button", name=name).click()
        settle(page)
        page.keyboard.press("Escape")
    page.get_by_text("Fields", exact=True).click()
    shows(page, guarded, own)


@pytest.mark.prove
@A_KEY
def test_the_sql_page_runs_over_one_tenant(
    signed_in: Callable[..., Page], guarded: Guarded, key: str, own: str
) -> None:
    """Its own table is counted; the other's is refused in a sentence, by its name as by its schema."""
    page = signed_in(key, "sql")
    foreign = next(table for table in (guarded.mine, guarded.theirs) if table.tenant != own)
    box = page.get_by_role("textbox", name="Statement")
    box.fill("SELECT count(*) AS found FROM logs")
    box.press("Control+Enter")
    expect_once(page.get_by_text("1 row", exact=True))
    expect(cell(page, 0, 0)).to_have_text("30")
    shows(page, guarded, own)
    for name in (f'"{foreign.tenant}".logs', f"{foreign.name.namespace}.logs"):
        box.fill(f"SELECT message FROM {name}")
        box.press("Control+Enter")
        expect(page.get_by_test_id("stAlert")).to_contain_text("This key does not reach tenant")
        assert SECRET not in page.content()


@pytest.mark.prove
@A_KEY
def test_the_tenants_page_lists_one_tenant(
    signed_in: Callable[..., Page], guarded: Guarded, key: str, own: str
) -> None:
    """One stream, its columns, its retention; the list of deleted streams offers no other."""
    page = signed_in(key, "tenants")
    expect_once(page.get_by_text("1 stream."))
    expect(cell(page, 0, 1)).to_have_text(own)
    choose_row(page, 0)
    expect(page.get_by_role("heading", name=f"{own} / logs")).to_be_visible()
    page.get_by_text("Deleted streams", exact=True).click()
    shows(page, guarded, own)


@A_KEY
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("alerts", "This tenant has no rules of alerts."),
        pytest.param("boards", "has no boards.", marks=pytest.mark.prove),
        pytest.param("errors", "Every value fitted its column.", marks=pytest.mark.prove),
        ("dead-letters", "Ingest at .* does not answer"),
        pytest.param("health", "Your key does not show parked tables", marks=pytest.mark.prove),
    ],
)
def test_the_other_pages_speak_of_one_tenant(
    signed_in: Callable[..., Page], guarded: Guarded, key: str, own: str, path: str, says: str
) -> None:
    """Each has something to say to a key of one tenant, and names no other one."""
    page = signed_in(key, path)
    if path == "errors":
        page.get_by_role("combobox", name="Time range").fill("Last 30 days")
        page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile(says)).first).to_be_visible()
    shows(page, guarded, own)


@KEYS
def test_a_link_opens_for_the_key_of_its_tenant_alone(
    page: Page, guarded: Guarded, guarded_ui: str, key: str, own: str
) -> None:
    """The same address: rows for whom they belong to, a sentence for the other."""
    times = {"from": START.isoformat(), "to": START.replace(hour=11).isoformat()}
    page.goto(f"{guarded_ui}/?{urlencode({'tenant': THEIRS, 'stream': 'logs', **times})}")
    sign_in(page, guarded.keys[key])
    if own == THEIRS:
        expect(page.get_by_text("30 rows").first).to_be_visible()
        expect(page.get_by_text(SECRET).first).to_be_attached()
    else:
        expect(page.get_by_text(f"There is no tenant “{THEIRS}” that you can see").first).to_be_visible()
        settle(page)
        assert SECRET not in page.content()


def test_a_wrong_key_is_told_so(page: Page, guarded_ui: str) -> None:
    """The form stays, with a sentence."""
    page.goto(guarded_ui)
    sign_in(page, "firn_000000000000_x")
    expect_once(page.get_by_text("This key is not in force."))


def test_no_key_is_written_into_the_front_ends_log(page: Page, guarded: Guarded, guarded_ui: str) -> None:
    """After good and bad ones were typed."""
    page.goto(guarded_ui)
    sign_in(page, guarded.keys["mine"])
    expect(page.get_by_text("signed in with key")).to_be_attached()
    log = (guarded.folder / "ui.log").read_text()
    assert guarded_ui.rsplit(":", 1)[1] in log
    assert not [name for name, key in guarded.keys.items() if key.split("_", 2)[2] in log]


def test_beyond_loopback_the_front_end_wants_an_api_that_asks_for_keys(
    guarded: Guarded, query_uri: str
) -> None:
    """On every interface it does not start before an API that lets everybody in, nor before one that does not
    answer; before one with keys it does."""
    for api, says in ((query_uri, "lets callers in without keys"), ("http://127.0.0.1:9", "does not answer")):
        done = run("ui", {"FIRN_UI_API": api}, "serve", "--host", "0.0.0.0", "--port", "0")
        assert done.returncode == 2, done.stderr
        assert "refuses to listen on 0.0.0.0" in done.stderr
        assert says in done.stderr
    check_host("0.0.0.0", guarded.api.address)
    check_host("127.0.0.1", query_uri)
