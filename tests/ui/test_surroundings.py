"""From a row to what is around it: before and after, all of its trace, the search for one of its values."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.query.support.log_table import LogTable, fresh_tenant
from tests.ui.support.gestures import cell, choose_row, choose_value, expect_once, open_search, settle
from ui.components.surroundings import MARK, Scope, scopes_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROWS = 120


def test_a_row_says_its_host_service_and_trace_under_the_names_of_shippers() -> None:
    """The first name that has a value; nothing where none has."""
    fields = {"app": "shop", "service_name": "pay", "host": "", "hostname": "web-1", "trace_id": TRACE}
    assert scopes_of({"fields": fields}) == [
        Scope("host", "hostname", "web-1"),
        Scope("service", "service_name", "pay"),
        Scope("trace", "trace_id", TRACE),
    ]
    assert scopes_of({"fields": {"status": "5"}}) == []


def test_a_scope_is_searched_as_it_is_spelled() -> None:
    """Quotes and backslashes are text."""
    scope = Scope("host", "host", 'a "b" \\c')
    assert scope.query == r'host:"a \"b\" \\c"'
    assert scope.query_anywhere == r'"a \"b\" \\c" OR host:"a \"b\" \\c"'


@pytest.fixture(scope="module")
def tables(catalog_client: Any) -> tuple[LogTable, LogTable]:
    """Two streams of a tenant; every fortieth row of the first is of one trace, as are two of the second,
    which call the field otherwise."""
    tenant, start = fresh_tenant("around"), datetime.now(UTC) - timedelta(minutes=20)
    logs, web = (LogTable(catalog_client, tenant, stream) for stream in ("logs", "web"))
    logs.append(
        [
            {
                "timestamp": start + timedelta(seconds=at),
                "severity": "WARN" if at % 40 == 0 else "INFO",
                "message": f"item {at}",
                "host": f"web-{at % 3}",
                "trace_id": TRACE if at % 40 == 0 else f"{at:032x}",
            }
            for at in range(ROWS)
        ]
    )
    rows = [(1.5, "asked", TRACE), (41.5, "answered", TRACE), (50.0, "another", "f" * 32)]
    web.append(
        [
            {"timestamp": start + timedelta(seconds=at_s), "message": said, "request": trace}
            for at_s, said, trace in rows
        ]
    )
    return logs, web


def open_row(page: Page, uri: str, table: LogTable, query: str) -> None:
    """Opens the one row that matches."""
    open_search(page, uri, table, q=query)
    choose_row(page, 0)
    expect(page.get_by_role("tab", name="JSON")).to_be_visible()


def shown(dialog: Locator, row: int, column: int) -> Locator:
    """A cell of the table in a dialog; column 0 is the box to choose a row."""
    return dialog.get_by_test_id(f"glide-cell-{column}-{row}")


@pytest.mark.stack
@pytest.mark.parametrize("width", [1280, pytest.param(400, marks=pytest.mark.prove)])
def test_the_rows_before_and_after_are_shown_whatever_they_say_and_one_is_opened(
    page: Page, ui_uri: str, tables: tuple[LogTable, LogTable], width: int
) -> None:
    """Of the stream, and of the row's host alone; the row is marked; another one that is chosen opens in its
    place."""
    page.set_viewport_size({"width": width, "height": 900})
    open_row(page, ui_uri, tables[0], '"item 60"')
    dialog = page.get_by_role("dialog")
    for label, step in (("in its stream", 1), ("in its host", 3)):
        page.get_by_role("button", name=label).click()
        expect(dialog.get_by_text("8 rows before it and 8 after it")).to_be_visible()
        for at in (0, 8, 9):
            expect(shown(dialog, at, 4)).to_have_text(f"item {60 + step * (at - 8)}")
            expect(shown(dialog, at, 1)).to_have_text(MARK if at == 8 else "")
        if step == 1:
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
    dialog.get_by_text("50", exact=True).click()
    expect(dialog.get_by_text("20 rows before it and 19 after it")).to_be_visible()
    settle(page)
    dialog.locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 35 * 2 + 17})
    expect(dialog).to_have_count(0)
    expect(page.get_by_test_id("stCode").first).to_have_text("item 6")
    expect(page.get_by_role("textbox", name="Search", exact=True)).to_have_value('"item 60"')


@pytest.mark.stack
@pytest.mark.prove
def test_times_around_a_row_are_of_the_zone_that_the_page_has(
    page: Page, ui_uri: str, tables: tuple[LogTable, LogTable]
) -> None:
    """In the rows before and after it, and in its trace."""
    open_search(page, ui_uri, tables[0], q='"item 40"', zone="Asia/Kathmandu")
    choose_row(page, 0)
    expect(page.get_by_role("tab", name="JSON")).to_be_visible()
    dialog = page.get_by_role("dialog")
    for label in ("in its stream", "Whole trace"):
        page.get_by_role("button", name=label).click()
        title = dialog.locator("[role=columnheader]")  # behind a canvas
        expect(title.filter(has_text="(Asia/Kathmandu)")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


@pytest.mark.prove
@pytest.mark.stack
def test_the_whole_trace_is_shown_across_streams(
    page: Page, ui_uri: str, tables: tuple[LogTable, LogTable]
) -> None:
    """In order of time, whatever the other stream calls the field; a row of it that is chosen opens there."""
    open_row(page, ui_uri, tables[0], '"item 40"')
    page.get_by_role("button", name="Whole trace").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("5 rows of 2 streams")).to_be_visible()
    for at, (stream, said) in enumerate(
        (("logs", "item 0"), ("web", "asked"), ("logs", "item 40"), ("web", "answered"), ("logs", "item 80"))
    ):
        expect(shown(dialog, at, 2)).to_have_text(stream)
        expect(shown(dialog, at, 5)).to_have_text(said)
        expect(shown(dialog, at, 1)).to_have_text(MARK if said == "item 40" else "")
    settle(page)
    dialog.locator(".dvn-scroller").click(position={"x": 17, "y": 36 + 35 * 3 + 17})
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("combobox", name="Stream")).to_have_value("web")
    expect(page.get_by_test_id("stCode").first).to_have_text("answered")
    expect_once(page.get_by_text("2 rows", exact=True))
    assert parse_qs(urlsplit(page.url).query)["stream"] == ["web"]


@pytest.mark.prove
@pytest.mark.stack
@pytest.mark.parametrize(
    ("label", "rows", "query"),
    [
        ("Only these", 40, 'item AND host:"web-1"'),
        ("Without these", 80, 'item AND NOT host:"web-1"'),
    ],
)
def test_a_value_of_a_row_becomes_a_filter(
    page: Page, ui_uri: str, tables: tuple[LogTable, LogTable], label: str, rows: int, query: str
) -> None:
    """A click on the value, and one on what is wanted."""
    open_search(page, ui_uri, tables[0], q="item")
    choose_row(page, 1)
    expect_once(page.get_by_text("Choose a value to search for it, or for rows without it."))
    choose_value(page, 2)
    page.get_by_role("button", name=label).click()
    expect_once(page.get_by_text(f"{rows} rows", exact=True))
    expect(page.get_by_role("textbox", name="Search", exact=True)).to_have_value(query)
    expect(page.get_by_role("tab", name="JSON")).to_have_count(0)
    expect(cell(page, 0, 3)).to_have_text(re.compile(r"item \d+"))


@pytest.mark.stack
@pytest.mark.prove
def test_a_time_is_no_filter(page: Page, ui_uri: str, tables: tuple[LogTable, LogTable]) -> None:
    """The page says so instead of offering a search that finds nothing."""
    open_row(page, ui_uri, tables[0], '"item 7"')
    choose_value(page, 0)
    expect(page.get_by_text("cannot be searched by a click.")).to_be_visible()
    expect(page.get_by_role("button", name="Only these")).to_have_count(0)
