"""The search page as a person uses it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
from playwright.sync_api import Page, expect

from tests.query.support.log_table import LogTable, fresh_tenant
from tests.ui.support.accessibility import expect_accessible
from tests.ui.support.gestures import cell, choose, choose_row, expect_once, open_search, settle

pytestmark = pytest.mark.stack

ROWS = 400


@pytest.fixture(scope="module")
def table(catalog_client: Any) -> LogTable:
    """An hour of logs that stays as it is."""
    return hour_of_logs(catalog_client)


def hour_of_logs(catalog_client: Any) -> LogTable:
    """Every fiftieth line is a refused connection."""
    table = LogTable(catalog_client, fresh_tenant("browser"))
    start = datetime.now(UTC) - timedelta(minutes=50)
    table.append(
        [
            {
                "timestamp": start + timedelta(seconds=7 * at),
                "severity": "ERROR" if at % 50 == 0 else "INFO",
                "message": f"connection refused number {at}" if at % 50 == 0 else f"item {at} served",
                "host": f"web-{at % 3}",
            }
            for at in range(ROWS)
        ]
    )
    return table


def test_a_search_is_typed_a_row_opened_and_the_link_opens_it_again(
    page: Page, ui_uri: str, catalog_client: Any
) -> None:
    """Typing words shows the histogram and the right rows; a row shows its fields; its link shows the same
    rows, even after more came."""
    table = hour_of_logs(catalog_client)
    open_search(page, ui_uri, table)
    expect_once(page.get_by_text("400 rows"))
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill("refused")
    box.press("Enter")
    expect_once(page.get_by_text("8 rows"))
    expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first).to_be_visible()
    expect(cell(page, 0, 3)).to_have_text("connection refused number 350")
    expect(cell(page, 7, 3)).to_have_text("connection refused number 0")
    choose_row(page, 1)
    expect(page.get_by_text("connection refused number 300", exact=True).last).to_be_visible()
    page.get_by_role("tab", name="Origin").click()
    expect_once(page.get_by_text("These coordinates identify the row"))
    page.get_by_role("button", name="Link").click()
    link = page.get_by_test_id("stCode").filter(has_text="pin=").inner_text().strip()
    assert {"tenant", "q", "pin", "row"} <= set(parse_qs(urlsplit(link).query))
    table.append(
        [{"timestamp": datetime.now(UTC) - timedelta(minutes=20), "message": "connection refused later"}]
    )
    page.goto(link)
    expect_once(page.get_by_text("8 rows"))
    expect_once(page.get_by_text("pinned"))
    expect(cell(page, 1, 3)).to_have_text("connection refused number 300")
    expect(page.get_by_text("connection refused number 300", exact=True).last).to_be_visible()


def test_a_wrong_query_is_shown_with_the_place_of_its_fault(page: Page, ui_uri: str, table: LogTable) -> None:
    """The error is a sentence, the query is repeated, and a caret stands below the fault."""
    open_search(page, ui_uri, table)
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill('message:"never closed')
    box.press("Enter")
    expect(page.get_by_test_id("stCode").first).to_contain_text("never closed")
    expect(page.get_by_test_id("stCode").first).to_contain_text("^")


def test_a_search_with_pipes_shows_figures_as_a_table_bars_and_lines(
    page: Page, ui_uri: str, table: LogTable
) -> None:
    """The choices are those that make sense of the columns; a wrong stage is shown with its place."""
    open_search(page, ui_uri, table)
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill("served | stats count() as n by bucket(10m), host")
    box.press("Enter")
    expect(cell(page, 0, 1)).to_have_text(re.compile("web-[012]"))
    chart_of = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first
    for way in ("Bars", "Lines"):
        page.get_by_role("radio", name=way).click()
        expect(chart_of).to_be_visible()
    box.fill("| stats count() as n, count(host) as hosts")
    box.press("Enter")
    page.get_by_role("radio", name="Figure").click()
    expect(page.get_by_test_id("stMetricValue")).to_have_text(["400", "400"])
    expect_accessible(page)
    box.fill("served | tops host")
    box.press("Enter")
    expect(page.get_by_test_id("stCode").first).to_contain_text("^^^^")


def test_a_search_that_finds_nothing_says_what_to_do(page: Page, ui_uri: str, table: LogTable) -> None:
    """An empty page is not silent: it says how new the stream is, and which field was probably meant."""
    open_search(page, ui_uri, table, q="hots:web-1")
    expect_once(page.get_by_text("Did you mean host"))
    expect_once(page.get_by_text("No row in this time range matches."))


@pytest.mark.prove
def test_where_nothing_is_found_a_button_leads_to_the_newest_row(
    page: Page, ui_uri: str, catalog_client: Any
) -> None:
    """A stream whose rows are older than the range; the history leads back."""
    old = LogTable(catalog_client, fresh_tenant("quiet"))
    old.append([{"timestamp": datetime.now(UTC) - timedelta(days=40), "message": "the last one"}])
    open_search(page, ui_uri, old, q="gone")
    page.get_by_role("button", name="Go to the newest row").click()
    expect_once(page.get_by_text("1 row", exact=True))
    expect(cell(page, 0, 2)).to_have_text("the last one")
    page.get_by_role("button", name="History").click()
    page.get_by_role("button", name=re.compile("gone .* Last hour")).click()
    expect(page.get_by_role("textbox", name="Search", exact=True)).to_have_value("gone")
    expect_once(page.get_by_text("No row in this time range matches."))
    expect_accessible(page)


@pytest.mark.prove
def test_several_streams_are_searched_at_once(page: Page, ui_uri: str, catalog_client: Any) -> None:
    """Their rows stand together by time, each with its stream; the address and the row that is opened say
    which."""
    tenant, now = fresh_tenant("several"), datetime.now(UTC) - timedelta(minutes=10)
    tables = [LogTable(catalog_client, tenant, stream) for stream in ("logs", "audit")]
    for at, each in enumerate(tables):
        each.append(
            [
                {"timestamp": now + timedelta(seconds=2 * number + at), "message": f"{each.stream} {number}"}
                for number in range(3)
            ]
        )
    open_search(page, ui_uri, tables[0])
    expect_once(page.get_by_text("3 rows", exact=True))
    page.get_by_role("button", name="Streams").click()
    choose(page, "Also in, besides logs", "audit")
    expect_once(page.get_by_text("6 rows", exact=True))
    page.keyboard.press("Escape")
    for row, (stream, number) in enumerate((stream, at) for at in (2, 1, 0) for stream in ("audit", "logs")):
        expect(cell(page, row, 2)).to_have_text(stream)
        expect(cell(page, row, 3)).to_have_text(f"{stream} {number}")
    choose_row(page, 0)
    expect(page.get_by_test_id("stCode").filter(has_text="audit 2").first).to_be_visible()
    assert parse_qs(urlsplit(page.url).query)["also"] == ["audit"]
    page.goto(page.url)
    expect_once(page.get_by_text("6 rows", exact=True))
    expect(page.get_by_test_id("stCode").filter(has_text="audit 2").first).to_be_visible()


def test_times_are_of_the_zone_that_the_address_names(page: Page, ui_uri: str, table: LogTable) -> None:
    """In the table's title and cells; the choice leads back to UTC."""
    open_search(page, ui_uri, table, q="refused number", zone="Asia/Kathmandu")
    title = page.get_by_test_id("stDataFrame").first.locator("[role=columnheader]")  # behind a canvas
    expect(title.filter(has_text="(Asia/Kathmandu)")).to_have_count(1)
    there = cell(page, 0, 1).inner_text()
    choose(page, "Times in", "UTC")
    expect(title.filter(has_text="(UTC)")).to_have_count(1)
    minutes = [int(text[-12:-10]) * 60 + int(text[-9:-7]) for text in (there, cell(page, 0, 1).inner_text())]
    assert (minutes[0] - minutes[1]) % (24 * 60) == 5 * 60 + 45


def chart(page: Page) -> Any:
    """The box of the histogram, in pixels."""
    settle(page)
    box = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg.marks").first.bounding_box()
    assert box is not None
    return box


def narrowed(page: Page) -> tuple[timedelta, int]:
    """Takes the range that was chosen in the histogram: its length, and how many rows it has."""
    page.get_by_role("button", name=re.compile("Narrow to")).click()
    rows = page.get_by_text(re.compile(r"^\d+ rows$"))
    expect(rows).not_to_have_text(f"{ROWS} rows")
    for label in ("From", "To"):
        expect(page.get_by_label(label, exact=True)).to_have_value(re.compile(r"\d{4}-"))
    times = [
        datetime.fromisoformat(page.get_by_label(label, exact=True).input_value()) for label in ("From", "To")
    ]
    return times[1] - times[0], int(rows.inner_text().split()[0])


@pytest.mark.prove
def test_dragging_over_the_histogram_narrows_the_range(page: Page, ui_uri: str, table: LogTable) -> None:
    """The chosen stretch becomes the range, and the rows are those in it."""
    open_search(page, ui_uri, table)
    box = chart(page)
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=8)
    page.mouse.up()
    length, rows = narrowed(page)
    assert timedelta(minutes=8) < length < timedelta(minutes=16)
    assert 60 < rows < 140


def test_a_click_on_a_bar_of_the_histogram_narrows_the_range_to_it(
    page: Page, ui_uri: str, table: LogTable
) -> None:
    """One row comes every seven seconds, and a bar of an hour's histogram is a minute."""
    open_search(page, ui_uri, table)
    box = chart(page)
    for shift_px in (0, 6):  # between two bars there is a gap
        page.mouse.click(box["x"] + box["width"] * 0.5 + shift_px, box["y"] + box["height"] * 0.6)
        settle(page)
        if page.get_by_role("button", name=re.compile("Narrow to")).count():
            break
    length, rows = narrowed(page)
    assert length == timedelta(minutes=1)
    assert 8 <= rows <= 9


@pytest.mark.prove
def test_top_values_become_filters_and_columns(page: Page, ui_uri: str, table: LogTable) -> None:
    """The values of a field with their counts; one is excluded, another alone is wanted; a field becomes a
    column."""
    open_search(page, ui_uri, table)
    settle(page)
    page.get_by_text("Fields", exact=True).click()
    choose(page, "Top values of", "host · string · 100% of rows")
    expect_once(page.get_by_text("web-0 134"))
    expect_accessible(page)
    page.locator(".st-key-not-0 button").first.click()
    expect_once(page.get_by_text("266 rows", exact=True))
    expect(page.get_by_role("textbox", name="Search", exact=True)).to_have_value('NOT host:"web-0"')
    expect(page.get_by_text("web-0 134")).to_have_count(0)  # the list before has web-1, too
    expect_once(page.get_by_text("web-1 133"))
    page.locator(".st-key-add-0 button").first.click()
    expect_once(page.get_by_text("133 rows", exact=True))
    choose(page, "Columns", "host")
    expect(cell(page, 0, 3)).to_have_text("web-1")


def test_all_rows_are_fetched_as_a_file_from_the_page(page: Page, ui_uri: str, table: LogTable) -> None:
    """An export is asked for, is written in the background, and its download holds the rows of the search."""
    open_search(page, ui_uri, table, q="refused number")
    settle(page)
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Export all rows").click()
    page.get_by_role("button", name=re.compile("ndjson · 8 rows")).wait_for()
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("ndjson · 8 rows")).click()
    lines = download.value.path().read_bytes().splitlines()
    assert [orjson.loads(line)["message"] for line in lines] == [
        f"connection refused number {at}" for at in range(0, ROWS, 50)
    ]


def test_the_tenants_page_lists_rows_files_and_freshness(page: Page, ui_uri: str, table: LogTable) -> None:
    """Every stream with its counts; the filter finds one of them."""
    page.goto(f"{ui_uri}/tenants")
    expect(page.get_by_text("Tenants and streams").first).to_be_visible()
    box = page.get_by_placeholder("part of a tenant's name")
    box.fill(table.tenant)
    box.press("Enter")
    expect_once(page.get_by_text("1 stream."))
    expect(cell(page, 0, 1)).to_have_text(table.tenant)  # column 0 is the box to choose a row
