"""The partitioner says what Kafka's clients do with the tenant as the key."""

from collections import Counter

import pytest
from confluent_kafka import Message, Producer
from typer.testing import CliRunner

from infra.local.kafka_access import administrator
from ingest.cli.program import app
from ingest.kafka.partitioner import murmur2, partition_of
from tests.stack.support.kafka_topics import KafkaTopics

# Kafka's own test of its hash has these, as signed numbers.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("data", KAFKA)
def test_the_hash_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == KAFKA[data] % 2**32


def test_a_tenant_has_one_partition_and_a_hot_one_as_many_as_it_is_spread_over() -> None:
    tenants = [f"tenant-{at}" for at in range(2_000)]
    counted = Counter(partition_of(tenant, 12) for tenant in tenants)
    assert counted.keys() == set(range(12))
    assert max(counted.values()) < 2 * min(counted.values())
    assert {partition_of("acme", 12, turn=turn) for turn in range(50)} == {partition_of("acme", 12)}
    first = partition_of("acme", 12)
    spread = Counter(partition_of("acme", 12, spread=3, turn=turn) for turn in range(30))
    assert spread == {(first + at) % 12: 10 for at in range(3)}


@pytest.mark.parametrize(("partitions", "spread"), [(0, 1), (4, 0), (4, 5)])
def test_what_cannot_be_is_refused(partitions: int, spread: int) -> None:
    with pytest.raises(ValueError, match="partition"):
        partition_of("acme", partitions, spread=spread)


def test_the_command_line_says_where_a_tenant_goes() -> None:
    told = CliRunner().invoke(app, ["partition", "acme", "hot", "--partitions", "12", "--spread", "2"])
    assert told.exit_code == 0
    expected = {t: [partition_of(t, 12, spread=2, turn=turn) for turn in (0, 1)] for t in ("acme", "hot")}
    assert told.output == "".join(f"{t}\t{first},{second}\n" for t, (first, second) in expected.items())
    assert CliRunner().invoke(app, ["partition", "acme", "--partitions", "2", "--spread", "3"]).exit_code


@pytest.mark.stack
def test_librdkafka_sends_keys_where_the_partitioner_says(kafka: KafkaTopics) -> None:
    """With `partitioner=murmur2_random`, for keys of every length."""
    topic, places = kafka.topic(7), dict[str, int]()
    tenants = ["a" * length for length in range(1, 20)] + [f"tenant-{at}" for at in range(200)] + ["größe-é"]
    producer = Producer(
        {**administrator(kafka.bootstrap_servers), "partitioner": "murmur2_random", "log_level": 2}
    )

    def note(error: object, message: Message) -> None:
        assert error is None
        places[(message.key() or b"").decode()] = message.partition()

    for tenant in tenants:
        producer.produce(topic, b"{}", key=tenant.encode(), on_delivery=note)
    assert producer.flush(60) == 0
    assert places == {tenant: partition_of(tenant, 7) for tenant in tenants}
