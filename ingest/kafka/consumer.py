"""Kafka in: the partitions of the input topics by assignment, from the group's offsets, identified by topic
id.

No group rebalance ever moves a partition under a running node: `assign` names them all, and the group only
stores offsets.

Where the group began to read a partition is stored with its offsets, for ever.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingest.core.consumption import Consumption, ConsumptionError, Group, Grouped, GroupedRun, consumption_of
from ingest.kafka.batch_size import BatchSize
from ingest.kafka.committed_offsets import REQUEST_TIMEOUT_S, committed_offsets
from ingest.kafka.header_workaround import UNREADABLE, with_readable_headers
from ingest.kafka.kafka_client import admin_client, go_to, make_client, part_with, reading_options
from ingest.kafka.kafka_reader import Stored, parse_stored, topic_partition_of
from ingest.kafka.kafka_trouble import Right, forbidden, unavailable
from ingest.kafka.unreadable import Probe, UnreadableRange, sound, spoilt_by
from ingest.model.shares import ALL_SHARES, Shares
from ingest.model.source import Source
from lake.errors import FatalError, UnavailableError
from lake.marks import TopicPartition
from lake.settings import IngestSettings

# Of a partition at once, so that a batch holds many messages of each of its partitions: what is done for a
# table and partition is done seldom. An answer holds two partitions, and no more than another waits.
FETCH_BYTES = 8 * 1024 * 1024
ANSWER_BYTES = WAITING_BYTES = 2 * FETCH_BYTES
log = structlog.get_logger()


@dataclass
class Assignment:
    """The topic-partitions this process reads, numbered in the order in which they were found; a number never
    changes its meaning."""

    sources: list[Source] = field(default_factory=list)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, source: Source) -> int:
        self.numbers[source.topic, source.partition] = len(self.sources)
        self.sources.append(source)
        return len(self.sources) - 1

    def topic_partition(self, number: int) -> TopicPartition:
        """As marks name it."""
        return self.sources[number].place


class Taken(NamedTuple):
    """The next messages, and what the core has sorted of those behind them."""

    messages: list[Message]
    runs: Sequence[GroupedRun] = ()


class InputTopics:
    """Reads one worker's share of the configured topics: of `workers` processes, the one with this `index`,
    on a node that holds these `shares`.

    `rules`: by topic, of those that `take` may have the core sort, what finds the names
    (`firn_consume_source`).
    """

    def __init__(
        self,
        settings: IngestSettings,
        index: int = 0,
        workers: int = 1,
        rules: Mapping[str, bytes] = MappingProxyType({}),
        shares: Shares = ALL_SHARES,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._consumption: Consumption | None = None
        self._index, self._workers, self._shares = index, workers, shares
        self._expired: Counter[str] = Counter()
        self._batch_size = BatchSize()
        self.positions: dict[int, int] = {}
        self._stored: dict[Source, Stored] = {}  # as the group's offsets were stored last
        self.assignment = Assignment()
        self._unforeseen: Counter[str] = Counter()
        self._to_repeat: set[int] = set()  # sources of which the core has lost messages
        self._forbidden: set[str] = set()  # topics that may not be read
        self._spoilt: set[int] = set()  # sources whose next batch the client could not read
        self._stepped: set[int] = set()  # those of which a batch was stepped over lately
        self._probe = Probe(settings)
        self._admin = admin_client(settings)
        self._consumer = make_client(
            Consumer,
            {
                **reading_options(settings, settings.kafka.group, FETCH_BYTES),
                "fetch.max.bytes": ANSWER_BYTES,
                "queued.max.messages.kbytes": WAITING_BYTES // 1024,
            },
        )
        if rules:
            self._consumption = consumption_of(self._consumer, settings.limits.record_bytes_max)

    def discover(self) -> list[int]:
        """Assigns partitions that appeared since the last call, each from its group offset; returns their
        numbers.

        Raises FatalError where a topic was re-created since its offsets were stored, UnavailableError where
        Kafka does not answer.
        """
        self._tell_forbidden()
        found = self._unknown(self._describe())
        if not found:
            return []
        starts = self._starts(found)
        numbers = [self.assignment.add(source) for source in found]
        self._begin(starts)
        if self._consumption is not None and self._consumption.takes:
            for number, source in zip(numbers, found, strict=True):
                if rules := self._rules.get(source.topic):
                    self._consumption.add(source.topic, source.partition, number, rules)
            self._divert(found)
        for source in found:
            log.info(
                "partition.assigned",
                topic=source.topic,
                topic_id=source.topic_id,
                partition=source.partition,
                offset=starts[source],
            )
        self.positions |= {n: starts[s] for n, s in zip(numbers, found, strict=True)}
        return numbers

    @property
    def _of_group(self) -> Right:
        return Right("READ", f"group {self._settings.kafka.group}")

    def _tell_forbidden(self) -> None:
        """The client says it once, so it is said again until records come."""
        for topic in sorted(self._forbidden):
            right = Right("READ", f"topic {topic}")
            log.warning("topic.forbidden", topic=topic, advice=forbidden(self._settings, right))

    def first(self, number: int) -> int:
        """Where the group began to read a partition; 0 where that is not known."""
        return self._stored[self.assignment.sources[number]].first

    def _begin(self, starts: Mapping[Source, int]) -> None:
        """Reads partitions from these offsets on."""
        try:
            self._consumer.incremental_assign(
                [KafkaTopicPartition(s.topic, s.partition, offset) for s, offset in starts.items()]
            )
        except KafkaException as error:
            raise unavailable(self._settings, "does not let partitions be read", error) from error

    def _divert(self, assigned: Iterable[Source]) -> None:
        """Has the core have what comes of partitions that it can sort."""
        for source in assigned:
            if self._consumption is not None and source.topic in self._rules:
                self._consumption.divert(source.topic, source.partition)

    def check_identity(self) -> None:
        """Makes sure that all messages taken so far came from the topics they were numbered by; called
        between taking them and committing them.

        An id never comes back: a topic that has its old one now had it whenever we read. Raises FatalError
        where a topic was re-created (the consumer reads on in the new one at the old one's offsets),
        UnavailableError where Kafka does not answer.
        """
        self._unknown(self._describe())

    def _unknown(self, described: Sequence[Source]) -> list[Source]:
        """The sources not yet assigned. Raises FatalError where one that is has another topic id now."""
        found = []
        for source in described:
            number = self.assignment.numbers.get((source.topic, source.partition))
            if number is None:
                found.append(source)
            elif (known := self.assignment.sources[number].topic_id) != source.topic_id:
                raise self._recreated(source, known)
        return found

    def _recreated(self, source: Source, known: str) -> FatalError:
        return FatalError(
            f"topic {source.topic} was re-created: group {self._settings.kafka.group} stored offsets of "
            f"topic id {known}, now it is {source.topic_id}. Run `python -m ingest reset-topic "
            f"{source.topic}` to read the new topic from its start"
        )

    def _describe(self) -> list[Source]:
        sources = []
        for topic in self._settings.topics:
            try:
                described = self._admin.describe_topics(
                    TopicCollection([topic.name]), request_timeout=REQUEST_TIMEOUT_S
                )[topic.name].result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    log.warning(
                        "topic.missing",
                        topic=topic.name,
                        advice="create it, or take it out of the settings; it is looked for again and again",
                    )
                    continue
                right = Right("DESCRIBE", f"topic {topic.name}")
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    log.warning("topic.forbidden", topic=topic.name, advice=forbidden(self._settings, right))
                    continue
                raise unavailable(
                    self._settings, f"does not describe topic {topic.name}", error, right, self._admin
                ) from error
            ours = [p.id for p in described.partitions if self._is_ours(topic.name, p.id)]
            alone = len(described.partitions) == 1
            sources += [
                Source.of(topic, str(described.topic_id), partition, is_alone=alone) for partition in ours
            ]
        return sources

    def _is_ours(self, topic: str, partition: int) -> bool:
        return self._shares.worker_of(topic, partition, self._workers) == self._index

    def _starts(self, sources: Sequence[Source]) -> Mapping[Source, int]:
        try:
            for topic in {source.topic for source in sources}:
                self._consumer.list_topics(
                    topic, timeout=REQUEST_TIMEOUT_S
                )  # its own picture of the topic may lack new partitions for minutes
            committed = committed_offsets(
                self._consumer, [KafkaTopicPartition(s.topic, s.partition) for s in sources]
            )
            return {
                source: self._start(source, stored) for source, stored in zip(sources, committed, strict=True)
            }
        except KafkaException as error:
            raise unavailable(
                self._settings,
                f"does not give the offsets of group {self._settings.kafka.group}",
                error,
                self._of_group,
            ) from error

    def _start(self, source: Source, stored: Any) -> int:
        low, high = self._consumer.get_watermark_offsets(
            KafkaTopicPartition(source.topic, source.partition), timeout=REQUEST_TIMEOUT_S
        )
        if stored.offset == OFFSET_INVALID or stored.offset < 0:
            self._stored[source] = Stored(int(low), source.topic_id)
            return int(low)
        found = self._stored[source] = parse_stored(stored.offset, stored.metadata)
        if (found.topic_id and found.topic_id != source.topic_id) or stored.offset > high:
            raise self._recreated(source, found.topic_id or "unknown")
        if stored.offset < low:
            self._expired[source.topic] += low - stored.offset
            log.error(
                "records.expired",
                topic=source.topic,
                partition=source.partition,
                first=stored.offset,
                next=low,
                advice="lengthen the topic's retention",
            )
        return int(max(low, stored.offset))

    def poll(self, timeout_s: float) -> list[Message]:
        """The next messages, as many as a `BatchSize` allows. Broker trouble that heals by itself is logged.

        Raises UnavailableError where reading has to begin anew, FatalError.
        """
        good = self._sound(self._consumer.consume(self._batch_size.messages, timeout_s))
        self._batch_size.learn(len(good), sum(map(len, good)))
        return good

    def take(self, timeout_s: float) -> Taken:
        """The same, as far as it can be sorted by the core. Its bytes are gone with the next call."""
        if self._consumption is None or not self._consumption.takes:
            return Taken(self.poll(timeout_s))
        count, runs = self._batch_size.messages, list[GroupedRun]()
        messages = self._consumer.consume(count, 0)
        if len(messages) < count:  # else there may be more, some of them from before the core had a partition
            grouped = self._grouped(self._consumption, count, 0 if messages else timeout_s)
            if grouped.has_errors:
                for run in grouped.runs:
                    for group in run.groups:
                        messages += self.messages_of(run.source, group)
            else:
                runs = grouped.runs
        good = self._sound(messages)
        if self._forbidden:
            came = {message.topic() for message in good}
            came.update(self.assignment.sources[run.source].topic for run in runs if run.source >= 0)
            self._forbidden -= came
        self._batch_size.learn(
            len(good) + sum(run.messages for run in runs),
            sum(map(len, good)) + sum(run.size_bytes for run in runs),
        )
        return Taken(good, runs)

    def _grouped(self, consumption: Consumption, count: int, timeout_s: float) -> Grouped:
        """What the core takes. Where it fails, nothing, and this process goes on without it: what made it
        fail would do so again, and hold up whatever is behind it."""
        try:
            return consumption.take(count, timeout_s)
        except ConsumptionError:
            log.exception("consumer.in_python", advice="report this; all is read, and slower")
            self._unforeseen["consume"] += 1
            self._to_repeat = {
                number for number, source in enumerate(self.assignment.sources) if source.topic in self._rules
            }
            consumption.give_up()
            return Grouped(False, [])

    def messages_of(self, source: int, group: Group) -> Iterator[Message]:
        """Messages that the core leaves, as `poll` gives them."""
        topic, partition = None, -1
        if source >= 0:
            topic, partition = (
                self.assignment.sources[source].topic,
                self.assignment.sources[source].partition,
            )
        read = group.read()
        for at, (error, (key, headers)) in enumerate(zip(read.errors, read.opened, strict=True)):
            value = read.value(at)
            yield Message(
                topic=topic,
                partition=partition,
                offset=read.offsets[at],
                key=key,
                value=None if error else value,
                headers=UNREADABLE if headers is None else list(headers),
                timestamp=(TIMESTAMP_CREATE_TIME, read.timestamps_ms[at]),
                error=KafkaError(error, (value or b"").decode(errors="replace") or None) if error else None,
            )

    def _sound(self, messages: list[Message]) -> list[Message]:
        """Those that are no errors, and not behind a batch that cannot be read; reacts to the others."""
        spoilt = spoilt_by(messages)
        good = with_readable_headers(sound(messages, spoilt))
        for message in messages:
            if (error := message.error()) is None or topic_partition_of(message) in spoilt:
                continue
            number = self.assignment.numbers.get(topic_partition_of(message))
            if error.code() == KafkaError._AUTO_OFFSET_RESET and number in self._stepped:
                # Left over from where the client went on behind a wrong checksum; once: the next one is of
                # where reading goes on.
                self._stepped.discard(number)
                self._spoilt.add(number)
            else:
                self._react(error, message)
        self._spoilt.update(self.assignment.numbers[topic_partition] for topic_partition in spoilt)
        return good

    def step_over(self, routed: Mapping[int, int]) -> list[tuple[int, UnreadableRange]]:
        """Goes behind the batches that could not be read, and back to what the core has lost; to be called
        after each `take`, with how far all is routed (number of the source -> next offset).

        What is returned has to be recorded. Reading goes on where it stood of what can be read after all, or
        is not told for now. Raises UnavailableError where reading has to begin anew.
        """
        spoilt, self._spoilt = self._spoilt, set()
        for number in self._to_repeat - spoilt:
            self._go_to(self.assignment.sources[number], routed[number])
        self._to_repeat.clear()
        found: list[tuple[int, UnreadableRange]] = []
        for number in spoilt:
            source, at = self.assignment.sources[number], routed[number]
            try:
                while (unreadable := self._probe.extent(source.topic, source.partition, at)) is not None:
                    found.append((number, unreadable))
                    self._stepped.add(number)
                    at = unreadable.end
            except UnavailableError as error:
                log.warning("kafka.trouble", text=str(error), topic=source.topic, partition=source.partition)
            self._go_to(source, at)
        return found

    def _go_to(self, source: Source, offset: int) -> None:
        try:
            go_to(self._consumer, source.topic, source.partition, offset)
            self._divert([source])
        except KafkaException as error:
            raise UnavailableError(
                f"topic {source.topic} partition {source.partition} cannot be read on from offset {offset}: "
                f"{error}"
            ) from error

    def _react(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            # What is gone is counted where reading begins anew; a topic that was re-created is found out
            # there, too.
            raise UnavailableError(
                f"topic {message.topic()} partition {message.partition()}: {error.str()}; Kafka's retention "
                "has come by, lengthen it"
            )
        if error.fatal():
            raise FatalError(f"Kafka: {error.str()}")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise unavailable(
                self._settings, "does not know the group", KafkaException(error), self._of_group
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._forbidden.add(message.topic())
            self._tell_forbidden()
            return
        log.warning(
            "kafka.trouble",
            code=error.name(),
            text=error.str(),
            topic=message.topic(),
            partition=message.partition(),
        )

    def commit_group(self, offsets: Mapping[int, int], checkpoint: str) -> None:
        """Stores the group's offsets (number of the source -> next offset), each with its topic's id and the
        node's newest checkpoint (checkpoint.py; empty: it knows none). Raises UnavailableError."""
        entries = []
        for n, offset in offsets.items():
            source = self.assignment.sources[n]
            stored = self._stored[source]
            self._stored[source] = stored = Stored(offset, source.topic_id, checkpoint, stored.first)
            entries.append(KafkaTopicPartition(source.topic, source.partition, offset, stored.metadata))
        try:
            self._consumer.commit(offsets=entries, asynchronous=False)
        except KafkaException as error:
            raise unavailable(
                self._settings, "did not store the group's offsets", error, self._of_group
            ) from error

    def end(self, number: int) -> int:
        """The end of a partition as far as the last fetch knows it; its start position before that."""
        source = self.assignment.sources[number]
        _, high = self._consumer.get_watermark_offsets(
            KafkaTopicPartition(source.topic, source.partition), cached=True
        )
        return max(int(high), self.positions[number])

    def take_expired(self) -> Counter[str]:
        """Offsets per topic that Kafka's retention removed before they were read, since the last call."""
        expired, self._expired = self._expired, Counter()
        return expired

    def take_unforeseen(self) -> Counter[str]:
        """Errors that nobody foresaw, by what went on another way, since the last call."""
        unforeseen, self._unforeseen = self._unforeseen, Counter()
        return unforeseen

    def close(self) -> None:
        self._probe.close()
        if self._consumption is not None:
            self._consumption.close()
        part_with(self._consumer)
