"""What maintenance, search and erasure make of a keyed table: nothing of its rows changes that nobody asked
for."""

from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.storage import open_storage
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.table_view import load_view
from tests.changes.support.shop import Shop, changes, name_of, stored, upgrade, wait_for_table, wanted
from tests.optimize.conftest import Optimizer, optimizer, optimizer_on  # noqa: F401 - fixtures
from tests.optimize.support.maintained import maintenance
from tests.query.conftest import query_uri  # noqa: F401 - a fixture
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

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
    name = name_of(shop)
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
        for retention in ("1d", "forever"):
            body = {"tenant": shop.tenant, "stream": "logs", "retention": retention}
            answer = api.post("/v1/streams/retention", json=body)
            assert answer.status_code == 400, retention
            assert "follows a database" in answer.text
    name = name_of(shop)
    update = {"action": "set-properties", "updates": {"firn.retention": "1h"}}
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )
    (told,) = MaintenanceTasks(maintenance(line.catalog, [name])).retention()
    assert "when their source deletes them" in told.reason
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


def test_rows_are_erased_dead_ones_as_well(
    line: Line,
    shop: Shop,
    query_uri: str,  # noqa: F811
) -> None:
    """What an earlier change said of a key lies in a file until that is written anew: an erasure finds it
    there, and no file that is live holds it afterwards. A live row that matches goes, until its source sends
    it again. In format version 3, where what is left of a file carries the ids of its rows."""
    upgrade(line, name_of(shop))
    with httpx.Client(base_url=query_uri, timeout=60.0, trust_env=False) as api:
        where = {"tenant": shop.tenant, "from": "2020-01-01", "to": "2030-01-01"}
        body = {**where, "query": "name:r0 OR (name:r2 AND id:7)"}
        made = api.post("/v1/erasures", json=body).json()

        def report() -> dict[str, Any]:
            return dict(api.get(f"/v1/erasures/{made['id']}").json())

        wait_for(lambda: report()["state"] != "running", 60, "the erasure")
        (told,) = report()["tables"]
        assert (told["problem"], told["rows"], told["rows_left"]) == (None, 21, 0)
        del shop.rows[7]
        found = api.post("/v1/search", json={**where, "query": "name:*", "limit": 100}).json()["rows"]
    assert sorted(row["fields"]["id"] for row in found) == sorted(shop.rows)
    storage = open_storage()
    view = load_view(line.catalog, storage, name_of(shop))
    assert view is not None
    files = [each for partition in view.partitions().values() for each in partition.files]
    names = [pq.read_table(pa.BufferReader(storage.read(each.uri)))["name"].to_pylist() for each in files]
    assert "r0" not in {name for each in names for name in each}
    maintenance(line.catalog, [name_of(shop)], merge__deleted_share_max=0.0).run()
    assert stored(line, shop.tenant) == wanted(shop)
