"""What doubles rows where keys are not looked after: no snapshot has a key twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from lake.catalog_client import TableName
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.changes.support.shop import FIELDS, KEY_SCHEMA, Shop, changes, wait_for_table
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.faults.streams.every_snapshot import SnapshotReader
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack


def look_at_snapshots(line: Line, shop: Shop) -> int:
    """Fails where a snapshot of the shop's table has a key twice; how many there are."""
    reader = SnapshotReader(line.catalog, open_storage())
    reader.read(TableName(to_identifier(shop.tenant), to_identifier("logs")), ["id"])
    assert reader.doubled == []
    return reader.snapshots


@pytest.fixture
def topic(line: Line) -> str:
    return line.kafka.topic(partitions=1)


def test_a_key_three_times_in_one_flush_is_one_row(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    shop = Shop(fresh("shop-"))
    running = ingester(changes(topic), start=False)
    line.kafka.produce(topic, [shop.put(id=1, name=f"n{at}", amount=at) for at in range(3)])
    line.kafka.produce(topic, [shop.put(id=2, name="a", amount=1), *shop.delete(2)])
    line.kafka.produce(topic, [shop.put(id=2, name="b", amount=2)])
    running.start()
    wait_for_table(line, shop)
    again = [shop.put(id=1, name="x", amount=5), *shop.delete(1), shop.put(id=1, name="y", amount=6)]
    line.kafka.produce(topic, [*again, shop.put(id=1, name="z", amount=7)])
    wait_for_table(line, shop)
    assert look_at_snapshots(line, shop) >= 2


def test_a_key_before_and_after_its_table_rolls_over_is_one_row(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """A hot table is flushed for its size while changes of the same keys come, the rest at the end."""
    shop = Shop(fresh("shop-"))
    running = ingester(changes(topic), flush__bytes=100_000, flush__interval_s=600.0)
    lots = [
        [shop.put(id=at % 50, name=f"{lot} {at}" + "x" * 300, amount=at) for at in range(2_500)]
        for lot in range(2)
    ]

    def flushed() -> int:
        return look_at_snapshots(line, shop) if line.exists(shop.tenant) else 0

    line.kafka.produce(topic, lots[0])
    wait_for(lambda: flushed() >= 1, 60, "a flush for the table's size")
    line.kafka.produce(topic, lots[1])
    wait_for(lambda: flushed() >= 2, 60, "another one")
    running.stop()
    running.start(
        environment={"FIRN_INGEST_FLUSH__INTERVAL_S": "0.5", "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": "0.5"}
    )
    wait_for_table(line, shop)
    assert flushed() >= 2


def test_a_key_before_and_after_its_schema_changes_is_one_row(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """In the middle of a flush and between flushes; the key itself becomes wider, too."""
    shop = Shop(fresh("shop-"))
    running = ingester(changes(topic), start=False)
    first = [shop.put(id=at, name="old", amount=at) for at in range(20)]
    shop.fields = [*FIELDS, {"type": "string", "optional": True, "field": "note"}]
    second = [shop.put(id=at, name="new", amount=at, note="n") for at in range(10)]
    line.kafka.produce(topic, [*first, *second])
    running.start()
    wait_for_table(line, shop)
    shop.fields = [{**FIELDS[0], "type": "int64"}, *FIELDS[1:]]
    narrow = [shop.put(id=6, name="narrow", amount=1)]
    wide = [_with_wide_key(shop.put(id=at, name="wide", amount=at)) for at in range(5, 25)]
    line.kafka.produce(topic, [*narrow, *wide])
    wait_for_table(line, shop)
    look_at_snapshots(line, shop)


def _with_wide_key(record: Record) -> Record:
    key = orjson.loads(record.key or b"{}")
    fields = [{**FIELDS[0], "type": "int64"}]
    return replace(record, key=orjson.dumps({**key, "schema": {**KEY_SCHEMA, "fields": fields}}))


def test_a_key_after_a_commit_whose_outcome_was_unknown_is_one_row(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """The commit that makes the table, and one that changes rows, are made, and their answers are lost."""
    shop = Shop(fresh("shop-"))
    with CatalogProxy(line.stack.address("catalog")) as proxy:
        ingester(changes(topic), catalog__uri=proxy.address, commit__timeout_s=2.0)
        for name in ("first", "second"):
            proxy.hold()
            line.kafka.produce(topic, [shop.put(id=at, name=name, amount=at) for at in range(10)])
            assert proxy.held.wait(30.0)
            proxy.land()
            wait_for_table(line, shop)
    look_at_snapshots(line, shop)


def test_a_key_in_two_partitions_is_one_row_and_is_named(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """In one flush, and where the table has it from another partition."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(partitions=2)
    running = ingester(changes(topic), start=False)

    def send(partition: int, *rows: dict[str, Any]) -> None:
        line.kafka.produce(topic, [replace(shop.put(**row), partition=partition) for row in rows])

    send(0, {"id": 1, "name": "a", "amount": 1}, {"id": 3, "name": "a", "amount": 1})
    send(1, {"id": 3, "name": "b", "amount": 2}, {"id": 4, "name": "b", "amount": 2})
    running.start()
    wait_for_table(line, shop)
    counted = 'firn_ingest_changes_total{result="in_several_partitions"}'
    assert f"{counted} 1.0" in running.metrics()
    send(0, {"id": 4, "name": "c", "amount": 3}, {"id": 1, "name": "c", "amount": 3})
    wait_for_table(line, shop)
    assert f"{counted} 2.0" in running.metrics()
    warnings = [text for text in running.log().splitlines() if "keys.in_several_partitions" in text]
    assert ['{"id":3}' in text.replace("\\", "") for text in warnings] == [True, False]
    assert ['{"id":4}' in text.replace("\\", "") for text in warnings] == [False, True]
    look_at_snapshots(line, shop)


def _moved(shop: Shop, old: int, new: int) -> list[Record]:
    """What a connector sends where a key changes and one value is not sent."""
    row, tenant = shop.rows[old], shop.tenant
    deleted = [
        replace(record, headers=[*record.headers, ("__debezium.newkey", orjson.dumps({"id": new}))])
        for record in shop.delete(old)
    ]
    put = shop.put(id=new, name="__debezium_unavailable_value", amount=row["amount"])
    shop.rows[new] = {**row, "id": new}
    assert put.headers == [("tenant", tenant.encode())]
    return [
        *deleted,
        replace(put, headers=[*put.headers, ("__debezium.oldkey", orjson.dumps({"id": old}))]),
    ]


def test_a_row_whose_key_changes_keeps_its_values_where_a_flush_ends_in_between(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """It has the old key until the message comes that has the new one."""
    shop = Shop(fresh("shop-"))
    running = ingester(changes(topic))
    line.kafka.produce(topic, [shop.put(id=at, name=f"large {at}", amount=at) for at in range(4)])
    wait_for_table(line, shop)
    before = dict(shop.rows)
    *deleted, put = _moved(shop, 1, 11)
    after, shop.rows = shop.rows, before
    line.kafka.produce(topic, deleted)
    ends = line.kafka.ends(topic)
    wait_for(lambda: line.kafka.group_offsets(running.group, topic) == ends, 60, "the deletes being done")
    wait_for_table(line, shop)
    shop.rows = after
    line.kafka.produce(topic, [put])
    wait_for_table(line, shop)
    look_at_snapshots(line, shop)
