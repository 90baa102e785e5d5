"""The page of alerts: what fires, how rules fare, what was."""

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.ui.support.accessibility import expect_accessible
from tests.ui.support.gestures import cell, choose, expect_once
from tests.ui.support.kept_alerts import keep_alert

pytestmark = pytest.mark.stack


def test_what_fires_is_shown_with_the_search_for_its_rows(
    page: Page, ui_uri: str, catalog_client: CatalogClient
) -> None:
    """And the rule with its health, and the history; a rule with a problem says which."""
    table = LogTable(catalog_client, fresh_tenant("alerts"))
    table.append([{"timestamp": datetime(2026, 9, 1, 9, 59, tzinfo=UTC), "message": "refused"}])
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
