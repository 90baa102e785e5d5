"""Patterns on the search page: what they rest on, and the way to the rows of one."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.support.gestures import cell, choose_row, expect_once, open_search
from tests.ui.test_search_page import hour_of_logs

pytestmark = pytest.mark.stack


def test_a_pattern_opens_the_search_for_its_words(page: Page, ui_uri: str, catalog_client: Any) -> None:
    """Within the search that the patterns were made of."""
    table = hour_of_logs(catalog_client)
    open_search(page, ui_uri, table, q="host:web-1 || host:web-2 | patterns")
    expect_once(page.get_by_text(re.compile(r"Patterns of all 26\d rows")))
    expect(cell(page, 0, 3)).to_have_text("item <*> served")
    expect(cell(page, 1, 1)).to_have_text("5")
    expect(cell(page, 1, 3)).to_have_text("connection refused number <*>")
    choose_row(page, 1)
    box = page.get_by_role("textbox", name="Search", exact=True)
    expect(box).to_have_value("(host:web-1 || host:web-2) AND message:(connection refused number)")
    expect_once(page.get_by_text("5 rows", exact=True))
    expect(cell(page, 0, 3)).to_have_text(re.compile("connection refused number"))
