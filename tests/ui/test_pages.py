"""Every page beside the search page, as a person uses it; and the search page on a narrow screen and by
keyboard alone."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from lake.day_counts import DayCount, counted_day
from lake.extras_client import ExtrasClient
from lake.purged_tables import PurgedTable, note_purged
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.waiting import wait_for
from tests.ui.support.accessibility import expect_accessible
from tests.ui.support.gestures import (
    bring_into_view,
    cell,
    choose,
    choose_row,
    expect_once,
    open_search,
    settle,
)
from tests.ui.support.menu import NARROW_PX, entries, go_to

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def table(catalog_client: Any) -> LogTable:
    """Ten rows of the last minutes."""
    table = LogTable(catalog_client, fresh_tenant("pages"))
    start = datetime.now(UTC) - timedelta(minutes=10)
    table.append(
        [
            {
                "timestamp": start + timedelta(seconds=at),
                "severity": "INFO",
                "message": f"page {at}",
                "status": str(at),
            }
            for at in range(10)
        ]
    )
    return table


def open_tenant(page: Page, uri: str, tenant: str) -> None:
    """Opens the tenants page with one tenant alone."""
    page.goto(f"{uri}/tenants")
    box = page.get_by_placeholder("part of a tenant's name")
    box.fill(tenant)
    box.press("Enter")
    expect(page.get_by_test_id("stMetricValue").first).to_have_text("1")
    settle(page)


def open_stream(page: Page, uri: str, table: LogTable) -> None:
    """Opens the tenants page with the details of the table's stream."""
    open_tenant(page, uri, table.tenant)
    expect_once(page.get_by_text("1 stream."))
    choose_row(page, 0)
    expect(page.get_by_role("heading", name=f"{table.tenant} / logs")).to_be_visible()


@pytest.mark.prove
def test_a_declared_type_shows_in_the_columns_of_the_stream(page: Page, ui_uri: str, table: LogTable) -> None:
    """A field's type is declared on the tenants page; what was stored before is told to be beside it."""
    open_stream(page, ui_uri, table)
    page.get_by_label("Field", exact=True).fill("status")
    page.get_by_role("button", name="Declare").click()
    expect_once(page.get_by_text("status is long; what was stored before is in"))
    expect_accessible(page)


def test_retention_tells_what_would_go_before_it_is_set(page: Page, ui_uri: str, table: LogTable) -> None:
    """The dry run counts the rows that go and stay, and changes nothing."""
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Retention").click()
    expect_once(page.get_by_text("kept for ever"))
    box = page.get_by_label("Keep rows of this stream for")
    box.fill("30d")
    box.press("Enter")
    page.get_by_role("button", name="What would go?").first.click()
    expect_once(page.get_by_text("0 rows in 0 files"))


@pytest.mark.prove
def test_the_retention_of_a_tenant_holds_for_its_streams(page: Page, ui_uri: str, table: LogTable) -> None:
    """It is set beside the stream's own, and the stream says then whose it is kept by."""
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Retention").click()
    box = page.get_by_label("Keep their rows for")
    box.fill("400d")
    box.press("Enter")
    page.get_by_role("button", name="Set retention").last.click()
    expect_once(page.get_by_text("go with the next daily maintenance"))
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Retention").click()
    expect_once(page.get_by_text("for 400d (its tenant's)"))


def test_a_legal_hold_is_set_and_lifted_where_retention_is(page: Page, ui_uri: str, table: LogTable) -> None:
    """With its reason, on all streams or on this one; a range that ends before it begins is refused in
    words."""
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Retention").click()
    expect_once(page.get_by_text("There are none."))
    page.get_by_role("textbox", name="Reason").fill("case 7: <b>*all*</b>")
    page.get_by_role("textbox", name="From", exact=True).fill("2026-01-02")
    page.get_by_role("textbox", name="To", exact=True).fill("2026-01-01")
    page.get_by_role("button", name="Hold", exact=True).click()
    expect_once(page.get_by_text("ends before it begins"))
    page.get_by_role("textbox", name="To", exact=True).fill("2026-02-01")
    page.get_by_role("button", name="Hold", exact=True).click()
    expect_once(page.get_by_text(re.compile("The legal hold .* is set")))
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Retention").click()
    expect_once(page.get_by_text("case 7: <b>*all*</b>"))
    expect_once(page.get_by_text("until 2026-02-01 00:00 UTC"))
    page.get_by_role("button", name="Lift", exact=True).click()
    page.get_by_role("button", name="Lift the hold").click()
    expect_once(page.get_by_text(re.compile("The legal hold .* is lifted")))


@pytest.mark.prove
def test_limits_and_usage_of_a_tenant(page: Page, ui_uri: str, catalog_client: Any, table: LogTable) -> None:
    """Which limits hold and who says so, what was used today, and what came in by day; nothing is asked
    before somebody is chosen."""
    catalog_client.update_namespace(table.name.namespace, {"firn.limits.streams": "7"}, [])
    days, said = [datetime.now(UTC).date() - timedelta(days=at) for at in (2, 1, 0)], dict[str, str]()
    for at, day in enumerate(days):
        said |= counted_day(said, day, DayCount(1_000 * (at + 1), 3_000_000 * (at + 1)))
    catalog_client.set_properties(table.name, said)
    open_tenant(page, ui_uri, table.tenant)
    page.get_by_text("Limits and usage", exact=True).click()
    choose(page, "Limits and usage of tenant", table.tenant)
    settle(page)
    records = page.get_by_test_id("stMetric").filter(has_text="Records today")
    expect_once(records)
    expect(records).to_contain_text("3,000")
    limits = page.get_by_test_id("stDataFrame").last
    expect(limits.get_by_test_id("glide-cell-1-2")).to_have_text("7")
    expect(limits.get_by_test_id("glide-cell-2-2")).to_have_text("tenant")
    expect(limits.get_by_test_id("glide-cell-3-2")).to_have_text("1")
    expect(page.get_by_test_id("stVegaLiteChart").last).to_be_visible()


def open_deleted(page: Page, tenant: str) -> None:
    """Opens the deleted streams of a tenant that the page shows alone."""
    deleted = page.get_by_text("Deleted streams", exact=True)
    choice = page.get_by_role("combobox", name=re.compile("Of tenant"))
    settle(page)  # else the page before is clicked

    def opened() -> bool:
        """The page is drawn anew while it is looked at, and closes what was opened before."""
        if not choice.is_visible():
            deleted.first.click()
            page.wait_for_timeout(1_000)
        return choice.is_visible()

    wait_for(opened, 60, "the list of deleted streams")
    expect(choice).to_have_value(tenant)


@pytest.mark.prove
def test_the_files_of_a_deleted_stream_are_removed_at_once_where_that_is_meant(
    page: Page, ui_uri: str, catalog_client: Any
) -> None:
    """They were kept until then; the name of the stream has to be typed. Those that are gone are told of."""
    tenant = fresh_tenant("purge")
    tables = [LogTable(catalog_client, tenant, stream) for stream in ("kept", "gone")]
    for table in tables:
        table.append([{"timestamp": datetime.now(UTC), "message": "still here"}])
        catalog_client.drop_table(table.name)
    note_purged(catalog_client, PurgedTable(tables[1].name, fresh_tenant("uuid"), 1_767_225_600_000, 7))
    open_tenant(page, ui_uri, tenant)
    open_deleted(page, tenant)
    expect_once(page.get_by_text("gone: deleted 2026-01-01 00:00 UTC; its 7 files are gone since"))
    expect(
        page.get_by_text("its files stay until an administrator asks for their purge").first
    ).to_be_visible()
    page.get_by_role("button", name="Remove", exact=True).last.click()
    button = page.get_by_role("button", name="Remove its files now")
    expect(button).to_be_disabled()
    box = page.get_by_label("Type the stream's name to remove its files")
    box.fill("gone")
    box.press("Enter")
    button.click()
    expect_once(page.get_by_text(f"The files of {tenant} / gone are being removed."))
    (asked,) = [
        each
        for each in ExtrasClient(catalog_client).dropped_tables()
        if each.table.namespace == tables[0].name.namespace and each.at_once
    ]
    assert asked.table == tables[1].name


def test_a_deleted_stream_comes_back_with_its_rows(page: Page, ui_uri: str, catalog_client: Any) -> None:
    """Deleting asks for the name; the list of deleted streams brings it back."""
    LogTable(catalog_client, "another").append(
        [{"timestamp": datetime.now(UTC), "message": "of a tenant before it in the list"}]
    )
    table = LogTable(catalog_client, fresh_tenant("undo"))
    table.append([{"timestamp": datetime.now(UTC) - timedelta(minutes=5), "message": "still here"}])
    open_stream(page, ui_uri, table)
    page.get_by_role("tab", name="Delete").click()
    expect(
        page.get_by_text(
            "It can be brought back for 3 days; the first daily maintenance after that removes its files for "
            "good."
        )
    ).to_be_visible()
    page.get_by_text("keep them", exact=True).click()
    expect_once(page.get_by_text("its files stay until an administrator has them removed"))
    page.get_by_text("remove them when it cannot be brought back any more", exact=True).click()
    button = page.get_by_role("button", name="Delete stream")
    expect(button).to_be_disabled()
    box = page.get_by_label("Type the stream's name to delete it")
    box.fill("logs")
    box.press("Enter")
    button.click()
    due = datetime.now(UTC) + timedelta(days=3)
    expect(
        page.get_by_text(re.compile(rf"brings it back until {due:%Y-%m}-\d\d .* UTC at least\."))
    ).to_be_visible()
    open_deleted(page, table.tenant)
    expect_once(page.get_by_text("its files go with the first daily maintenance after"))
    page.get_by_role("button", name="Bring back").click()
    expect_once(page.get_by_text("is back, with all its rows."))
    open_search(page, ui_uri, table)
    expect_once(page.get_by_text("1 row", exact=True))


def test_a_statement_is_run_and_one_that_writes_is_refused(page: Page, ui_uri: str, table: LogTable) -> None:
    """The SQL page shows the rows of a SELECT, and a sentence for anything else."""
    page.goto(f"{ui_uri}/sql")
    box = page.get_by_role("textbox", name="Statement")
    box.fill(f'SELECT count(*) AS found FROM "{table.tenant}".logs')
    box.press("Control+Enter")
    page.get_by_role("button", name="Run").click()
    expect_once(page.get_by_text("1 row", exact=True))
    expect(cell(page, 0, 0)).to_have_text("10")
    expect_accessible(page)
    box.fill(f'DELETE FROM "{table.tenant}".logs')
    box.press("Control+Enter")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_test_id("stAlert")).to_contain_text("SELECT")


def test_a_saved_search_opens_again(page: Page, ui_uri: str, table: LogTable) -> None:
    """A search gets a name, is found under it, and can be forgotten."""
    open_search(page, ui_uri, table, q='message:"page 3"')
    expect_once(page.get_by_text("1 row", exact=True))
    page.get_by_role("button", name="Saved").click()
    box = page.get_by_label("Name", exact=True)
    box.fill("third/page")
    box.press("Enter")
    page.get_by_role("button", name="Save this search").click()
    open_search(page, ui_uri, table)
    expect_once(page.get_by_text("10 rows", exact=True))
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("button", name="third/page").click()
    expect_once(page.get_by_text("1 row", exact=True))


@pytest.mark.prove
@pytest.mark.parametrize("width", [400, 1280])
def test_the_search_page_is_used_at_any_width(page: Page, ui_uri: str, table: LogTable, width: int) -> None:
    """A search is typed, a row chosen and read, its link opened; nothing lies beside the screen. Where there
    is room the row is seen without scrolling."""
    page.set_viewport_size({"width": width, "height": 900})
    open_search(page, ui_uri, table)
    box = page.get_by_role("textbox", name="Search", exact=True)
    box.fill("page")
    box.press("Enter")
    expect_once(page.get_by_text("10 rows", exact=True))
    rows = page.get_by_test_id("stDataFrame").first
    bring_into_view(page, rows)
    choose_row(page, 2)
    words = page.get_by_test_id("stCode").filter(has_text="page 7").first
    expect(words).to_be_visible()
    if width == 1280:
        expect(words).to_be_in_viewport(ratio=1)
    bring_into_view(page, words)
    page.get_by_role("button", name="Link").click()
    expect(page.get_by_test_id("stCode").filter(has_text="pin=")).to_be_visible()
    assert overflow_px(page) == 0
    expect_accessible(page)


@pytest.mark.prove
def test_no_page_lies_beside_a_narrow_screen(page: Page, ui_uri: str, table: LogTable) -> None:
    """Every page at 400 pixels, reached by its own menu; each has numbers or says why there are none, never a
    traceback, and shuts nobody out."""
    page.set_viewport_size({"width": NARROW_PX, "height": 800})
    open_search(page, ui_uri, table)
    pages = entries(page)
    assert {"Search", "SQL", "Tenants and streams", "Health"} <= {each.name for each in pages}
    for entry in pages:
        go_to(page, entry)
        settle(page)
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
        expect(page.get_by_test_id("stException")).to_have_count(0)
        expect(page.get_by_test_id("stMain")).to_contain_text(re.compile(r"\.|answers"))
        assert overflow_px(page) == 0, entry.name
        expect_accessible(page)


def overflow_px(page: Page) -> int:
    """How far the page reaches beyond the right edge of the screen."""
    beyond = (
        "[document.documentElement, document.querySelector('[data-testid=stMain]')].map(each => "
        "each.scrollWidth - each.clientWidth)"
    )
    return int(max(page.evaluate(beyond)))


@pytest.mark.prove
def test_everything_is_done_by_keyboard_alone(page: Page, ui_uri: str, table: LogTable) -> None:
    """Tabulator, arrows and Enter: a search is typed, its range chosen, a row opened, its link shown, another
    page reached."""
    open_search(page, ui_uri, table)
    tab_to(page, page.get_by_role("textbox", name="Search", exact=True))
    page.keyboard.type('"page 7" OR "page 3"')
    page.keyboard.press("Enter")
    expect_once(page.get_by_text("2 rows", exact=True))
    times = page.get_by_role("combobox", name="Time range")
    tab_to(page, times)
    page.keyboard.type("Last 24")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(times).to_have_value("Last 24 hours")
    expect_once(page.get_by_text("2 rows", exact=True))
    settle(page)
    tab_to(page, page.get_by_test_id("data-grid-canvas").first)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")
    expect(page.get_by_test_id("stCode").filter(has_text="page 3").first).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Link"), key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("stCode").filter(has_text="row=")).to_be_visible()
    page.keyboard.press("Escape")
    tab_to(page, page.get_by_role("link", name="Health", exact=True), key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pipeline health")).to_be_visible()


def tab_to(page: Page, target: Locator, *, key: str = "Tab") -> None:
    """Presses the key until the target has the focus."""
    for _ in range(60):
        page.keyboard.press(key)
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{target} is not reached by {key}")


@pytest.mark.prove
def test_the_table_stays_where_it_was_scrolled_to_when_a_row_is_chosen(
    page: Page, ui_uri: str, catalog_client: Any
) -> None:
    """The row opens beside the table, which neither jumps nor forgets its choice; unchoosing it closes the
    row."""
    long = LogTable(catalog_client, fresh_tenant("scrolled"))
    start = datetime.now(UTC) - timedelta(minutes=10)
    long.append([{"timestamp": start + timedelta(seconds=at), "message": f"line {at}"} for at in range(90)])
    open_search(page, ui_uri, long)
    scroller = page.get_by_test_id("stDataFrame").first.locator(".dvn-scroller")
    scroller.evaluate("element => element.scrollTop = 1400")
    choose_row(page, 2)
    expect(page.get_by_role("tab", name="JSON")).to_be_visible()
    settle(page)
    assert scroller.evaluate("element => element.scrollTop") == 1400
    expect(page.get_by_test_id("stCode").filter(has_text=re.compile(r"line \d+")).first).to_contain_text(
        "line 47"
    )
    choose_row(page, 2)
    expect(page.get_by_role("tab", name="JSON")).to_have_count(0)
