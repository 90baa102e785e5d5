"""How long rows are kept: said of a stream, of a tenant, foretold, taken by maintenance."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from optimize.maintenance_tasks import MaintenanceTasks
from tests.optimize.support.maintained import maintenance
from tests.query.support.log_table import LogTable

pytestmark = pytest.mark.stack
# The older half is past three days, in whole hours; each half lies within one.
NOW = datetime.now(UTC)
OLD, NEW = (NOW.replace(minute=30) - timedelta(days=days, hours=2) for days in (4, 2))
ROWS = 50


@pytest.fixture
def table(log_table: Callable[..., LogTable]) -> LogTable:
    made = log_table()
    for start in (OLD, NEW):
        made.append([{"timestamp": start + timedelta(seconds=at), "message": "kept"} for at in range(ROWS)])
    return made


def says(api: httpx.Client, table: LogTable, retention: str | None, **more: Any) -> dict[str, Any]:
    """The tenant says it."""
    body = {"tenant": table.tenant, "retention": retention, **more}
    answer = api.post("/v1/tenants/retention", json=body)
    answer.raise_for_status()
    return dict(answer.json())


def of_stream(api: httpx.Client, table: LogTable) -> dict[str, Any]:
    where = {"tenant": table.tenant, "stream": "logs"}
    return dict(api.get("/v1/streams/detail", params=where).json()["retention"])


def goes_and_stays(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["goes"]["rows"], answer["stays"]["rows"]


def taken(catalog: CatalogClient, table: LogTable) -> int:
    """Rows that maintenance would take now."""
    tasks = MaintenanceTasks(maintenance(catalog, [table.name]))
    return sum(expired.rows for expired in tasks.retention(dry_run=True))


def test_what_a_tenant_says_holds_for_streams_that_say_nothing(
    api: httpx.Client, catalog_client: CatalogClient, table: LogTable
) -> None:
    """A dry run tells what would go of all its streams and changes nothing; then maintenance takes just
    that, and one says who set it."""
    assert goes_and_stays(says(api, table, "3d", dry_run=True)) == (ROWS, ROWS)
    assert of_stream(api, table)["said_by"] is None
    assert taken(catalog_client, table) == 0
    told = says(api, table, "72h")
    assert goes_and_stays(told) == (ROWS, ROWS)
    assert told["retention"] == "3d"
    assert told["set_by"].startswith("anonymous, 20")
    assert [(each["stream"], each["in_force"], each["said_by"]) for each in told["streams"]] == [
        ("logs", "3d", "tenant")
    ]
    detail = of_stream(api, table)
    assert (detail["retention"], detail["in_force"], detail["said_by"]) == (None, "3d", "tenant")
    assert taken(catalog_client, table) == ROWS
    asked = api.get("/v1/tenants/retention", params={"tenant": table.tenant}).json()
    assert asked == told


def test_what_a_stream_says_counts_before_its_tenant(
    api: httpx.Client, catalog_client: CatalogClient, table: LogTable
) -> None:
    """Longer, shorter or for ever; saying nothing again, its tenant's holds."""
    says(api, table, "1d")
    body = {"tenant": table.tenant, "stream": "logs"}
    for retention, in_force, said_by, rows in (
        ("forever", "forever", "stream", 0),
        ("3d", "3d", "stream", ROWS),
        (None, "1d", "tenant", 2 * ROWS),
    ):
        answer = api.post("/v1/streams/retention", json={**body, "retention": retention}).json()
        assert (answer["in_force"], answer["said_by"], answer["goes"]["rows"]) == (in_force, said_by, rows)
        assert taken(catalog_client, table) == rows
    assert says(api, table, None)["streams"][0]["in_force"] == "forever"


def test_a_dry_run_tells_what_a_stream_would_lose_that_says_nothing_any_more(
    api: httpx.Client, table: LogTable
) -> None:
    """By what its tenant says, not by what it says now."""
    says(api, table, "3d")
    body = {"tenant": table.tenant, "stream": "logs"}
    api.post("/v1/streams/retention", json={**body, "retention": "forever"}).raise_for_status()
    told = api.post("/v1/streams/retention", json={**body, "retention": None, "dry_run": True}).json()
    assert (told["in_force"], told["said_by"], goes_and_stays(told)) == ("3d", "tenant", (ROWS, ROWS))
    assert of_stream(api, table)["in_force"] == "forever"


def test_a_tenant_speaks_of_no_table_that_is_none_of_firns(
    api: httpx.Client, catalog_client: CatalogClient, table: LogTable
) -> None:
    """One that somebody else keeps in its namespace loses rows only where it says so itself."""
    path = f"/v1/namespaces/{table.name.namespace}/tables/{table.name.name}"
    foreign = {"action": "remove-properties", "removals": ["firn.tenant", "firn.stream"]}
    catalog_client.post(path, {"requirements": [], "updates": [foreign]})
    assert goes_and_stays(says(api, table, "3d")) == (0, 2 * ROWS)
    assert taken(catalog_client, table) == 0
    catalog_client.set_properties(table.name, {"firn.retention": "3d"})
    assert taken(catalog_client, table) == ROWS


@pytest.mark.parametrize("text", ["soon", "0d", "-3d", "", "30 years", "30d; DROP"])
def test_what_is_unclear_is_refused_and_changes_nothing(
    api: httpx.Client, table: LogTable, text: str
) -> None:
    """With how to write it."""
    answer = api.post("/v1/tenants/retention", json={"tenant": table.tenant, "retention": text})
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert "write days or hours" in answer.text
    assert of_stream(api, table)["said_by"] is None


def test_a_tenant_nobody_has_heard_of_is_not_found(api: httpx.Client) -> None:
    answer = api.post("/v1/tenants/retention", json={"tenant": "nobody-here", "retention": "30d"})
    assert answer.status_code == httpx.codes.NOT_FOUND
