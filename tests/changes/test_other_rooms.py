"""What maintenance, search and erasure make of a keyed table: nothing of its rows changes that nobody asked
for."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lake.tenant import to_identifier
from tests.changes.support.shop import Shop, changes, stored, wait_for_table
from tests.optimize.conftest import Optimizer, optimizer, optimizer_on  # noqa: F401 - fixtures
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


def test_a_round_of_maintenance_changes_no_row(
    line: Line,
    shop: Shop,
    optimizer: Callable[..., Optimizer],  # noqa: F811
) -> None:
    before = stored(line, shop.tenant)
    name = f"{to_identifier(shop.tenant)}.{to_identifier('logs')}"
    optimizer().run("run", "--once", "--table", name)
    assert stored(line, shop.tenant) == before


def test_a_search_finds_the_rows_that_are_there(
    shop: Shop,
    query_uri: str,  # noqa: F811
) -> None:
    with httpx.Client(base_url=query_uri, timeout=60.0, trust_env=False) as api:
        body: dict[str, Any] = {"tenant": shop.tenant, "query": "name:r2", "limit": 100}
        answer = api.post("/v1/search", json={**body, "from": "2020-01-01", "to": "2030-01-01"})
    assert answer.status_code == 200, answer.text
    assert sorted(row["fields"]["id"] for row in answer.json()["rows"]) == sorted(shop.rows)
