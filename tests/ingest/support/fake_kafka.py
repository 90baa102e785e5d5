"""Brokers in memory, behind the real readers and writers of `ingest`: what stands here is Kafka's client.

`tests/contracts/test_kafka.py` holds it to what real brokers answer. Topics have ids, partitions keep
messages from an offset on, groups keep offsets with what stands beside them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from ingest.core import library
from ingest.core.consumption import Consumption

Headers = Sequence[tuple[str, bytes | None]]
Delivered = Callable[[KafkaError | None, Message], None]
Place = tuple[str, int]
CREATE_TIME = 1


@dataclass
class FakePartition:
    """Messages by offset. `end` may lie behind the last of them, as it does behind control records."""

    start: int = 0
    end: int = 0
    messages: dict[int, Message] = field(default_factory=dict)


@dataclass(frozen=True)
class _Described:
    """A partition, or a topic, as an admin client describes it."""

    id: int = 0
    topic_id: str = ""
    partitions: Sequence["_Described"] = ()


@dataclass(frozen=True)
class _Listed:
    offset: int


class FakeBroker:
    """What all clients of one test share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ids: dict[str, str] = {}
        self.partitions: dict[Place, FakePartition] = {}
        self.stored: dict[str, dict[Place, tuple[int, str | None]]] = defaultdict(dict)
        self.waits: Callable[[Headers], bool] = lambda _: False  # which messages are not taken yet

    def create_topic(self, name: str, partitions: int = 1, *, topic_id: str = "id") -> None:
        """Makes a topic."""
        self.ids[name] = topic_id
        self.partitions |= {(name, number): FakePartition() for number in range(partitions)}

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Message:
        """A message that reaches the end of a partition."""
        with self.lock:
            into = self.partitions[topic, partition]
            message = into.messages[into.end] = Message(
                topic=topic,
                partition=partition,
                offset=into.end,
                key=key,
                value=value,
                headers=list(headers) or None,
                timestamp=(CREATE_TIME, timestamp_ms or int(time.time() * 1000)),
            )
            into.end += 1
            return message

    def retain(self, topic: str, partition: int, start: int) -> None:
        """Retention removes what lies below an offset."""
        there = self.partitions[topic, partition]
        there.start = start
        there.messages = {offset: each for offset, each in there.messages.items() if offset >= start}

    def messages(self, topic: str) -> list[Message]:
        """All that a topic has, partition by partition."""
        return [message for number in self.of(topic) for message in self._of(topic, number)]

    def _of(self, topic: str, number: int) -> list[Message]:
        there = self.partitions[topic, number].messages
        return [there[offset] for offset in sorted(there)]

    def of(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Raises KafkaException where there is no such topic."""
        if topic not in self.ids:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return sorted(number for name, number in self.partitions if name == topic)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Has every client that `ingest` makes from now on reach these brokers."""
        for module in ("consumer", "kafka_client", "unreadable"):
            patch.setattr(f"ingest.kafka.{module}.Consumer", self._consumer)
        patch.setattr("ingest.kafka.consumer.consumption_of", _consumption_of)
        patch.setattr("ingest.kafka.kafka_client.AdminClient", lambda _: FakeAdmin(self))
        patch.setattr("ingest.kafka.acknowledged_producer.Producer", lambda _: FakeProducer(self))

    def _consumer(self, options: Mapping[str, Any]) -> "FakeConsumer":
        return FakeConsumer(self, options["group.id"], tells_ends=options.get("enable.partition.eof", False))


@dataclass
class FakeConsumer:
    """A consumer that reads what it is assigned."""

    broker: FakeBroker
    group: str
    tells_ends: bool = False
    _at: dict[Place, int] = field(default_factory=dict)
    _told: set[Place] = field(default_factory=set)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._at.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._at[each.topic, each.partition] = each.offset
            self._told.discard((each.topic, each.partition))

    def position(self, topic: str, partition: int) -> int:
        """Where a partition goes on that is assigned."""
        return self._at[topic, partition]

    def assigned(self) -> list[TopicPartition]:
        """All that is assigned, and where it goes on."""
        return [TopicPartition(*place, offset) for place, offset in self._at.items()]

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._at.pop((each.topic, each.partition), None)  # a queue may have it

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        """What is there at once: nobody waits for more."""
        found: list[Message] = []
        with self.broker.lock:
            for topic_partition, at in self._at.items():
                there = self.broker.partitions[topic_partition]
                taken = sorted(offset for offset in there.messages if offset >= at)[: count - len(found)]
                found += [there.messages[offset] for offset in taken]
                self._at[topic_partition] = taken[-1] + 1 if taken else at
                is_at_end = not any(offset >= self._at[topic_partition] for offset in there.messages)
                if is_at_end and self.tells_ends and topic_partition not in self._told and len(found) < count:
                    self._told.add(topic_partition)
                    found.append(self._end_of(topic_partition, there))
        return found

    def _end_of(self, topic_partition: Place, there: FakePartition) -> Message:
        error = KafkaError(KafkaError._PARTITION_EOF)
        return Message(topic=topic_partition[0], partition=topic_partition[1], offset=there.end, error=error)

    def list_topics(self, topic: str, timeout: float) -> None:
        """Nobody reads the answer."""

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        stored = self.broker.stored[self.group]
        return [
            _topic_partition(each, *stored.get((each.topic, each.partition), (OFFSET_INVALID, None)))
            for each in partitions
        ]

    def commit(self, *, offsets: Iterable[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        for each in offsets:
            self.broker.stored[self.group][each.topic, each.partition] = each.offset, each.metadata

    def get_watermark_offsets(
        self, partition: TopicPartition, *, timeout: float = 0.0, cached: bool = False
    ) -> tuple[int, int]:
        there = self.broker.partitions[partition.topic, partition.partition]
        return there.start, there.end

    def close(self) -> None:
        self._at.clear()


@dataclass
class FakeProducer:
    """A producer whose messages are acknowledged as soon as they are sent for."""

    broker: FakeBroker
    _queue: list[tuple[Headers, Delivered, Callable[[], Message]]] = field(default_factory=list)

    def produce(
        self,
        topic: str,
        *,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int,
        timestamp: int,
        on_delivery: Delivered,
    ) -> None:
        """Queues a message; without a partition its key says which."""
        numbers = self.broker.of(topic)
        number = partition if partition >= 0 else numbers[crc32(key or b"") % len(numbers)]

        def send() -> Message:
            return self.broker.append(
                topic, value, partition=number, key=key, headers=headers, timestamp_ms=timestamp
            )

        self._queue.append((headers, on_delivery, send))

    def poll(self, timeout_s: float) -> int:
        """Whoever waits finds all acknowledged."""
        return self._answer() if timeout_s else 0

    def flush(self, timeout_s: float) -> int:
        self._answer()
        return len(self._queue)

    def _answer(self) -> int:
        queue, self._queue = self._queue, []
        for headers, on_delivery, send in queue:
            if self.broker.waits(headers):
                self._queue.append((headers, on_delivery, send))
            else:
                on_delivery(None, send())
        return len(queue) - len(self._queue)


@dataclass
class FakeAdmin:
    """Describes topics and lists offsets."""

    broker: FakeBroker

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[_Described]]:
        return {name: _future(partial(self._described, name)) for name in topics.topic_names}

    def _described(self, name: str) -> _Described:
        numbers = self.broker.of(name)
        return _Described(0, self.broker.ids[name], [_Described(number) for number in numbers])

    def list_offsets(
        self, asked: Mapping[TopicPartition, OffsetSpec], *, isolation_level: object, request_timeout: float
    ) -> dict[TopicPartition, Future[_Listed]]:
        return {each: _future(partial(self._listed, each, spec)) for each, spec in asked.items()}

    def _listed(self, topic_partition: TopicPartition, spec: OffsetSpec) -> _Listed:
        return _Listed(self._offset(topic_partition, spec))

    def _offset(self, topic_partition: TopicPartition, spec: OffsetSpec) -> int:
        there = self.broker.partitions[topic_partition.topic, topic_partition.partition]
        if spec is OffsetSpec.earliest():
            return there.start
        if spec is OffsetSpec.latest():
            return there.end
        found = (
            at
            for at, message in there.messages.items()
            if message.timestamp()[1] >= getattr(spec, "timestamp", 0)
        )
        return min(found, default=-1)


def _consumption_of(consumer: FakeConsumer, value_bytes_max: int) -> Consumption | None:
    from tests.ingest.support.fake_queue import FakeQueue  # which knows the consumer above

    functions = library.load()
    if isinstance(functions, library.Absent):
        return None
    return Consumption(functions, FakeQueue(consumer), value_bytes_max)


def _topic_partition(asked: TopicPartition, offset: int, metadata: str | None) -> TopicPartition:
    return TopicPartition(asked.topic, asked.partition, offset, metadata or "")


def _future(answer: Callable[[], Any]) -> Future[Any]:
    """A future that has its answer, or what the question raises."""
    future = Future[Any]()
    try:
        future.set_result(answer())
    except KafkaException as error:
        future.set_exception(error)
    return future
