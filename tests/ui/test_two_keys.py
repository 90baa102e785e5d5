"""The pages of an API that asks for keys: each key sees its own tenant, on every page, and nothing of the other one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK, reserve_free
from infra.local.supervisor import Stack
from tests.query.guarded import SECRET, START, Guarded, start_guarded
from tests.stack.waiting import wait_for
from tests.ui.conftest import PATIENCE_MS

pytestmark = pytest.mark.stack

PAGES = ("SQL", "Tenants and streams", "Errors", "Dead letters", "Health", "Search")
OURS, THEIRS = "Alder", "Birch"
READY_S = 60.0
SETTLES_MS = 1_500


@pytest.fixture(scope="module")
def guarded(stack: Stack, catalog_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A catalog and an API that want keys, with two tenants."""
    guarded = start_guarded(stack, catalog_client, tmp_path_factory.mktemp("keys"), (OURS, THEIRS))
    yield guarded
    guarded.end()


@pytest.fixture(scope="module")
def guarded_ui(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The front end on that API."""
    folder, port = Path(tmp_path_factory.mktemp("ui")), reserve_free()
    options = ("--server.address", LOOPBACK, "--server.port", str(port), "--server.headless", "true", "--browser.gatherUsageStats", "false")
    environment = {**os.environ, "FIRN_UI_API": guarded.api.address}
    with (folder / "ui.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "streamlit", "run", "ui/app.py", *options], cwd=REPOSITORY, env=environment, stdout=log, stderr=log)

    def ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"http://{LOOPBACK}:{port}/_stcore/health", trust_env=False).is_success
        except httpx.HTTPError:
            return False

    try:
        wait_for(ready, READY_S, "the front end being ready")
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.kill()
        process.wait()


def sign_in(page: Page, key: str) -> None:
    """Types a key into the form."""
    box = page.get_by_label("API key")
    box.fill(key)
    box.press("Enter")


def settle(page: Page) -> None:
    """Returns when the page is drawn."""
    page.wait_for_timeout(SETTLES_MS)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)


@pytest.mark.parametrize(("key", "own", "foreign"), [("mine", OURS, THEIRS), ("theirs", THEIRS, OURS)])
def test_a_key_sees_its_tenant_on_every_page_and_no_other(page: Page, guarded: Guarded, guarded_ui: str, key: str, own: str, foreign: str) -> None:
    """Signed in with one key, the tenants page lists its tenant; no page names the other one or shows a word of its rows."""
    page.goto(f"{guarded_ui}/tenants")
    sign_in(page, guarded.keys[key])
    expect(page.get_by_text("signed in with key")).to_be_attached()
    expect(page.get_by_text("1 stream.")).to_be_visible()
    settle(page)  # the list is drawn on a canvas, its words follow
    assert own in page.content()
    for name in PAGES:
        page.get_by_role("link", name=name, exact=True).click()
        settle(page)
        assert foreign not in page.content(), name
        assert key == "theirs" or SECRET not in page.content(), name


def test_a_link_to_another_tenants_rows_opens_for_its_own_key_alone(browser: Browser, guarded: Guarded, guarded_ui: str) -> None:
    """The same address: rows for whom they belong to, a sentence for the other."""
    link = f"{guarded_ui}/?{urlencode({'tenant': THEIRS, 'stream': 'logs', 'from': START.isoformat(), 'to': START.replace(hour=11).isoformat()})}"
    for key, outcome in (("theirs", "30 rows"), ("mine", f"There is no tenant “{THEIRS}” that you can see")):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(link)
        sign_in(page, guarded.keys[key])
        expect(page.get_by_text(outcome).first).to_be_visible()
        settle(page)
        assert (SECRET in page.content()) is (key == "theirs")
        context.close()


def test_a_wrong_key_is_told_so(page: Page, guarded_ui: str) -> None:
    """The form stays, with a sentence."""
    page.goto(guarded_ui)
    sign_in(page, "firn_000000000000_x")
    expect(page.get_by_text("This key is not in force.")).to_be_visible()
