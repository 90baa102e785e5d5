"""A table into which Flink itself upserts: of what it replaces it writes equality deletes, which not every
engine reads. After one round of maintenance every engine does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.data_file import EQUALITY_DELETES, POSITION_DELETES
from lake.storage import open_storage
from optimize.table_view import load_view
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.changes.support.flink_sql import CATALOG, run_in_flink
from tests.changes.support.shop import Shop, changes, name_of, wait_for_table, wanted
from tests.optimize.support.maintained import maintenance
from tests.query.conftest import api, query_uri  # noqa: F401 - fixtures
from tests.query.support.four_engines import Reader, readers, right, with_catalog
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]
COLUMNS = ("id", "name", "amount")
WHERE = {"stream": "logs", "from": "2023-11-01", "to": "2023-12-01"}
# Without a merge for its own sake: that would leave no delete of any kind.
NO_MERGE: dict[str, Any] = {"merge__small_file_ratio": 1e-9, "merge__deleted_share_max": 1.0}


@pytest.fixture
def engines(
    line: Line,
    spark: Any,  # noqa: F811
    api: httpx.Client,  # noqa: F811
) -> Callable[[Shop], dict[str, Reader]]:
    """`engines(shop)`: each one's way to all rows."""
    session = with_catalog(spark, line.stack.address("catalog"))

    def of(shop: Shop) -> dict[str, Reader]:
        return readers(line, session, api, {"tenant": shop.tenant, **WHERE}, name_of(shop), COLUMNS)

    return of


def _deletes(line: Line, name: TableName) -> set[int]:
    view = load_view(line.catalog, open_storage(), name)
    assert view is not None
    return {entry.file.content for entry in view.delete_entries()}


def _round(line: Line, name: TableName, **more: Any) -> None:
    assert maintenance(line.catalog, [name], snapshots__count_max=100, **more).run().failures == {}


def _upsert(
    line: Line, name: TableName, catalog: CatalogClient, like: int, rows: Sequence[dict[str, Any]]
) -> str:
    """A statement that brings rows like one that is there, but for what is given."""
    table = f"{CATALOG}.`{name.namespace}`.`{name.name}`"
    fields = [field["name"] for field in catalog.load_table(name)["metadata"]["schemas"][-1]["fields"]]

    def spelled(row: dict[str, Any]) -> str:
        given = {
            "id": f"CAST({row['id']} AS INT)",
            "name": f"CAST('{row['name']}' AS STRING)",
            "amount": f"CAST({row['amount']} AS BIGINT)",
        }
        values = ", ".join(f"{given.get(field, f'`{field}`')} AS `{field}`" for field in fields)
        return f"SELECT {values} FROM {table} WHERE id = {like}"

    selects = " UNION ALL ".join(map(spelled, rows))
    return f"INSERT INTO {table} /*+ OPTIONS('upsert-enabled' = 'true') */ {selects}"


def test_firns_own_table_is_read_by_all_engines_after_a_round(
    line: Line,
    ingester: Callable[..., Ingester],
    catalog_client: CatalogClient,
    engines: Callable[[Shop], dict[str, Reader]],
    tmp_path: Path,
) -> None:
    """Flink replaces rows that Firn wrote, and its own of the commit before, and brings new ones; with the
    next round its deletes are of positions, and after a merge there are none. Changes from the source go
    on."""
    topic, shop = line.kafka.topic(partitions=1), Shop(fresh("shop-"))
    ingester(changes(topic, buckets=3), flush__interval_s=0.3)
    line.kafka.produce(topic, [shop.put(id=at, name=f"r{at}", amount=at) for at in range(30)])
    wait_for_table(line, shop)
    name = name_of(shop)
    come: list[list[dict[str, Any]]] = [
        [{"id": at, "name": "by flink", "amount": 100 + at} for at in (1, 2, 3, 90, 91)],
        [{"id": at, "name": "again", "amount": 200 + at} for at in (2, 4, 90)],
    ]
    run_in_flink(
        line.stack.address("catalog"),
        tmp_path,
        [_upsert(line, name, catalog_client, 20, rows) for rows in come],
    )
    shop.rows |= {row["id"]: row for rows in come for row in rows}
    assert EQUALITY_DELETES in _deletes(line, name)
    assert "pyiceberg" not in right(engines(shop), wanted(shop)), "else nothing is shown"
    _round(line, name, **NO_MERGE)
    assert _deletes(line, name) == {POSITION_DELETES}
    assert right(engines(shop), wanted(shop)) == ["duckdb", "pyiceberg", "spark", "trino"]
    line.kafka.produce(topic, [shop.put(id=90, name="by us", amount=1), *shop.delete(1)])
    wait_for_table(line, shop)
    _round(line, name, merge__late_cooldown_s=0, merge__deleted_share_max=0.0)
    assert _deletes(line, name) == set()
    assert right(engines(shop), wanted(shop)) == ["duckdb", "pyiceberg", "spark", "trino"]
