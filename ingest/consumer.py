"""Kafka in: the partitions of the input topics by assignment, from the group's offsets, identified by topic id.

No group rebalance ever moves a partition under a running node: `assign` names them all, and the group only stores offsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from ingest.converter import Source
from lake import metrics
from lake.errors import FatalError, UnavailableError
from lake.settings import IngestSettings

CONSUME_MESSAGES = 500
REQUEST_TIMEOUT_S = 30.0
log = structlog.get_logger()


@dataclass
class Assignment:
    """The topic-partitions this process reads, numbered in the order in which they were found; a number never changes its meaning."""

    sources: list[Source] = field(default_factory=list)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, source: Source) -> int:
        self.numbers[source.topic, source.partition] = len(self.sources)
        self.sources.append(source)
        return len(self.sources) - 1


class InputTopics:
    """Reads the configured topics."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self.assignment = Assignment()
        self._admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "group.id": settings.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 1024 * 1024,
                "queued.max.messages.kbytes": 64 * 1024,
                "log_level": 2,
            }
        )

    def discover(self) -> list[int]:
        """Assigns partitions that appeared since the last call, each from its group offset; returns their numbers.

        Raises FatalError where a topic was re-created since its offsets were stored, UnavailableError where Kafka does not answer.
        """
        found = [s for s in self._describe() if (s.topic, s.partition) not in self.assignment.numbers]
        if not found:
            return []
        starts = self._starts(found)
        numbers = [self.assignment.add(source) for source in found]
        try:
            self._consumer.incremental_assign([KafkaTopicPartition(s.topic, s.partition, starts[s]) for s in found])
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._settings.bootstrap_servers}: {error}") from error
        for source in found:
            log.info("partition.assigned", topic=source.topic, topic_id=source.topic_id, partition=source.partition, offset=starts[source])
        self.positions = {**getattr(self, "positions", {}), **{n: starts[s] for n, s in zip(numbers, found, strict=True)}}
        return numbers

    def _describe(self) -> list[Source]:
        sources = []
        for topic in self._settings.topics:
            try:
                described = self._admin.describe_topics(TopicCollection([topic.name]), request_timeout=REQUEST_TIMEOUT_S)[topic.name].result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    log.warning("topic.missing", topic=topic.name, advice="create it, or take it out of the settings; it is looked for every 30 s")
                    continue
                raise UnavailableError(f"Kafka at {self._settings.bootstrap_servers} does not describe topic {topic.name}: {error}") from error
            sources += [Source(topic.name, str(described.topic_id), partition.id, topic.format) for partition in described.partitions]
        return sources

    def _starts(self, sources: Sequence[Source]) -> Mapping[Source, int]:
        try:
            committed = self._consumer.committed([KafkaTopicPartition(s.topic, s.partition) for s in sources], timeout=REQUEST_TIMEOUT_S)
            return {source: self._start(source, stored) for source, stored in zip(sources, committed, strict=True)}
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._settings.bootstrap_servers} does not give the offsets of group {self._settings.group}: {error}") from error

    def _start(self, source: Source, stored: Any) -> int:
        low, high = self._consumer.get_watermark_offsets(KafkaTopicPartition(source.topic, source.partition), timeout=REQUEST_TIMEOUT_S)
        if stored.offset == OFFSET_INVALID or stored.offset < 0:
            return int(low)
        if (stored.metadata and stored.metadata != source.topic_id) or stored.offset > high:
            raise FatalError(
                f"topic {source.topic} was re-created: group {self._settings.group} stored offsets of topic id {stored.metadata or 'unknown'}, now it is "
                f"{source.topic_id}. Run `python -m ingest reset-topic {source.topic}` to read the new topic from its start"
            )
        if stored.offset < low:
            metrics.RECORDS_EXPIRED.labels(source.topic).inc(low - stored.offset)
            log.error("records.expired", topic=source.topic, partition=source.partition, first=stored.offset, next=low, advice="lengthen the topic's retention")
        return int(max(low, stored.offset))

    def poll(self, timeout_s: float) -> list[Message]:
        """The next messages, at most 500. Broker trouble that heals by itself is logged, anything else raises FatalError."""
        messages = self._consumer.consume(CONSUME_MESSAGES, timeout_s)
        good = [message for message in messages if message.error() is None]
        for message in messages:
            if (error := message.error()) is not None:
                self._react(error, message)
        return good

    def _react(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise FatalError(f"topic {message.topic()} partition {message.partition()}: {error.str()}. Kafka's retention is shorter than ingestion is behind")
        if error.fatal():
            raise FatalError(f"Kafka: {error.str()}")
        log.warning("kafka.trouble", code=error.name(), text=error.str(), topic=message.topic(), partition=message.partition())

    def commit_group(self, offsets: Mapping[int, int]) -> None:
        """Stores the group's offsets (number of the source -> next offset), each with its topic's id. Raises UnavailableError."""
        sources = self.assignment.sources
        entries = [KafkaTopicPartition(sources[n].topic, sources[n].partition, offset, sources[n].topic_id) for n, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=entries, asynchronous=False)
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._settings.bootstrap_servers} did not store the group's offsets: {error}") from error

    def lag(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Offsets between the given ones and the end of each partition, as far as the last fetch knows it."""
        lags = {}
        for number, offset in offsets.items():
            source = self.assignment.sources[number]
            _, high = self._consumer.get_watermark_offsets(KafkaTopicPartition(source.topic, source.partition), cached=True)
            lags[number] = max(0, high - offset) if high >= 0 else 0
        return lags

    def close(self) -> None:
        self._consumer.close()
