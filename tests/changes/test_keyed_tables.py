"""Tables that follow changes: one row per key, whatever comes in which order, as Trino counts it."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.changes.support.shop import (
    FIELDS,
    LONGEST_S,
    Shop,
    changes,
    flat,
    stored,
    wait_for_table,
    wait_until_equal,
)
from tests.stack.support.forked import run_room
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import location, numbered, unwritable, wait_parked, wait_released
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack


@pytest.fixture
def topic(line: Line) -> str:
    return line.kafka.topic(partitions=1)


def snapshots_of(line: Line, tenant: str) -> str:
    return line.table(tenant)[:-1] + '$snapshots"'


def test_rows_follow_their_source_over_many_flushes(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    chance, shop = random.Random(7), Shop(fresh("shop-"))
    running = ingester(changes(topic))
    for _ in range(6):
        records: list[Record | list[Record]] = []
        for _ in range(60):
            key = chance.randrange(40)
            if key in shop.rows and chance.random() < 0.3:
                records.append(shop.delete(key))
            else:
                records.append(shop.put(id=key, name=f"n{chance.random()}", amount=chance.randrange(1 << 40)))
        line.kafka.produce(topic, flat(records))
        wait_for_table(line, shop)
    assert running.alive


def test_a_schema_that_changes_loses_nothing(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Columns that come, that become wider and that change their type, in the middle of a flush and between
    flushes; rows whose keys are older than that follow."""
    shop = Shop(fresh("shop-"))
    ingester(changes(topic))
    first = [shop.put(id=at, name=f"n{at}", amount=at) for at in range(10)]
    shop.fields = [*FIELDS[:2], {**FIELDS[2], "type": "string"}, {"type": "int32", "field": "size"}]
    second = [shop.put(id=at, name="texts", amount=f"{at} pieces", size=at) for at in range(5)]
    line.kafka.produce(topic, [*first, *second])
    wait_for(lambda: line.exists(shop.tenant), LONGEST_S, "the table")
    wait_until_equal(lambda: stored(line, shop.tenant, "count(*)"), [(10,)])
    shop.fields = [FIELDS[0], {"type": "int64", "field": "size"}]
    line.kafka.produce(topic, [shop.put(id=3, size=1 << 40), shop.put(id=9, size=1 << 41)])

    def found() -> list[tuple[Any, ...]]:
        return stored(line, shop.tenant, "id, name, amount, amount__string, size")

    expected: list[tuple[Any, ...]] = [(at, "texts", None, f"{at} pieces", at) for at in (0, 1, 2, 4)]
    expected += [(at, f"n{at}", at, None, None) for at in (5, 6, 7, 8)]
    expected += [(3, None, None, None, 1 << 40), (9, None, None, None, 1 << 41)]
    wait_until_equal(found, sorted(expected, key=lambda row: row[0]))


def test_a_truncated_table_is_empty_and_goes_on(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    shop = Shop(fresh("shop-"))
    ingester(changes(topic))
    line.kafka.produce(topic, [shop.put(id=at, name="before", amount=at) for at in range(10)])
    wait_for_table(line, shop)
    again = [shop.put(id=3, name="lost", amount=0), shop.truncate(), shop.put(id=4, name="after", amount=1)]
    line.kafka.produce(topic, again)
    wait_for_table(line, shop)
    line.kafka.produce(topic, [shop.truncate()])
    wait_for_table(line, shop)


def test_the_first_of_a_key_stays_where_that_is_the_mode(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Shippers that retry: the id that a record carries is written once."""
    tenant = fresh("retried-")
    ingester(changes(topic, mode="first_wins", format="keyed_json", key=["event"]))
    headers = [("tenant", tenant.encode())]

    def sent(*events: tuple[str, int]) -> None:
        values = [orjson.dumps({"event": event, "try": number}) for event, number in events]
        line.kafka.produce(topic, [Record(value, headers=headers) for value in values])

    sent(("a", 1), ("b", 1), ("a", 2))
    wait_for(lambda: line.exists(tenant), LONGEST_S, "the table")
    wait_until_equal(lambda: stored(line, tenant, "event, try"), [("a", "1"), ("b", "1")])
    sent(("b", 3), ("c", 1), ("a", 4))
    wait_until_equal(lambda: stored(line, tenant, "event, try"), [("a", "1"), ("b", "1"), ("c", "1")])


def test_changes_that_are_sent_again_do_nothing_where_they_have_an_order(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Also from another partition, and after newer ones."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(partitions=2)
    running = ingester(changes(topic, order_by="position"))
    old = [shop.put(id=at, name="old", amount=at) for at in range(5)]
    new = [shop.put(id=at, name="new", amount=at) for at in range(5)]
    line.kafka.produce(topic, [replace(record, partition=1) for record in (*old, *new)])
    wait_for_table(line, shop)
    line.kafka.produce(topic, [replace(record, partition=0) for record in old])
    line.kafka.produce(topic, [replace(shop.put(id=7, name="newest", amount=7), partition=0)])
    wait_for_table(line, shop)
    assert 'firn_ingest_changes_total{result="older"} 5.0' in running.metrics()
    assert 'firn_ingest_changes_total{result="inserted"} 6.0' in running.metrics()


def test_one_key_in_parts_of_a_large_flush_is_one_row(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Its rows lie in several row groups and files of one commit."""
    shop = Shop(fresh("shop-"))
    running = ingester(
        changes(topic), start=False, flush__interval_s=8.0, flush__buffer_bytes_max=8 * 1024 * 1024
    )
    records = [shop.put(id=at % 700, name=f"{at}" + "x" * 200, amount=at) for at in range(6_000)]
    line.kafka.produce(topic, records)
    running.start()
    wait_for_table(line, shop)


def test_killed_again_and_again_no_key_is_lost_or_doubled(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    chance, shop = random.Random(11), Shop(fresh("shop-"))
    running = ingester(changes(topic))
    for _ in range(4):
        records = [
            shop.put(id=chance.randrange(300), name=f"{at}", amount=chance.randrange(1 << 40))
            for at in range(500)
        ]
        line.kafka.produce(topic, records)
        pause(chance.random() * 1.5)
        running.kill()
        running.start()
    wait_for_table(line, shop)
    (snapshots,) = line.sql(f"SELECT array_agg(snapshot_id) FROM {snapshots_of(line, shop.tenant)}")[0]
    for snapshot in snapshots:
        then = f"{line.table(shop.tenant)} FOR VERSION AS OF {snapshot}"
        doubled = line.sql(f"SELECT id FROM {then} GROUP BY id HAVING count(*) > 1")
        assert doubled == []


def test_a_history_has_every_change(line: Line, ingester: Callable[..., Ingester], topic: str) -> None:
    shop = Shop(fresh("shop-"))
    ingester(changes(topic, mode="history"))
    line.kafka.produce(topic, [shop.put(id=1, name="a", amount=1), shop.put(id=1, name="b", amount=2)])
    line.kafka.produce(topic, [*shop.delete(1), shop.truncate()])
    wait_for(lambda: line.exists(shop.tenant), LONGEST_S, "the table")
    said = 'SELECT _op, _key, id, name, amount, _position FROM {} ORDER BY "_offset"'
    position = "{:020}".format
    expected = [
        ("insert", '{"id":1}', 1, "a", 1, position(1)),
        ("update", '{"id":1}', 1, "b", 2, position(2)),
        ("delete", '{"id":1}', 1, "b", 2, position(3)),
        ("truncate", None, None, None, None, position(4)),
    ]
    wait_until_equal(lambda: line.sql(said.format(line.table(shop.tenant))), expected)


def test_deletes_alone_remove_rows_that_others_have_written(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """A stream of people to be forgotten, beside the one that fills the table."""
    shop, forgotten = Shop(fresh("shop-")), line.kafka.topic(partitions=1)
    deletes = Shop(shop.tenant)
    ingester([changes(topic), changes(forgotten, mode="delete_only")])
    line.kafka.produce(topic, [shop.put(id=at, name="x", amount=at) for at in range(4)])
    wait_for_table(line, shop)
    deletes.rows = dict(shop.rows)
    line.kafka.produce(forgotten, deletes.delete(2))
    del shop.rows[2]
    wait_for_table(line, shop)


def test_values_that_the_source_did_not_send_are_kept(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Also where the key changed: then the row of the old key has them."""
    shop = Shop(fresh("shop-"))
    ingester(changes(topic))
    line.kafka.produce(topic, [shop.put(id=at, name=f"large {at}", amount=at) for at in range(6)])
    wait_for_table(line, shop)
    unsent = "__debezium_unavailable_value"
    kept = [shop.put(id=at, name=unsent, amount=100 + at) for at in range(3)]
    twice = [shop.put(id=3, name="other", amount=1), shop.put(id=3, name=unsent, amount=2)]
    moved = [*shop.delete(4), shop.put(id=40, name=unsent, amount=4)]
    old_key = ("__debezium.oldkey", orjson.dumps({"id": 4}))
    moved[-1] = replace(moved[-1], headers=[*moved[-1].headers, old_key])
    again = [shop.put(id=0, name=unsent, amount=999)]
    line.kafka.produce(topic, [*kept, *twice, *moved, *again])
    for key, name in ((0, "large 0"), (1, "large 1"), (2, "large 2"), (3, "other"), (40, "large 4")):
        shop.rows[key] = {**shop.rows[key], "name": name}
    wait_for_table(line, shop)
    line.kafka.produce(topic, [shop.put(id=9, name=unsent, amount=9)])
    shop.rows[9] = {"id": 9, "name": None, "amount": 9}
    wait_for_table(line, shop)


def test_tools_that_know_no_keys_say_so(line: Line, ingester: Callable[..., Ingester], topic: str) -> None:
    running = ingester(changes(topic), start=False)
    done = run_room("ingest", "backfill", "kafka", topic, environment=running.environment, timeout_s=60.0)
    assert done.returncode == 2, done.stderr
    assert "has changes" in done.stderr


@pytest.mark.prove
def test_tasks_of_spark_write_the_same_rows(line: Line, ingester: Callable[..., Ingester]) -> None:
    """Several tasks have changes of one key, a truncate among them; their steps are put together where they
    are committed. The history beside the table has each of them."""
    chance, shop, topic = random.Random(13), Shop(fresh("shop-")), line.kafka.topic(partitions=1)
    records = [
        shop.put(id=chance.randrange(400), name=f"{at}", amount=chance.randrange(1 << 40))
        for at in range(3_000)
    ]
    records.append(shop.truncate())
    records += [
        shop.put(id=chance.randrange(400), name=f"{at}", amount=chance.randrange(1 << 40))
        for at in range(3_000)
    ]
    line.kafka.produce(topic, records)
    running = ingester(changes(topic, history=True), start=False)
    running.set(engine="spark", spark__task_records_max="700")
    running.start()
    wait_for_table(line, shop)
    again = [shop.put(id=at, name="again", amount=at) for at in range(0, 400, 3)]
    line.kafka.produce(topic, [*again, *shop.delete(0)])
    wait_for_table(line, shop)
    kept = f'SELECT count(*), count(DISTINCT "_offset") FROM {line.table(shop.tenant, "logs_history")}'
    count = len(records) + len(again) + 1  # the last message only repeats a delete
    wait_until_equal(lambda: line.sql(kept), [(count, count)])


def test_parked_changes_come_back_in_their_order(
    line: Line, ingester: Callable[..., Ingester], topic: str
) -> None:
    """Deletes, and messages that are nothing but a key, among them."""
    shop, well, logs = Shop(fresh("shop-")), fresh("well-"), line.kafka.topic()
    running = ingester([changes(topic), {"name": logs}], flush__interval_s=0.3, tables__park_after_s=1)
    line.kafka.produce(topic, [shop.put(id=at, name="first", amount=at) for at in range(10)])
    line.kafka.produce(logs, numbered(well, range(10)))
    wait_for_table(line, shop)
    with unwritable(location(line, shop.tenant) / "data"):
        parked = [shop.put(id=at, name="parked", amount=at) for at in range(3, 12)]
        line.kafka.produce(
            topic, [*parked, *shop.delete(4), *shop.delete(5), shop.put(id=5, name="", amount=0)]
        )
        line.kafka.produce(logs, numbered(well, range(10, 40)))
        wait_parked(running, shop.tenant, "storage")
        line.wait_for_rows(running, well, 40)
    wait_released(running, shop.tenant)
    line.kafka.produce(topic, [shop.put(id=7, name="last", amount=7)])
    wait_for_table(line, shop)
