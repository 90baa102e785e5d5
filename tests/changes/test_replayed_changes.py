"""Changes that became dead letters and are sent again: each counts from where it was first read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.changes.support.shop import Shop, changes, wait_for_table, wait_until_equal
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


def lost(record: Record) -> Record:
    """The same without a tenant: a dead letter."""
    return replace(record, headers=())


def replay(ours: ToolLine, tenant: str) -> dict[str, Any]:
    return ours.json("dead-letters", "replay", "--all", "--to-tenant", tenant)


def test_a_replayed_change_is_applied_unless_others_have_followed(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """Also where they follow while it is on its way; what a later change has made, or deleted, stays so."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(1)
    ours = tools([changes(topic)])
    ours.ingester.start()
    line.kafka.produce(topic, [shop.put(id=at, name="first", amount=at) for at in range(6)])
    kept = [lost(shop.put(id=1, name="late", amount=1)), lost(shop.delete(4)[0])]
    kept.append(lost(shop.put(id=7, name="late", amount=7)))
    late = [lost(shop.put(id=at, name="never", amount=0)) for at in (2, 3)]
    late.append(lost(shop.truncate()))
    shop.rows = {at: {"id": at, "name": "first", "amount": at} for at in (0, 1, 4, 5)}
    line.kafka.produce(topic, [*kept, *late, shop.put(id=2, name="after", amount=2)])
    shop.rows[3] = {"id": 3, "name": "first", "amount": 3}
    line.kafka.produce(topic, shop.delete(3))
    wait_for_table(line, shop)
    line.wait_for_dead_letters(ours.ingester, 6)
    assert ours.ingester.stop() == 0
    answer = replay(ours, shop.tenant)
    assert answer["replayed"] == 3
    assert sorted((count, why.split(",")[0]) for why, count in answer["left"].items()) == [
        (1, "a truncate would remove what came since; empty the table at its source"),
        (2, "later changes of its key are in its topic"),
    ]
    shop.rows |= {7: {"id": 7, "name": "late", "amount": 7}}
    del shop.rows[4]
    line.kafka.produce(topic, [shop.put(id=1, name="newest", amount=1)])
    ours.ingester.start()
    wait_for_table(line, shop)
    ours.wait_until_stored(ours.settings["internal_topics__replay"], {0: 3})
    wait_for_table(line, shop)
    coordinates = f'SELECT "_topic", "_offset" FROM {line.table(shop.tenant)} WHERE id = 7'
    assert line.sql(coordinates) == [(topic, 8)]
    assert ours.ingester.stop() == 0
    assert ours.audit() == {}, ours.audited


def test_a_history_gets_its_replayed_changes_with_their_coordinates(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(1)
    ours = tools([changes(topic, mode="history")])
    ours.ingester.start()
    line.kafka.produce(topic, [shop.put(id=1, name="a", amount=1), lost(shop.put(id=1, name="b", amount=2))])
    line.wait_for_rows(ours.ingester, shop.tenant, 1)
    line.wait_for_dead_letters(ours.ingester, 1)
    assert replay(ours, shop.tenant)["replayed"] == 1
    said = f'SELECT _op, name, "_topic", "_offset" FROM {line.table(shop.tenant)} ORDER BY "_offset"'
    wait_until_equal(lambda: line.sql(said), [("insert", "a", topic, 0), ("update", "b", topic, 1)])
