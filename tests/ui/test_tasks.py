"""Five tasks as somebody does them who is new to the pages: the clicks, typed fields and seconds that each
takes; kept in tests/benchmarks/results/tasks.json."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest
from playwright.sync_api import Locator, Page, expect

from lake.catalog_client import CatalogClient
from query.alerts.rule_store import RuleStore
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.ui.support.gestures import choose, choose_row, expect_once, settle

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(900)]

RESULTS = Path(__file__).parents[1] / "benchmarks/results/tasks.json"
STEPS_MAX = 12  # of clicks and fields together; a task that takes more is one for the page to mend
BURST, DAYS, CALLERS = 30, 30, 4
CAUSE = "pool of connections to stock-db is empty"
URI = "/orders/4711"


class Person:
    """Somebody at the pages. `clicks`: also those on lists and their options; `fields`: typed into."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.fields = 0

    def click(self, target: Locator) -> None:
        settle(self.page)
        target.click()
        self.clicks += 1

    def press(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def choose(self, label: str, option: str) -> None:
        choose(self.page, label, option)
        self.clicks += 2
        settle(self.page)

    def choose_row(self, row: int) -> None:
        choose_row(self.page, row)
        self.clicks += 1

    def type(self, label: str, text: str) -> None:
        settle(self.page)
        box = self.page.get_by_role("textbox", name=label, exact=True)
        box.fill(text)
        box.press("Enter")
        self.fields += 1
        settle(self.page)

    def sees(self, text: str) -> None:
        expect(self.page.get_by_text(text).filter(visible=True).first).to_be_visible()


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, Any]]:
    """What the tasks took; kept when all are done."""
    tasks: dict[str, Any] = {}
    yield tasks
    if len(tasks) == 5:
        RESULTS.write_bytes(orjson.dumps(tasks, option=orjson.OPT_INDENT_2) + b"\n")


@pytest.fixture(scope="module")
def logs(catalog_client: CatalogClient) -> LogTable:
    """The stream in which the errors are."""
    return LogTable(catalog_client, fresh_tenant("tasks"))


@pytest.fixture(scope="module")
def tenant(catalog_client: CatalogClient, logs: LogTable) -> str:
    """A shop with a burst of errors half an hour ago, whose cause stands in another stream, and requests of a
    month."""
    name, now = logs.tenant, datetime.now(UTC)
    burst = now - timedelta(minutes=30)
    stock, access = (LogTable(catalog_client, name, stream) for stream in ("stock", "access"))
    at = [burst + timedelta(seconds=2 * each) for each in range(BURST)]
    logs.append(
        [
            {
                "timestamp": each,
                "severity": "ERROR",
                "message": f"order {nth} failed",
                "trace_id": f"{nth:032x}",
            }
            for nth, each in enumerate(at)
        ]
        + [
            {
                "timestamp": now - timedelta(seconds=10 * nth),
                "severity": "INFO",
                "message": f"order {nth} placed",
            }
            for nth in range(300)
        ]
    )
    stock.append(
        [
            {"timestamp": each, "severity": "ERROR", "message": CAUSE, "trace_id": f"{nth:032x}"}
            for nth, each in enumerate(at)
        ]
    )
    access.append(
        [
            {
                "timestamp": now - timedelta(days=day, hours=1, minutes=nth),
                "message": f"GET {URI if nth % 2 else '/'}",
                "uri": URI if nth % 2 else "/",
                "client": f"198.51.100.{nth % (2 * CALLERS)}",
            }
            for day in range(DAYS)
            for nth in range(40)
        ]
    )
    return name


@contextmanager
def task(page: Page, ui_uri: str, measured: dict[str, Any], name: str) -> Iterator[Person]:
    """Begins at the first page; keeps what the task took."""
    page.goto(ui_uri)
    settle(page)
    person, began_s = Person(page), monotonic()
    yield person
    measured[name] = {
        "clicks": person.clicks,
        "fields": person.fields,
        "seconds": round(monotonic() - began_s, 1),
    }
    assert person.clicks + person.fields <= STEPS_MAX


def test_the_cause_of_an_error_burst(page: Page, ui_uri: str, tenant: str, measured: dict[str, Any]) -> None:
    """The errors, one of them, and all of its trace, in which another stream says why."""
    with task(page, ui_uri, measured, "find the cause of an error burst") as person:
        person.choose("Tenant", tenant)
        person.choose("Stream", "logs")
        person.type("Search", "severity:error")
        person.sees(f"{BURST} rows")
        person.choose_row(0)
        person.press("Whole trace")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("2 rows of 2 streams")).to_be_visible()
        expect(dialog.get_by_test_id("stDataFrame")).to_contain_text(CAUSE)


def test_who_called_a_uri_yesterday(page: Page, ui_uri: str, tenant: str, measured: dict[str, Any]) -> None:
    """The callers with how often each did."""
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    with task(page, ui_uri, measured, "who called this URI yesterday") as person:
        person.choose("Tenant", tenant)
        person.choose("Stream", "access")
        person.choose("Time range", "Yesterday")
        person.type("Search", f'uri:"{URI}" | top 20 client')
        expect(page.get_by_test_id("stDataFrame").first).to_contain_text("198.51.100.")
        assert f"from={yesterday}" in page.url


def test_an_alert_is_set(
    page: Page, ui_uri: str, tenant: str, measured: dict[str, Any], catalog_client: CatalogClient
) -> None:
    """On the search that found something."""
    with task(page, ui_uri, measured, "set an alert") as person:
        person.choose("Tenant", tenant)
        person.choose("Stream", "logs")
        person.type("Search", "severity:error")
        person.press("Set alert")
        person.type("What it tells", "Orders fail")
        person.press("Keep the rule")
        person.sees("The rule is kept")
    (rule,) = (each.rule for each in RuleStore(catalog_client).rules() if each.tenant.name == tenant)
    assert (rule.name, rule.query) == ("orders-fail", "severity:error")


def test_the_evidence_is_shared(
    page: Page, ui_uri: str, tenant: str, measured: dict[str, Any], logs: LogTable
) -> None:
    """A link that shows somebody else the same rows, whatever came in since."""
    with task(page, ui_uri, measured, "share the evidence") as person:
        person.choose("Tenant", tenant)
        person.choose("Stream", "logs")
        person.type("Search", "severity:error")
        person.sees(f"{BURST} rows")
        person.press("Link")
        address = page.get_by_test_id("stCode").filter(has_text="pin=").first.inner_text().strip()
        person.clicks += 1  # on the sign that copies it
    late = datetime.now(UTC) - timedelta(minutes=5)
    logs.append([{"timestamp": late, "severity": "ERROR", "message": "an error since"}])
    page.goto(address)
    expect_once(page.get_by_text("pinned"))
    expect(page.get_by_role("textbox", name="Search", exact=True)).to_have_value("severity:error")
    expect_once(page.get_by_text(f"{BURST} rows"))
    page.goto(address.replace("pin=", "unpinned="))
    expect_once(page.get_by_text(f"{BURST + 1} rows"))


def test_a_month_is_exported(page: Page, ui_uri: str, tenant: str, measured: dict[str, Any]) -> None:
    """Every row of it, as a file."""
    with task(page, ui_uri, measured, "export a month") as person:
        person.choose("Tenant", tenant)
        person.choose("Stream", "access")
        person.choose("Time range", "Last 30 days")
        person.press("Export")
        person.press("Export all rows")
        button = page.get_by_test_id("stDownloadButton").get_by_role("button").first
        expect(button).to_be_visible()
        settle(page)
        with page.expect_download() as download:
            person.click(button)
        lines = Path(download.value.path()).read_bytes().splitlines()
        assert len(lines) >= 40 * (DAYS - 1)
