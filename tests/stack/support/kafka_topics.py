"""Kafka as the tests use it: fresh topics, records in, a whole topic out."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from infra.local.kafka_access import administrator
from ingest.kafka.committed_offsets import committed_offsets
from ingest.kafka.header_workaround import with_readable_headers
from tests.stack.support.waiting import fresh, wait_for

ANSWER_S = 30.0
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    """A message to produce. `timestamp_ms` None: now; `partition` None: by key, else spread."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True)
class Delivered:
    """Where a produced message went, or one that was read from there."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None
    headers: Headers

    @property
    def facts(self) -> dict[str, str]:
        """The headers that Firn added (`firn.*`), as text."""
        return {name: (value or b"").decode() for name, value in self.headers if name.startswith("firn.")}


@dataclass
class KafkaTopics:
    """Topics of one broker."""

    bootstrap_servers: str

    # Both are kept: an AdminClient that nobody holds is destroyed before its answers come.
    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({**administrator(self.bootstrap_servers), "log_level": 2})

    @cached_property
    def producer(self) -> Producer:
        return Producer(
            {
                **administrator(self.bootstrap_servers),
                # A broker that is killed makes no second copy of what it has: identities are counted.
                "enable.idempotence": True,
                # Nor does a partition that is not ready yet refuse one request and take the next, after which
                # both count as acknowledged.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 5,
                "message.max.bytes": 32 * 1024 * 1024,
                "log_level": 2,
            }
        )

    def topic(self, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        """Creates a topic with a fresh name (or the given one); words of `config` are spelled with `_` for
        `.`."""
        name = name or fresh("t-")
        new = NewTopic(
            name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()}
        )

        def created() -> bool:
            try:
                self.admin.create_topics([new])[name].result(ANSWER_S)
            except KafkaException as error:  # a topic of this name is still being deleted
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
                return False
            return True

        wait_for(created, ANSWER_S, f"the creation of topic {name}")
        wait_for(
            lambda: self.topic_id(name) and self.partitions(name) == partitions, ANSWER_S, f"topic {name}"
        )
        return name

    def remove_records(self, name: str, before: int) -> None:
        """Removes the records of every partition below an offset, as far as they are there, as retention
        does."""
        for partition, end in self.ends(name).items():
            to = TopicPartition(name, partition, min(before, end))
            self.admin.delete_records([to])[to].result(ANSWER_S)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and returns when the broker knows: until then it takes records for it, and throws
        them away."""
        self.admin.delete_topics([name])[name].result(ANSWER_S)
        wait_for(lambda: not self.topic_id(name), ANSWER_S, f"the deletion of topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Raises a topic's partitions to `total` and returns when the broker knows them."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(ANSWER_S)
        self.__dict__.pop("producer", None)  # it knows the topic as it was, for minutes
        wait_for(lambda: self.partitions(name) == total, ANSWER_S, f"{total} partitions of {name}")

    def partitions(self, name: str) -> int:
        return len(self.admin.list_topics(name, timeout=ANSWER_S).topics[name].partitions)

    def topic_id(self, name: str) -> str:
        """Kafka's id of a topic; empty while the broker does not know the topic."""
        try:
            return str(self.admin.describe_topics(TopicCollection([name]))[name].result(ANSWER_S).topic_id)
        except KafkaException:
            return ""

    def ends(self, name: str) -> dict[int, int]:
        """The end of every partition of a topic."""
        with closing(
            Consumer({**administrator(self.bootstrap_servers), "group.id": fresh("ends-"), "log_level": 2})
        ) as consumer:
            return {
                p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=ANSWER_S)[1]
                for p in range(self.partitions(name))
            }

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The offsets a group has stored for a topic, by partition; those it has none for are left out."""
        with closing(
            Consumer({**administrator(self.bootstrap_servers), "group.id": group, "log_level": 2})
        ) as consumer:
            stored = committed_offsets(
                consumer, [TopicPartition(topic, p) for p in range(self.partitions(topic))]
            )
        return {entry.partition: entry.offset for entry in stored if entry.offset >= 0}

    def store_group_offset(self, group: str, topic: str, offset: int, metadata: str) -> None:
        """Stores a group's offset of partition 0, as an ingester of that group would have."""
        with closing(
            Consumer({**administrator(self.bootstrap_servers), "group.id": group, "log_level": 2})
        ) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)

    def produce(self, topic: str, records: Iterable[Record]) -> list[Delivered]:
        """Produces records and returns where they went, in the order in which they were given, once all are
        acknowledged."""
        producer, places = self.producer, list[Delivered | None]()

        def note(at: int) -> Any:
            def delivered(error: Any, message: Any) -> None:
                assert error is None, f"{topic}: {error}"
                assert message.offset() is not None, f"{topic}: a record was acknowledged, nobody knows where"
                places[at] = _delivered(message)

            return delivered

        for at, record in enumerate(records):
            places.append(None)
            options: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            while True:
                try:
                    producer.produce(
                        topic,
                        record.value,
                        key=record.key,
                        headers=list(record.headers),
                        on_delivery=note(at),
                        **options,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(ANSWER_S) == 0, (
            f"not every record of {topic} was acknowledged within {ANSWER_S} s"
        )
        return [place for place in places if place is not None]

    def read(self, topic: str) -> list[Delivered]:
        """Every message of a topic as of now, by partition and offset; none where the topic does not
        exist."""
        settings = {
            **administrator(self.bootstrap_servers),
            "group.id": fresh("read-"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = Consumer({**settings, "fetch.message.max.bytes": 8 * 1024 * 1024, "log_level": 2})
        found: list[Delivered] = []
        try:
            partitions = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
            ends = {
                p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=ANSWER_S)[1]
                for p in partitions
            }
            for partition, end in ends.items():
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
                at = 0
                while at < end:
                    for message in consumer.consume(1000, 0.2):
                        if message.error() is None:
                            found.append(_delivered(message))
                            at = message.offset() + 1
                        else:
                            at = end  # the end of the partition: what is left are gaps of transactions
        finally:
            consumer.close()
        return found

    def dead_letters(self, topic: str) -> dict[tuple[str, int, int], Delivered]:
        """The dead letters of a topic by the identity of the message they were (topic id, partition, offset):
        repeated ones count once."""
        facts = [(letter, letter.facts) for letter in (self.read(topic) if self.topic_id(topic) else [])]
        return {
            (f["firn.topic_id"], int(f["firn.partition"]), int(f["firn.offset"])): letter
            for letter, f in facts
        }


def _delivered(delivered: Any) -> Delivered:
    (message,) = with_readable_headers([delivered])
    headers = tuple(message.headers() or ())
    return Delivered(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.value(),
        message.key(),
        headers,
    )
