"""Topics that change under a running ingester, services that go away, tables that others change."""

import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from infra.local.supervisor import Stack
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.own_broker import own_broker
from tests.stack.support.waiting import fresh, pause

pytestmark = pytest.mark.stack

RECREATED_S = 40.0


def _numbered(tenant: str, numbers: range, partition: int | None = None, **fields: object) -> list[Record]:
    return [
        Record(orjson.dumps({"n": n, **fields}), headers=(("tenant", tenant.encode()),), partition=partition)
        for n in numbers
    ]


def _numbers(line: Line, tenant: str) -> list[int]:
    return sorted(int(n) for (n,) in line.sql(f"SELECT n FROM {line.table(tenant)}"))


def test_topic_recreated_while_the_ingester_was_away_is_read_from_its_start(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Kafka forgets a group's offsets with the topic: the new topic is read whole, and its rows are told from
    the old one's by the topic's id."""
    tenant, topic = fresh("again-"), line.kafka.topic()
    line.kafka.produce(topic, _numbered(tenant, range(10)))
    running = ingester(topic)
    line.wait_for_rows(running, tenant, 10)
    assert running.stop() == 0
    old_id = line.kafka.topic_id(topic)
    line.kafka.delete_topic(topic)
    line.kafka.topic(name=topic)
    line.kafka.produce(topic, _numbered(tenant, range(100, 130)))
    running.start()
    line.wait_for_rows(running, tenant, 40)
    counted: dict[str, int] = dict(
        line.sql(f"SELECT _topic_id, count(DISTINCT _offset) FROM {line.table(tenant)} GROUP BY 1")
    )
    assert counted == {old_id: 10, line.kafka.topic_id(topic): 30}


def test_group_offset_of_another_topic_id_stops_the_ingester(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """An offset stored for a topic of the same name but another id is not used: the ingester ends with a
    sentence that names `reset-topic`."""
    topic = line.kafka.topic()
    line.kafka.produce(topic, _numbered(fresh("again-"), range(10)))
    running = ingester(topic, start=False)
    line.kafka.store_group_offset(running.group, topic, 5, "id-of-another-topic")
    running.start(ready=False)
    assert running.wait_ended() == 2
    assert f"topic {topic} was re-created" in " ".join(running.log().split())
    assert f"python -m ingest reset-topic {topic}" in " ".join(running.log().split())


def test_topic_recreated_under_a_running_ingester_stops_it(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Also while it runs the other id is noticed: no record is stored under the old topic's id, none is
    passed over."""
    tenant, topic = fresh("again-"), line.kafka.topic()
    line.kafka.produce(topic, _numbered(tenant, range(10)))
    running = ingester(topic)
    line.wait_for_rows(running, tenant, 10)
    line.kafka.delete_topic(topic)
    line.kafka.topic(name=topic)
    line.kafka.produce(topic, _numbered(tenant, range(100, 130)))
    assert running.wait_ended(RECREATED_S) == 2
    assert f"python -m ingest reset-topic {topic}" in " ".join(running.log().split())
    assert _numbers(line, tenant) == list(range(10))


def test_partitions_added_to_a_running_topic_are_read_from_their_start(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Partitions that appear later are found within 30 s, and what was written before they were found is read
    too."""
    tenant, topic = fresh("wider-"), line.kafka.topic()
    running = ingester(topic)
    line.kafka.produce(topic, _numbered(tenant, range(5)))
    line.wait_for_rows(running, tenant, 5)
    line.kafka.add_partitions(topic, 3)
    line.kafka.produce(
        topic, _numbered(tenant, range(5, 15), partition=1) + _numbered(tenant, range(15, 25), partition=2)
    )
    line.wait_for_rows(running, tenant, 25, timeout_s=30)
    assert _numbers(line, tenant) == list(range(25))


@pytest.mark.prove
def test_topic_that_comes_later_is_read(line: Line, ingester: Callable[..., Ingester]) -> None:
    """A configured topic that does not exist yet is no error: it is read from its start once somebody creates
    it."""
    tenant, topic, present = fresh("later-"), fresh("t-"), line.kafka.topic()
    running = ingester([{"name": present}, {"name": topic}])
    line.kafka.topic(name=topic)
    line.kafka.produce(topic, _numbered(tenant, range(3)))
    line.wait_for_rows(running, tenant, 3, timeout_s=30)


def test_a_node_that_starts_before_the_catalog_waits_for_it(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Whatever starts all of them at once need not know an order."""
    topic = line.kafka.topic()
    _started_before("catalog", line, line.stack, topic, ingester(topic, start=False))


@pytest.mark.prove
def test_a_node_that_starts_before_kafka_waits_for_it(line: Line, tmp_path: Path) -> None:
    with own_broker(line, tmp_path) as (beside, broker):
        topic = beside.kafka.topic()
        early = beside.ingester(topic, start=False)
        _started_before("kafka", beside, broker, topic, early)
        assert early.stop() == 0


def _started_before(service: str, line: Line, stack: Stack, topic: str, early: Ingester) -> None:
    tenant = fresh("early-")
    line.kafka.produce(topic, _numbered(tenant, range(5)))
    stack.kill(service)
    try:
        early.start(ready=False)
        early.wait_until(
            lambda: "<context block>" in early.log(),
            what="a second attempt of its own, after those of its clients",
        )
    finally:
        stack.start(service)
    line.wait_for_rows(early, tenant, 5)


def test_catalog_killed_while_records_flow_loses_nothing(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """While the catalog is away records wait; when it is back every one is stored once."""
    tenant, topic = fresh("outage-"), line.kafka.topic(2)
    running = ingester(topic, flush__interval_s=0.2, commit__timeout_s=5)
    total, chunk = 1_500, 50

    def produce() -> None:
        for first in range(0, total, chunk):
            line.kafka.produce(topic, _numbered(tenant, range(first, first + chunk)))
            pause(0.1)

    producing = threading.Thread(target=produce)
    producing.start()
    line.wait_for_rows(running, tenant, 3 * chunk)
    for _ in range(2):
        line.stack.kill("catalog")
        pause(0.7)
        line.stack.start("catalog")
        pause(0.3)
    producing.join(60)
    line.wait_for_rows(running, tenant, total)
    assert running.stop() == 0
    assert _numbers(line, tenant) == list(range(total))


def test_broker_killed_while_records_wait_loses_nothing(line: Line, tmp_path: Path) -> None:
    """The broker goes away with records and dead letters on their way; after it is back all of them are where
    they belong."""
    with own_broker(line, tmp_path) as (beside, broker):
        kafka, tenant = beside.kafka, fresh("broker-")
        topic = kafka.topic(2)
        running = beside.ingester(topic, flush__interval_s=0.3)
        bad = Record(b"{", headers=(("tenant", tenant.encode()),))
        kafka.produce(topic, [*_numbered(tenant, range(200)), bad])
        broker.kill("kafka")
        pause(1.0)
        broker.start("kafka")
        kafka.produce(topic, [*_numbered(tenant, range(200, 300)), bad])
        beside.wait_for_rows(running, tenant, 300)
        beside.wait_for_dead_letters(running, 2)
        assert _numbers(line, tenant) == list(range(300))
        assert running.stop() == 0


def test_new_fields_become_columns_whoever_else_adds_some(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Columns grow with the records, also after somebody else added some in between: every row stays readable
    with all its values."""
    tenant, topic = fresh("grow-"), line.kafka.topic()
    table = line.table(tenant)
    running = ingester(topic)
    line.kafka.produce(topic, _numbered(tenant, range(1), first="a"))
    line.wait_for_rows(running, tenant, 1)
    line.sql(f"ALTER TABLE {table} ADD COLUMN theirs VARCHAR")
    line.sql(f"ALTER TABLE {table} ADD COLUMN amount BIGINT")
    line.kafka.produce(topic, _numbered(tenant, range(1, 2), second="b", theirs="c", amount=7))
    line.wait_for_rows(running, tenant, 2)
    line.kafka.produce(topic, _numbered(tenant, range(2, 3), third="d", amount="seven"))
    line.wait_for_rows(running, tenant, 3)
    assert line.sql(f"SELECT n, first, second, theirs, amount, third FROM {table} ORDER BY n") == [
        ("0", "a", None, None, None, None),
        ("1", None, "b", "c", 7, None),
        ("2", None, None, None, None, "d"),
    ]
    ((errors,),) = line.sql(f"SELECT _errors FROM {table} WHERE n = '2'")
    assert [tuple(e) for e in errors if e[0] != "timestamp"] == [("/amount", "seven", "wrong_type")]
    assert running.stop() == 0
