"""The engines of this stack see the same rows of a keyed table, whatever changes have done to it."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.commit import load_state
from lake.errors import NotFoundError
from lake.marks import MARKS_PROPERTY, parse_marks
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.changes.support.shop import FIELDS, Shop, changes, flat
from tests.query.conftest import api, query_uri  # noqa: F401 - fixtures
from tests.query.support.four_engines import READ_RIGHT, readers, right, upgrade, with_catalog
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack
TIMES = {"from": "2023-11-01", "to": "2023-12-01"}
PRICE = {"type": "double", "optional": True, "field": "price"}
# What a table of the source had, one after the other: a column that comes, one that goes, one that widens.
SCHEMAS = (
    [*FIELDS, {"type": "int32", "optional": True, "field": "size"}],
    [*FIELDS, {"type": "int64", "optional": True, "field": "size"}, PRICE],
    [*FIELDS[:2], {"type": "int64", "optional": True, "field": "size"}, PRICE],
)
COLUMNS = ("id", "name", "amount", "size", "price")
CHANGES, KEYS = 80, 50


def _some_changes(chance: random.Random, shop: Shop) -> list[Record]:
    records: list[Record | list[Record]] = []
    for _ in range(CHANGES):
        key = chance.randrange(KEYS)
        if key in shop.rows and chance.random() < 0.3:
            records.append(shop.delete(key))
            continue
        values = {
            "name": chance.choice((None, "", f"n{chance.random()}")),
            "amount": chance.randrange(-(1 << 40), 1 << 40),
            "size": chance.randrange(1 << (31 if shop.fields is SCHEMAS[0] else 40)),
            "price": chance.choice((None, chance.random())),
        }
        names = {field["field"] for field in shop.fields}
        records.append(shop.put(id=key, **{name: values[name] for name in values if name in names}))
    return flat(records)


def _taken(catalog: CatalogClient, name: TableName) -> int:
    """How many messages of its one partition the table has, whether as rows or not."""
    try:
        properties = catalog.load_table(name)["metadata"]["properties"]
    except NotFoundError:
        return 0
    return sum(parse_marks(properties.get(MARKS_PROPERTY)).offsets.values())


def test_engines_agree_on_keyed_tables(
    line: Line,
    ingester: Callable[..., Ingester],
    spark: Any,  # noqa: F811
    api: httpx.Client,  # noqa: F811
    catalog_client: CatalogClient,
) -> None:
    """After random inserts, updates and deletes, and after each change of columns: a table of version 2, and
    one that its owner has upgraded to 3, with position delete files from before and vectors since."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, topics = random.Random(seed), {at: line.kafka.topic(partitions=1) for at in (2, 3)}
    shops = {version: Shop(fresh("shop-"), SCHEMAS[0]) for version in (2, 3)}
    names = {version: TableName(to_identifier(shop.tenant), "logs") for version, shop in shops.items()}
    ingester([changes(topic, buckets=3) for topic in topics.values()])
    session = with_catalog(spark, line.stack.address("catalog"))
    seen, sent = set[str](), Counter[int]()
    for at, fields in enumerate((SCHEMAS[0], *SCHEMAS)):
        seen |= {field["field"] for field in fields}
        columns = [each for each in COLUMNS if each in seen]
        for version, shop in shops.items():
            shop.fields = fields
            records = _some_changes(chance, shop)
            line.kafka.produce(topics[version], records)
            sent[version] += len(records)
        for version, name in names.items():
            wait_for(
                lambda: _taken(catalog_client, name) == sent[version],  # noqa: B023
                60,
                f"{sent[version]} messages",
            )
        if not at:
            upgrade(catalog_client, names[3], 3)
            continue
        for version, shop in shops.items():
            where = {"tenant": shop.tenant, "stream": "logs", **TIMES}
            truth = [tuple(row.get(each) for each in columns) for row in shop.rows.values()]
            engines = readers(line, session, api, where, names[version], columns)
            assert right(engines, truth) == READ_RIGHT[version]
    for version, name in names.items():
        state = load_state(catalog_client, open_storage(), name)
        assert state is not None
        assert (state.version, state.totals.delete_files > 0) == (version, True)
