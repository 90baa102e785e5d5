"""Links: a pin re-opens exactly its rows after new data, merging, expiry; after retention it says what is
gone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from optimize.maintenance_tasks import MaintenanceTasks
from query.model.point_in_time import parse_point_in_time
from tests.optimize.support.maintained import maintenance
from tests.query.support.log_table import LogTable

pytestmark = pytest.mark.stack
# Long enough ago that its hours are closed, recent enough that a retention of days takes only the older half.
NOW = datetime.now(UTC)
OLD, NEW = (NOW - timedelta(days=days, hours=2) for days in (4, 2))


def records(words: str, start: datetime, count: int = 120) -> list[dict[str, Any]]:
    return [
        {"timestamp": start + timedelta(seconds=30 * at), "message": f"{words} {at}", "severity": "info"}
        for at in range(count)
    ]


def opened(api: httpx.Client, body: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The messages of all pages of a link, and its histogram's answer."""
    counts = api.post("/v1/histogram", json={**body, "by": "level"}).json()
    messages, cursor = list[str](), ""
    while True:
        page = api.post("/v1/search", json={**body, "limit": 70, "cursor": cursor}).json()
        messages += [row["message"] for row in page["rows"]]
        cursor = page["next"]
        if not cursor:
            return messages, counts


@pytest.mark.parametrize("query", ["", "early NOT 7"])
def test_a_link_shows_exactly_its_rows_whatever_happens_to_the_files(
    api: httpx.Client, catalog_client: CatalogClient, log_table: Callable[..., LogTable], query: str
) -> None:
    """After more rows in the same hours, another field, a merge into one file an hour and the expiry of every
    older snapshot: the same rows, in order."""
    table = log_table()
    for start in (OLD, NEW):
        table.append(records("early", start), rows_per_file=20)
    body = {
        "tenant": table.tenant,
        "from": (OLD - timedelta(hours=1)).isoformat(),
        "to": NOW.isoformat(),
        "query": query,
    }
    body["pin"] = api.post("/v1/histogram", json=body).json()["pin"]
    before, counts = opened(api, body)
    assert len(before) == counts["rows"] > 150
    for start in (OLD, NEW):
        table.append([{**record, "extra": "x"} for record in records("late early", start)])
    files = len(table.files())
    for _ in ("merge", "expire what the merge replaced"):
        report = maintenance(
            catalog_client,
            [table.name],
            snapshots__count_max=1,
            snapshots__age_max_s=0.001,
            retention__reader_grace_s=0,
        ).run()
        assert report.failures == {}
    assert len(table.files()) < files
    assert len(catalog_client.load_table(table.name)["metadata"]["snapshots"]) == 1
    after, again = opened(api, body)
    assert after == before
    assert (again["rows"], again["complete"], again["buckets"]) == (counts["rows"], True, counts["buckets"])


def test_after_retention_a_link_says_what_is_gone(
    api: httpx.Client, catalog_client: CatalogClient, log_table: Callable[..., LogTable]
) -> None:
    """The dry run foretells it, maintenance takes it, and the link tells how many of its rows are missing."""
    table = log_table()
    for start in (OLD, NEW):
        table.append(records("kept or not", start))
    where = {"tenant": table.tenant, "stream": "logs"}
    body = {**where, "from": (OLD - timedelta(hours=1)).isoformat(), "to": NOW.isoformat()}
    body["pin"] = api.post("/v1/histogram", json=body).json()["pin"]
    foretold = api.post("/v1/streams/retention", json={**where, "retention": "3d", "dry_run": True}).json()
    assert (foretold["retention"], foretold["goes"]["rows"], foretold["stays"]["rows"]) == (None, 120, 120)
    assert list(MaintenanceTasks(maintenance(catalog_client, [table.name])).retention(dry_run=True)) == []
    api.post("/v1/streams/retention", json={**where, "retention": "72h"}).raise_for_status()
    assert api.get("/v1/streams/detail", params=where).json()["retention"]["retention"] == "3d"
    tasks = MaintenanceTasks(maintenance(catalog_client, [table.name]))
    (would,) = tasks.retention(dry_run=True)
    assert (would.rows, len(would.files), would.size_bytes) == tuple(
        foretold["goes"][name] for name in ("rows", "files", "bytes")
    )
    list(tasks.retention())
    messages, counts = opened(api, body)
    assert len(messages) == counts["rows"] == 120
    assert not counts["complete"]
    assert counts["reasons"] == [
        "120 of the 240 rows this link was made of are gone: retention or erasure removed them"
    ]
    assert api.post("/v1/streams/retention", json={**where, "retention": None}).json()["retention"] is None


def test_a_link_to_a_table_made_anew_says_that_its_rows_are_gone(
    api: httpx.Client, catalog_client: CatalogClient, log_table: Callable[..., LogTable]
) -> None:
    """Another table under the same name never passes for the old one."""
    table = log_table()
    table.append(records("first life", NEW))
    body = {"tenant": table.tenant, "from": OLD.isoformat(), "to": NOW.isoformat()}
    pin = api.post("/v1/histogram", json=body).json()["pin"]
    catalog_client.drop_table(table.name)
    assert api.post("/v1/search", json={**body, "pin": pin}).status_code == 404
    api.post("/v1/streams/undo", json={"tenant": table.tenant, "stream": "logs"}).raise_for_status()
    assert api.post("/v1/histogram", json={**body, "pin": pin}).json()["rows"] == 120


def test_a_pin_of_a_page_is_counted_by_the_histogram_without_opening_a_file_again(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """While nothing came since, the pin is all there is; afterwards it is the same rows, and their number
    stands in the link."""
    table = log_table()
    table.append(records("early", NEW))
    body = {"tenant": table.tenant, "from": OLD.isoformat(), "to": NOW.isoformat()}
    body["pin"] = api.post("/v1/search", json={**body, "limit": 5}).json()["pin"]
    api.post("/v1/histogram", json=body)
    counts = api.post("/v1/histogram", json=body).json()
    assert (counts["rows"], counts["rows_counted_from_metadata"]) == (120, 120)
    table.append(records("late", NEW))
    later = api.post("/v1/histogram", json={**body, "pin": counts["pin"]}).json()
    assert (later["rows"], later["complete"], later["pin"]) == (120, True, counts["pin"])
    counted = parse_point_in_time(counts["pin"])
    assert (counted.rows, parse_point_in_time(body["pin"]).rows) == (120, None)
