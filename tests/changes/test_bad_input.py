"""What is wrong in a stream of changes: each has a reason, a counter and a place, and holds up nobody."""

import io
import json
from collections.abc import Callable
from dataclasses import replace

import fastavro
import pytest

from tests.changes.support.shop import Shop, changes, stored, wait_for_table, wait_until_equal
from tests.ingest.support.fake_schema_registry import fake_schema_registry, framed
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import numbered
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def avro(schema_id: int, number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": number})
    return framed(schema_id, out.getvalue())


def test_every_kind_of_bad_change_is_a_dead_letter_of_its_own_reason(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Changes of the same table around them are applied; so are records of an append stream, where a delete
    is one of them."""
    shop, logs = Shop(fresh("shop-")), fresh("logs-")
    topic, append = line.kafka.topic(1), line.kafka.topic(1)
    running = ingester([changes(topic), changes(append, mode="append")])
    headers = [("tenant", shop.tenant.encode())]
    good = [shop.put(id=at, name="good", amount=at) for at in range(3)]
    bad = {
        "key_missing": replace(good[0], key=None),
        "key_unusable": replace(good[0], key=b'{"id":"seven"}'),
        "op_unknown": Record(b'{"op":"x","after":{"id":1}}', key=b'{"id":1}', headers=headers),
        "not_of_schema": Record(b'{"op":"c","after":null}', key=b'{"id":1}', headers=headers),
        "undecodable": Record(b'{"op":', key=b'{"id":1}', headers=headers),
    }
    line.kafka.produce(topic, [*good, *bad.values(), shop.put(id=9, name="behind", amount=9)])
    to_logs = [("tenant", logs.encode())]
    line.kafka.produce(append, [*numbered(logs, range(3)), Record(None, key=b"1", headers=to_logs)])
    wait_for_table(line, shop)
    line.wait_for_rows(running, logs, 3)
    line.wait_for_dead_letters(running, len(bad) + 1)
    letters = line.kafka.dead_letters(running.dead_letter_topic)
    reasons = sorted(letter.facts["firn.reason"] for letter in letters.values())
    assert reasons == sorted([*bad, "empty"])
    counted = running.metrics()
    for reason in reasons:
        assert f'firn_ingest_records_dead_lettered_total{{reason="{reason}"}} 1.0' in counted


def test_one_unknown_schema_holds_up_nobody_and_a_silent_registry_its_tables_alone(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Nothing is rejected while the registry does not answer; when it does again, all is there."""
    orders, logs = fresh("orders-"), fresh("logs-")
    topic, other = line.kafka.topic(1), line.kafka.topic(1)
    headers = [("tenant", orders.encode())]
    with fake_schema_registry() as registry:
        running = ingester(
            [changes(topic, format="keyed_json", key=["id"]), {"name": other}],
            registry__url=registry.url,
            registry__unknown_s=1,
        )
        known = registry.add(json.dumps(ORDER))
        values = [avro(known, 1), avro(known + 40, 2), avro(known, 3)]
        line.kafka.produce(topic, [Record(value, headers=headers) for value in values])
        wait_for(lambda: line.exists(orders), 60, "the table")
        wait_until_equal(lambda: stored(line, orders, "id"), [(1,), (3,)])
        line.wait_for_dead_letters(running, 1)
        registry.status = 503
        added = registry.add(json.dumps({**ORDER, "name": "Another"}))
        line.kafka.produce(topic, [Record(avro(added, 4), headers=headers)])
        line.kafka.produce(other, numbered(logs, range(5)))
        line.wait_for_rows(running, logs, 5)
        assert stored(line, orders, "id") == [(1,), (3,)]
        registry.status = 200
        wait_until_equal(lambda: stored(line, orders, "id"), [(1,), (3,), (4,)])
        letters = line.kafka.dead_letters(running.dead_letter_topic)
        assert [letter.facts["firn.reason"] for letter in letters.values()] == ["schema_unknown"]
