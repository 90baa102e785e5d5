"""What people see of a keyed table: the rows that are there, links to what it was, its mode and counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Page, expect

from lake.catalog_client import CatalogClient, TableName
from lake.tenant import to_identifier
from tests.changes.support.shop import Shop, changes, flat, wait_for_table
from tests.query.conftest import api, query_uri  # noqa: F401 - fixtures
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for
from tests.ui.support.gestures import choose_row, expect_once

pytestmark = pytest.mark.stack
# The shop's clock.
TIMES = {"from": "2023-11-01", "to": "2023-12-01"}
ENGINES = ("duckdb", "trino")


@dataclass
class Followed:
    """A keyed table that an ingester follows. `taken`: what became of its changes, as the shop knows."""

    line: Line
    ingester: Ingester
    topic: str
    shop: Shop
    taken: dict[str, int] = field(default_factory=dict)

    def change(self, **taken: int) -> None:
        """Waits for what was sent; `taken` is added to what is expected."""
        wait_for_table(self.line, self.shop)
        self.taken = {name: self.taken.get(name, 0) + taken.get(name, 0) for name in {*self.taken, *taken}}

    def put(self, *keys: int, name: str) -> None:
        records = [self.shop.put(id=key, name=name, amount=key) for key in keys]
        self.line.kafka.produce(self.topic, records)

    @property
    def names(self) -> list[tuple[int, str]]:
        return sorted((int(row["id"]), str(row["name"])) for row in self.shop.rows.values())

    def streams(self, api: httpx.Client) -> dict[str, Any]:  # noqa: F811
        """The tenant's streams by name."""
        listed = api.get("/v1/streams", params={"tenant": self.shop.tenant}).json()["streams"]
        return {stream["stream"]: stream for stream in listed}

    @property
    def asked(self) -> dict[str, Any]:
        return {"tenant": self.shop.tenant, "stream": "logs", **TIMES}


@pytest.fixture(scope="module")
def followed(line: Line) -> Iterator[Followed]:
    """Twenty rows, each changed twice, one deleted; a change that is sent once more. With its history."""
    topic = line.kafka.topic(partitions=1)
    ingester = line.ingester(changes(topic, order_by="position", buckets=2, history=True))
    made = Followed(line, ingester, topic, Shop(fresh("shop-")))
    first = [made.shop.put(id=key, name="r0", amount=key) for key in range(20)]
    line.kafka.produce(topic, first)
    made.change(inserted=20)
    for name in ("r1", "r2"):
        made.put(*range(20), name=name)
        made.change(updated=20)
    line.kafka.produce(topic, flat([made.shop.delete(5), first[3]]))
    made.put(100, name="r2")
    made.change(inserted=1, deleted=1, repeated_delete=1, older=1)
    yield made
    ingester.kill()


def asked(api: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:  # noqa: F811
    answer = api.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def found(api: httpx.Client, body: dict[str, Any]) -> list[tuple[int, str]]:  # noqa: F811
    """The rows of all pages."""
    rows, cursor = list[dict[str, Any]](), ""
    while cursor is not None:
        page = asked(api, "search", {**body, "limit": 7, "cursor": cursor})
        rows += page["rows"]
        cursor = page["next"]
    return sorted((int(row["fields"]["id"]), str(row["fields"]["name"])) for row in rows)


def test_nothing_counts_a_row_that_is_deleted(followed: Followed, api: httpx.Client) -> None:  # noqa: F811
    """Rows of searches, buckets, values, streams and exports are those that are there, on both engines."""
    rows = len(followed.shop.rows)
    for engine in ENGINES:
        body = {**followed.asked, "engine": engine}
        assert found(api, body) == followed.names
        for by in ({}, {"by": "level"}, {"query": "name:r2"}):
            counted = asked(api, "histogram", {**body, **by})
            assert (counted["rows"], sum(each["rows"] for each in counted["buckets"])) == (rows, rows)
        assert asked(api, "values", {**body, "field": "name"})["values"] == [{"value": "r2", "rows": rows}]
    fields = {each["name"]: each for each in asked(api, "fields", followed.asked)["fields"]}
    assert (fields["name"]["coverage"], fields["amount"]["coverage"]) == (1.0, 1.0)
    assert followed.streams(api)["logs"]["rows"] == rows
    export = api.post("/v1/exports", json={**followed.asked, "format": "ndjson"}).json()

    def told() -> Any:
        return api.get(f"/v1/exports/{export['id']}").json()

    wait_for(lambda: told()["state"] != "running", 60, "the export")
    assert (told()["state"], told()["rows"]) == ("done", rows)


def test_a_stream_tells_mode_key_and_what_became_of_its_changes(
    followed: Followed,
    api: httpx.Client,  # noqa: F811
) -> None:
    """Each change is counted once, in the commit that takes it."""
    where = {"tenant": followed.shop.tenant, "stream": "logs"}
    streams = followed.streams(api)
    assert (streams["logs"]["mode"], streams["logs"]["key"]) == ("upsert", ["id"])
    assert (streams["logs_history"]["mode"], streams["logs_history"]["key"]) == ("history", [])
    detail = api.get("/v1/streams/detail", params=where).json()
    assert (detail["order_by"], detail["buckets"]) == ("position", 2)
    assert detail["changes"] == followed.taken
    assert detail["deleted_rows"] >= 41


def test_the_page_of_streams_shows_mode_key_and_counts(followed: Followed, page: Page, ui_uri: str) -> None:
    """As an operator sees it."""
    page.goto(f"{ui_uri}/tenants")
    box = page.get_by_placeholder("part of a tenant's name")
    box.fill(followed.shop.tenant)
    box.press("Enter")
    expect_once(page.get_by_text("2 streams."))
    choose_row(page, 0)
    expect_once(page.get_by_text("One row per key: the last change wins, a delete removes it."))
    expect_once(page.get_by_text("Changes are ordered by their position in the source."))
    for label, name in (
        ("Inserted", "inserted"),
        ("Updated", "updated"),
        ("Deleted", "deleted"),
        ("Late", "older"),
    ):
        shown = page.get_by_test_id("stMetric").filter(has_text=label)
        expect(shown.get_by_test_id("stMetricValue")).to_have_text(str(followed.taken[name]))
    expect_once(page.get_by_text("Without effect: 1 repeated_delete"))


@pytest.mark.prove
def test_a_row_leads_to_all_changes_of_its_key(
    followed: Followed,
    page: Page,
    ui_uri: str,
    api: httpx.Client,  # noqa: F811
) -> None:
    """In the stream beside it: what it was inserted as, each update, and the change that came late."""
    wait_for(lambda: followed.streams(api).get("logs_history", {"rows": 0})["rows"] == 63, 60, "the history")
    address = {"tenant": followed.shop.tenant, "stream": "logs", **TIMES, "q": "id:3"}
    page.goto(f"{ui_uri}/?{urlencode(address)}")
    expect_once(page.get_by_text("1 row", exact=True))
    choose_row(page, 0)
    page.get_by_role("button", name="History of this row").click()
    expect_once(page.get_by_text("4 rows", exact=True))
    choose_row(page, 0)
    expect_once(page.get_by_role("button", name="History of this row"))


def test_a_link_opens_what_the_table_was_as_long_as_it_keeps_that(
    followed: Followed,
    api: httpx.Client,  # noqa: F811
    catalog_client: CatalogClient,
) -> None:
    """Changes replace its rows and one has a new column: the link shows none of that. When the snapshot has
    expired, it says so instead of showing other rows."""
    then = followed.names
    counted = asked(api, "histogram", followed.asked)
    assert counted["pin_expires"]
    followed.put(*range(10), name="after")
    followed.line.kafka.produce(followed.topic, followed.shop.delete(15))
    followed.change(updated=10, deleted=1, repeated_delete=1)
    for engine in ENGINES:
        body = {**followed.asked, "engine": engine}
        assert found(api, body) == followed.names
        pinned = {**body, "pin": counted["pin"]}
        assert found(api, pinned) == then
        again = asked(api, "histogram", pinned)
        assert (again["rows"], again["complete"], again["pin"]) == (len(then), True, counted["pin"])
    name = TableName(to_identifier(followed.shop.tenant), "logs")
    metadata = catalog_client.load_table(name)["metadata"]
    old = [
        s["snapshot-id"] for s in metadata["snapshots"] if s["snapshot-id"] != metadata["current-snapshot-id"]
    ]
    update = {"action": "remove-snapshots", "snapshot-ids": old}
    catalog_client.commit_all([{"identifier": name.to_json(), "requirements": [], "updates": [update]}])
    for path, more in (("search", {}), ("histogram", {}), ("values", {"field": "name"})):
        answer = api.post(f"/v1/{path}", json={**followed.asked, "pin": counted["pin"], **more})
        assert answer.status_code == 404
        assert "its snapshot has expired" in answer.json()["error"]["message"]
