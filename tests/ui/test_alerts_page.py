"""The page of alerts: what fires, how rules fare, what was."""

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from lake.catalog_client import CatalogClient
from query.alerts.rule_store import RuleStore
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.ui.support.accessibility import expect_accessible
from tests.ui.support.gestures import cell, choose, expect_once, open_search, settle
from tests.ui.support.kept_alerts import keep_alert

pytestmark = pytest.mark.stack


# The pages know the tenants' names for a while: both are there before the first page.
@pytest.fixture(scope="module")
def tables(catalog_client: CatalogClient) -> dict[str, LogTable]:
    """One without rules, one for what fires."""
    made = {name: LogTable(catalog_client, fresh_tenant(name)) for name in ("set-alert", "alerts")}
    made["set-alert"].append([{"timestamp": datetime.now(UTC), "message": "refused"}])
    made["alerts"].append([{"timestamp": datetime(2026, 9, 1, 9, 59, tzinfo=UTC), "message": "refused"}])
    return made


def test_a_search_becomes_a_rule(
    page: Page, ui_uri: str, catalog_client: CatalogClient, tables: dict[str, LogTable]
) -> None:
    """With its stream and words; a second one of the same title gets another name."""
    table = tables["set-alert"]
    open_search(page, ui_uri, table, q="refused")
    for over, window in (("3", "15 minutes"), ("0", "5 minutes")):
        settle(page)
        page.get_by_role("button", name="Set alert").click()
        for label, text in (("What it tells", "Cards are declined"), ("Rows", over)):
            box = page.get_by_label(label, exact=True)
            box.fill(text)
            box.press("Enter")
            settle(page)
        choose(page, "Within", window)
        settle(page)
        page.get_by_role("button", name="Keep the rule").click()
        expect_once(page.get_by_text("The rule is kept"))
        page.keyboard.press("Escape")
    rules = {each.rule.name: each.rule for each in RuleStore(catalog_client).rules(table.id.tenant)}
    assert sorted(rules) == ["cards-are-declined", "cards-are-declined-2"]
    first = rules["cards-are-declined"]
    assert (first.stream, first.query, first.window, first.condition.mode) == (
        "logs",
        "refused",
        900,
        "count",
    )
    assert first.annotations == {"summary": "Cards are declined"}
    page.goto(f"{ui_uri}/alerts?tenant={table.tenant}")
    choose(page, "Tenant", table.tenant)
    expect_once(page.get_by_text("2 rules", exact=True))
    expect_accessible(page)


def test_what_fires_is_shown_with_the_search_for_its_rows(
    page: Page, ui_uri: str, catalog_client: CatalogClient, tables: dict[str, LogTable]
) -> None:
    """And the rule with its health, and the history; a rule with a problem says which."""
    table = tables["alerts"]
    keep_alert(catalog_client, table.id.tenant, "payment", problem="its stream is parked")
    page.goto(f"{ui_uri}/alerts")
    choose(page, "Tenant", table.tenant)
    expect_once(page.get_by_text("1 alert firing"))
    for column, text in enumerate(("kept-rule", "firing")):
        expect(cell(page, 0, column)).to_have_text(text)
    expect(page.get_by_test_id("stAlert")).to_contain_text("its stream is parked")
    expect_once(page.get_by_text("1 rule", exact=True))
    expect_once(page.get_by_role("heading", name="History"))
    address = cell(page, 0, 6).inner_text()
    assert re.match("/search", address)
    assert parse_qs(urlsplit(address).query)["q"] == ["refused"]
    expect_accessible(page)
