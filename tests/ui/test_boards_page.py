"""The page of boards: made, filled from other pages, its tiles over its range, changed, kept."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from lake.catalog_client import CatalogClient
from query.tables.board import board_of
from query.tables.board_store import BoardStore, StoredBoard, board_named
from tests.query.support.log_table import LogTable
from tests.stack.support.waiting import wait_for
from tests.ui.support.gestures import cell, expect_once, open_search, settle
from tests.ui.test_search_page import hour_of_logs

pytestmark = pytest.mark.stack
WAIT_S = 30.0
TILES: list[dict[str, Any]] = [
    {"title": "Refused", "query": "refused", "shown": "figure", "size": "small"},
    {"title": "Over time", "query": "served", "shown": "bars", "size": "small"},
    {"title": "Newest", "query": "", "size": "small"},
    {"title": "By host", "query": "| stats count() as n by bucket(10m), host", "shown": "lines"},
    {"title": "Wrong", "query": "| tops host"},
    {
        "title": "Statement",
        "sql": "SELECT count(*) AS n FROM logs WHERE timestamp >= {from} AND timestamp < {to}",
        "shown": "figure",
        "size": "large",
    },
]


def stored(catalog: CatalogClient, table: LogTable, name: str) -> StoredBoard:
    return board_named(BoardStore(catalog).of(table.id.tenant), name, table.id.tenant)


def of_tenant(table: LogTable, **more: str) -> str:
    return f"boards?{urlencode({'tenant': table.tenant, **more})}"


def test_an_answer_is_added_to_a_board_and_shown_there(
    page: Page, ui_uri: str, catalog_client: CatalogClient
) -> None:
    """A new one is made with it; the page shows the tile as it was drawn on the search page."""
    table = hour_of_logs(catalog_client)
    open_search(page, ui_uri, table, q="| stats count() as n by bucket(10m), host")
    page.get_by_role("radio", name="Bars").first.click()
    settle(page)
    page.get_by_role("button", name="Add to board").click()
    for label, text in (("Title of the board", "Web hosts"), ("Title of the tile", "Requests")):
        box = page.get_by_label(label, exact=True)
        box.fill(text)
        box.press("Enter")
        settle(page)
    page.get_by_role("button", name="Add", exact=True).click()
    expect_once(page.get_by_text("It is on the board."))
    board = stored(catalog_client, table, "web-hosts").board
    assert [(each.title, each.shown, each.size) for each in board.tiles] == [("Requests", "bars", "medium")]
    page.goto(f"{ui_uri}/{of_tenant(table, board='web-hosts')}")
    expect_once(page.get_by_text("Requests", exact=True))
    expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first).to_be_visible()


@pytest.mark.prove
def test_each_tile_asks_for_itself_over_the_range_of_the_board(
    page: Page, ui_uri: str, catalog_client: CatalogClient
) -> None:
    """A tile that cannot be answered says why, and the others are there. Another range asks anew."""
    table = hour_of_logs(catalog_client)
    board = board_of({"title": "All kinds", "from": "now-1h", "tiles": TILES})
    BoardStore(catalog_client).keep(StoredBoard(table.id.tenant, "kinds", board, "k", ""))
    page.goto(f"{ui_uri}/{of_tenant(table, board='kinds')}")
    figures = page.get_by_test_id("stMetricValue")
    expect(figures).to_have_text(["8", "400"])
    expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg")).to_have_count(2)
    expect(cell(page, 0, 2)).to_have_text(re.compile("item 399 served"))
    expect(page.get_by_test_id("stAlert")).to_contain_text("There is no stage 'tops'")
    page.goto(f"{ui_uri}/{of_tenant(table, board='kinds', **{'from': 'now-15m', 'to': 'now'})}")
    expect(figures).to_have_text([re.compile(r"^[1-7]$"), re.compile(r"^(\d\d|1\d\d)$")])
    assert stored(catalog_client, table, "kinds").version == 1


@pytest.mark.prove
def test_tiles_are_moved_and_removed_and_the_board_goes(
    page: Page, ui_uri: str, catalog_client: CatalogClient
) -> None:
    """Each change is written at once; what somebody else has changed meanwhile is not written over."""
    table = hour_of_logs(catalog_client)
    store, tenant = BoardStore(catalog_client), table.id.tenant
    tiles = [{"title": title, "query": "refused", "shown": "figure"} for title in ("first", "second")]
    store.keep(StoredBoard(tenant, "moved", board_of({"title": "Moved", "tiles": tiles}), "k", ""))

    def titles() -> list[str]:
        return [each.title for each in stored(catalog_client, table, "moved").board.tiles]

    page.goto(f"{ui_uri}/{of_tenant(table, board='moved')}")
    expect(page.get_by_test_id("stMetricValue")).to_have_text(["8", "8"])
    page.get_by_role("button", name="Tile").first.click()
    page.get_by_role("button", name="Later").click()
    wait_for(lambda: titles() == ["second", "first"], WAIT_S, "the tile that was moved")
    settle(page)
    page.keyboard.press("Escape")
    settle(page)
    kept = stored(catalog_client, table, "moved")
    store.keep(StoredBoard(tenant, "moved", board_of({**kept.board.to_json(), "title": "X"}), "k", "", 2))
    page.get_by_role("button", name="Tile").last.click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_test_id("stAlert")).to_contain_text("load it again")
    assert titles() == ["second", "first"]
    page.reload()
    settle(page)
    page.get_by_role("button", name="Edit").click()
    page.get_by_text("The board may go").click()
    settle(page)
    page.get_by_role("button", name="Delete it").click()
    expect_once(page.get_by_text(re.compile("has no boards")))
    assert list(store.of(tenant)) == []
