"""The audit of keyed tables: each offset has one end, the keys that are alive by the input are those of the
table, and what is not so is named by key and offset."""

from collections.abc import Callable
from typing import Any

import pytest

from lake.tenant import to_identifier
from tests.changes.support.shop import Shop, changes, wait_for_table
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


def of_table(ours: ToolLine, tenant: str) -> dict[str, Any]:
    """What the last audit says of the one table that is audited."""
    (found,) = ours.audited["keyed_tables"]
    assert found["table"].startswith(to_identifier(tenant))
    return dict(found)


def ends_of(ours: ToolLine) -> dict[str, int]:
    names = (
        "consumed",
        "written",
        "replaced",
        "deleted",
        "passed_over",
        "dead_lettered",
        "parked",
        "missing",
    )
    return {name: ours.audited[name] for name in names if ours.audited[name]}


def test_every_offset_has_one_end_and_every_wrong_key_is_named(
    line: Line, tools: Callable[..., ToolLine]
) -> None:
    """Counts while all is well; then a row that is gone, one that is there twice, and one that should be
    gone."""
    shop, topic = Shop(fresh("shop-")), line.kafka.topic(1)
    ours = tools([changes(topic)])
    ours.ingester.start()
    line.kafka.produce(topic, [shop.put(id=at, name="before", amount=at) for at in range(4)])
    wait_for_table(line, shop)
    line.kafka.produce(topic, [shop.truncate(), *(shop.put(id=at, name="a", amount=at) for at in range(5))])
    wait_for_table(line, shop)
    unkeyed = Record(shop.put(id=0, name="lost", amount=0).value, headers=(("tenant", shop.tenant.encode()),))
    heartbeat = Record(b'{"ts_ms":1}', headers=(("tenant", shop.tenant.encode()),))
    shop.rows[0] = {"id": 0, "name": "a", "amount": 0}
    again = [shop.put(id=1, name="b", amount=1), *shop.delete(2), unkeyed, heartbeat]
    line.kafka.produce(topic, again)
    wait_for_table(line, shop)
    ours.wait_until_stored(topic, {0: 15})
    assert ours.audit() == {}, ours.audited
    # Before the truncate four, of id 1 and 2 one each; of the delete the tombstone behind it stands.
    ends = {"consumed": 15, "written": 4, "replaced": 7, "deleted": 2, "passed_over": 1, "dead_lettered": 1}
    assert ends_of(ours) == ends
    found = of_table(ours, shop.tenant)
    assert (found["alive"], found["keys"], found["rows"], found["examples"]) == (4, 4, 4, [])
    assert (found["mode"], found["key"], found["order_by"]) == ("upsert", ["id"], "offset")
    assert "keys alive by the input" in ours.run("audit")

    table = line.table(shop.tenant)
    line.sql(f"DELETE FROM {table} WHERE id = 3")
    line.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 4")
    line.sql(f'UPDATE {table} SET "_offset" = 6 WHERE id = 1')
    line.sql(f'UPDATE {table} SET id = 77, "_offset" = 999 WHERE id = 0')
    assert ours.audit() == {"missing": 3, "doubled": 1, "stale": 1, "astray": 1}
    found = of_table(ours, shop.tenant)
    examples = sorted((one["what"], one["key"], one["topic"], one["offset"]) for one in found["examples"])
    assert examples == [
        ("doubled", '{"id":4}', topic, 9),
        ("missing", '{"id":0}', topic, 5),
        ("missing", '{"id":1}', topic, 10),
        ("missing", '{"id":3}', topic, 8),
        ("not in the input", '{"id":77}', topic, 999),
        ("stale", '{"id":1}', topic, 6),
    ]
    assert "first keys that are not as the input says" in ours.run("audit", code=1)


def test_modes_and_retention_are_minded(line: Line, tools: Callable[..., ToolLine]) -> None:
    """A history has a row for each change, also one beside a table; of several tables each is counted by its
    mode; what Kafka has removed since is not proven, and not wrong."""
    orders, retried = Shop(fresh("shop-")), fresh("retried-")
    history, upsert, first = (line.kafka.topic(2), line.kafka.topic(2), line.kafka.topic(1))
    ours = tools(
        [
            changes(history, mode="history") | {"stream": ["const:history"]},
            changes(upsert, order_by="position", history=True),
            changes(first, mode="first_wins", format="keyed_json", key=["event"]),
        ]
    )
    ours.ingester.start()
    records = [orders.put(id=at % 6, name=f"{at}", amount=at) for at in range(20)]
    records += orders.delete(0)
    line.kafka.produce(history, records)
    line.kafka.produce(upsert, [*records, *records[:7]])
    headers = [("tenant", retried.encode())]
    events = [Record(b'{"event":"e%d"}' % (at % 3), headers=headers) for at in range(9)]
    line.kafka.produce(first, events)
    line.wait_for_rows(ours.ingester, retried, 3)
    line.wait_for_rows(ours.ingester, orders.tenant, 21, stream="history")
    line.wait_for_rows(ours.ingester, orders.tenant, 28, stream="logs_history")
    wait_for_table(line, orders)
    assert ours.ingester.stop() == 0
    assert ours.audit() == {}, ours.audited
    by_mode = {each["mode"]: each for each in ours.audited["keyed_tables"]}
    assert (by_mode["upsert"]["alive"], by_mode["first_wins"]["alive"]) == (5, 3)
    of = {name: _sums(ours, name) for name in (history, upsert, first)}
    assert of[history] == {"consumed": 22, "written": 21, "passed_over": 1}
    # A message counts for the table with the key, and a change also for the history beside it.
    assert of[upsert]["written"] == 5 + 28
    assert sum(of[upsert].values()) == 2 * of[upsert]["consumed"] == 2 * (29 + 28)
    assert of[first] == {"consumed": 9, "written": 3, "passed_over": 6}
    line.kafka.remove_records(first, 4)
    line.kafka.remove_records(upsert, 100)
    assert ours.audit() == {}, ours.audited
    by_mode = {each["mode"]: each for each in ours.audited["keyed_tables"]}
    told = {mode: (each["alive"], each["keys"], each["not_proven"]) for mode, each in by_mode.items()}
    assert told == {"upsert": (0, 5, 5), "first_wins": (0, 3, 3)}


def _sums(ours: ToolLine, topic: str) -> dict[str, int]:
    names = ("consumed", "written", "replaced", "deleted", "passed_over", "dead_lettered", "missing")
    of_topic = [each for each in ours.audited["partitions"] if each["topic"] == topic]
    sums = {name: sum(each[name] for each in of_topic) for name in names}
    return {name: count for name, count in sums.items() if count}
