"""A table with a key and the history beside it on the real services: each is exact, whatever becomes of the
other."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from lake.catalog_client import TableName
from lake.storage import local_path
from lake.tenant import to_identifier
from tests.changes.support.shop import LONGEST_S, Shop, changes, flat, wait_for_table, wait_until_equal
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import unwritable
from tests.stack.support.waiting import fresh, pause, wait_for

pytestmark = pytest.mark.stack
STREAM = "logs_history"


def history(line: Line, tenant: str) -> list[tuple[Any, ...]]:
    """The offset of each change that has a row."""
    return line.sql(f'SELECT "_offset" FROM {line.table(tenant, STREAM)} ORDER BY 1')


def test_both_tables_are_exact_after_kills(line: Line, ingester: Callable[..., Ingester]) -> None:
    """Every change is once in the history, the last of each key in the table; a message that nobody can read
    is one dead letter, however often it is read."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, shop, topic = random.Random(seed), Shop(fresh("shop-")), line.kafka.topic(partitions=1)
    running = ingester(changes(topic, history=True))
    sent: list[Record] = []
    for _ in range(2):
        records: list[Record | list[Record]] = []
        for _ in range(200):
            key = chance.randrange(60)
            if key in shop.rows and chance.random() < 0.3:
                records.append(shop.delete(key))
            else:
                records.append(shop.put(id=key, name=f"n{chance.random()}", amount=chance.randrange(1 << 40)))
        records.append(Record(b"nonsense", key=b"nonsense", headers=[("tenant", shop.tenant.encode())]))
        line.kafka.produce(topic, flat(records))
        sent += flat(records)
        pause(chance.random())
        running.kill()
        running.start()
    wait_for_table(line, shop)
    # Neither what nobody can read nor what only repeats a delete is a change.
    expected = [(at,) for at, record in enumerate(sent) if record.value not in (None, b"nonsense")]
    wait_for(lambda: line.exists(shop.tenant, STREAM), LONGEST_S, "the history")
    wait_until_equal(lambda: history(line, shop.tenant), expected)
    wait_for(lambda: len(line.kafka.dead_letters(running.dead_letter_topic)) >= 2, 60, "dead letters")
    letters = line.kafka.dead_letters(running.dead_letter_topic)
    assert sorted(offset for _, _, offset in letters) == [
        at for at, record in enumerate(sent) if record.value == b"nonsense"
    ]


def test_a_history_that_is_parked_holds_its_table_up_by_nothing(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """It comes back whole."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(partitions=1)
    running = ingester(changes(topic, history=True), flush__interval_s=0.3, tables__park_after_s=1)
    line.kafka.produce(topic, [shop.put(id=at, name="first", amount=at) for at in range(5)])
    wait_for_table(line, shop)
    wait_for(lambda: line.exists(shop.tenant, STREAM), LONGEST_S, "the history")
    wait_until_equal(lambda: history(line, shop.tenant), [(at,) for at in range(5)])
    name = TableName(to_identifier(shop.tenant), to_identifier(STREAM))
    folder = local_path(line.catalog.load_table(name)["metadata"]["location"])
    with unwritable(folder / "data"):
        for text in ("second", "third"):
            line.kafka.produce(topic, [shop.put(id=at, name=text, amount=at) for at in range(5)])
            wait_for_table(line, shop)
        wait_for(lambda: 'tables_parked{reason="storage"} 1' in running.metrics(), 60, "the history parked")
        line.kafka.produce(topic, shop.delete(3))
        wait_for_table(line, shop)
    wait_for(lambda: 'tables_parked{reason="storage"} 1' not in running.metrics(), 60, "the history back")
    wait_until_equal(lambda: history(line, shop.tenant), [(at,) for at in range(16)])
