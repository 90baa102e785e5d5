"""The pages about the line as an operator uses them: errors, dead letters, health, over an ingester of one
topic."""

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from lake.log_schema import ValueReason
from tests.query.support.following import Following
from tests.query.support.json_answers import JsonAnswers
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for
from tests.ui.support.accessibility import expect_accessible
from tests.ui.support.front_end import start_front_end
from tests.ui.support.gestures import cell, choose, choose_row, expect_once, open_page
from ui.app_pages.errors import WHAT

WITHOUT_TENANT = b'{"message":"sent without a tenant"}'
BROKEN = b'{"message": "cut o'


def test_every_reason_of_a_value_that_did_not_fit_is_explained() -> None:
    """The errors page has a sentence for each, and none for reasons that are gone."""
    assert set(WHAT) == set(ValueReason)


@pytest.fixture(scope="module")
def following(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    """Three rows, one with a time that cannot be read; a broken message; one that names no tenant."""
    made = Following(line, tmp_path_factory.mktemp("following-pages"))
    now = datetime.now(UTC).isoformat().encode()
    sound = [b'{"message":"%b","timestamp":"%b"}' % (message, now) for message in (b"first", b"second")]
    made.produce(made.tenant, *sound, b'{"message":"third","timestamp":"yesterday"}', BROKEN)
    line.kafka.produce(made.topic, [Record(WITHOUT_TENANT)])
    made.ingester.start()
    made.line.wait_for_rows(made.ingester, made.tenant, 3)
    wait_for(lambda: len(made.get("dead-letters")["dead_letters"]) == 2, 60.0, "the letters")
    yield made
    made.end()


@pytest.fixture(scope="module")
def pages(following: Following, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a front end on that API."""
    child = start_front_end(following.api.address, Path(tmp_path_factory.mktemp("ui")))
    yield child.address
    child.kill()


@pytest.mark.stack
def test_errors_are_listed_by_reason_and_field_with_the_value_and_a_search(
    page: Page, following: Following, pages: str
) -> None:
    """The group says what it means and shows the value; a row shows it in full; the link searches for these
    rows."""
    page.goto(f"{pages}/errors")
    choose(page, "Tenant", following.tenant)
    expect_once(page.get_by_text("1 row with values that did not fit."))
    for column, text in enumerate(("bad_timestamp", WHAT["bad_timestamp"], "/timestamp", "1", "yesterday")):
        expect(cell(page, 0, column)).to_have_text(text)
    page.get_by_test_id("stDataFrame").nth(1).locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 17})
    expect_once(page.get_by_text("Values that did not fit their columns"))
    expect_accessible(page)
    address = cell(page, 0, 5).inner_text()
    assert parse_qs(urlsplit(address).query)["q"] == ["_errors:bad_timestamp"]
    page.goto(f"{pages}{address}")
    expect_once(page.get_by_text("1 row", exact=True))
    expect(cell(page, 0, 2)).to_have_text("third")


@pytest.mark.stack
def test_a_dead_letter_is_read_whole_and_sent_again(page: Page, following: Following, pages: str) -> None:
    """The list tells reasons; a letter shows its bytes; the dry run tells what would happen; sent to a tenant
    it becomes a row."""
    open_page(page, f"{pages}/dead-letters", "2 letters shown, newest first; 2 reasons.")
    choose(page, "Tenant", following.tenant)
    expect_once(page.get_by_text("1 letter shown, newest first; 1 reason."))
    choose_row(page, 0)
    expect(page.get_by_test_id("stCode").first).to_contain_text("cut o")
    choose(page, "Tenant", "(all tenants)")
    box = page.get_by_label("Reason")
    box.fill("tenant_missing")
    box.press("Enter")
    expect_once(page.get_by_text("1 letter shown"))
    page.get_by_text("Send them again").click()
    target = page.get_by_role("textbox", name="To tenant")
    target.fill(following.other)
    target.press("Enter")
    page.get_by_role("button", name="What would happen?").click()
    expect(page.get_by_test_id("stAlert")).to_contain_text("1 letter would be sent")
    expect_accessible(page)
    assert not following.line.exists(following.other)
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_test_id("stAlert")).to_contain_text("1 letter sent")
    following.line.wait_for_rows(following.ingester, following.other, 1)


@pytest.mark.stack
def test_health_shows_what_runs_and_how_far_ingestion_is_behind(
    page: Page, following: Following, pages: str
) -> None:
    """Services, lag, maintenance; when ingestion stops, the lag grows on the open page, and a search says
    that it is not complete."""
    page.goto(f"{pages}/health")
    for service in ("catalog", "trino", "ingest"):
        expect(page.get_by_text(service, exact=True).first).to_be_visible()
    expect_once(page.get_by_text("0 records", exact=True))
    expect_once(page.get_by_text("“buffered, bytes” is not known"))
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(1)
    expect_once(page.get_by_text("No table is parked"))
    expect_once(page.get_by_text("The lake has no retention"))
    expect_once(page.get_by_text(re.compile("Nobody runs it now|Runs now")))
    expect_accessible(page)
    following.ingester.stop()
    following.produce(following.tenant, b'{"message":"waits"}')
    expect_once(page.get_by_text("1 record", exact=True))
    wait_for(lambda: not following.post("search", tenant=following.tenant)["as_usual"], 30.0, "a long wait")
    page.goto(f"{pages}/?tenant={following.tenant}&from=now-1h")
    expect_once(page.get_by_text("Not complete."))
    expect(page.get_by_test_id("stAlert")).to_contain_text("1 record behind")
    following.ingester.start()


class Usual(JsonAnswers, BaseHTTPRequestHandler):
    """What ingest says while one record waits for its flush and nothing is wrong."""

    def do_GET(self) -> None:
        now = datetime.now(UTC)
        until = now - timedelta(seconds=12)
        told = {"now": now.isoformat(), "complete_until": until.isoformat(), "flush_interval_s": 300}
        self.answer({**told, "lag_records": 1, "parked": {}})


@pytest.fixture
def usual(line: Line, tmp_path: Path) -> Iterator[str]:
    """The address of an API beside such an ingest."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Usual) as ingest:
        threading.Thread(target=ingest.serve_forever, daemon=True).start()
        own = {
            "FIRN_QUERY_INGEST__URI": f"http://127.0.0.1:{ingest.server_port}",
            "FIRN_QUERY_STATE": str(tmp_path / "query"),
        }
        api = Child("query", tmp_path, {**line.stack.environment(), **own}).start()
        yield api.address
        api.kill()
        ingest.shutdown()


@pytest.mark.stack
@pytest.mark.prove
def test_records_that_wait_for_their_flush_are_told_in_the_small_line(
    page: Page, line: Line, tmp_path: Path, usual: str
) -> None:
    """Within twice the flush interval nothing is wrong: the line says up to when everything is there, and no
    banner stands on the page."""
    table = LogTable(line.catalog, fresh("usual-"))
    table.append([{"timestamp": datetime.now(UTC), "message": "is there"}])
    ui = start_front_end(usual, tmp_path)
    try:
        page.goto(f"{ui.address}/?tenant={table.tenant}&from=now-1h")
        expect_once(page.get_by_text(re.compile(r"1 row · everything until \d+ s ago ·")))
        expect(page.get_by_test_id("stAlert")).to_have_count(0)
    finally:
        ui.kill()
