"""What maintenance, search and erasure make of a keyed table: nothing of its rows changes that nobody asked
for."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lake.catalog_client import TableName
from lake.storage import open_storage
from lake.tenant import to_identifier
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.table_view import load_view
from tests.changes.support.shop import Shop, changes, stored, wait_for_table, wanted
from tests.optimize.conftest import Optimizer, optimizer, optimizer_on  # noqa: F401 - fixtures
from tests.optimize.support.maintained import maintenance
from tests.query.conftest import query_uri  # noqa: F401 - a fixture
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


@pytest.fixture
def shop(line: Line, ingester: Callable[..., Ingester]) -> Shop:
    """A keyed table with rows, some of them deleted by position."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic()
    running = ingester(changes(topic))
    for round_number in range(3):
        line.kafka.produce(topic, [shop.put(id=at, name=f"r{round_number}", amount=at) for at in range(20)])
        wait_for_table(line, shop)
    line.kafka.produce(topic, shop.delete(5))
    wait_for_table(line, shop)
    assert running.alive
    return shop


def test_a_round_of_maintenance_merges_and_changes_no_row(
    line: Line,
    shop: Shop,
    optimizer: Callable[..., Optimizer],  # noqa: F811
) -> None:
    """On Spark: one file is left, and no delete file. The round finds the table by itself."""
    before = stored(line, shop.tenant)
    name = TableName(to_identifier(shop.tenant), to_identifier("logs"))
    dirty = [candidate.table for candidate in maintenance(line.catalog).inventory.candidates()]
    assert name in dirty
    optimizer().run("run", "--once", "--table", str(name))
    assert stored(line, shop.tenant) == before
    view = load_view(line.catalog, open_storage(), name)
    assert view is not None
    (bucket,) = view.partitions().values()
    assert (bucket.by_bucket, len(bucket.files), view.delete_entries()) == (True, 1, [])
    assert bucket.files[0].rows == len(shop.rows)


def test_retention_of_a_keyed_table_is_refused(
    line: Line,
    shop: Shop,
    query_uri: str,  # noqa: F811
) -> None:
    """Where it is set, and, where somebody has set the property, when it is due: no row goes."""
    with httpx.Client(base_url=query_uri, timeout=60.0, trust_env=False) as api:
        body = {"tenant": shop.tenant, "stream": "logs", "retention": "1d"}
        answer = api.post("/v1/streams/retention", json=body)
    assert answer.status_code == 400
    assert "follows a database" in answer.text
    name = TableName(to_identifier(shop.tenant), to_identifier("logs"))
    update = {"action": "set-properties", "updates": {"firn.retention": "1h"}}
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )
    (told,) = MaintenanceTasks(maintenance(line.catalog, [name])).retention()
    assert "its source deletes them" in told.reason
    assert stored(line, shop.tenant) == wanted(shop)


def test_a_search_finds_the_rows_that_are_there(
    shop: Shop,
    query_uri: str,  # noqa: F811
) -> None:
    with httpx.Client(base_url=query_uri, timeout=60.0, trust_env=False) as api:
        body: dict[str, Any] = {"tenant": shop.tenant, "query": "name:r2", "limit": 100}
        answer = api.post("/v1/search", json={**body, "from": "2020-01-01", "to": "2030-01-01"})
    assert answer.status_code == 200, answer.text
    assert sorted(row["fields"]["id"] for row in answer.json()["rows"]) == sorted(shop.rows)
