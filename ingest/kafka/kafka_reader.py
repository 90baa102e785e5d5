"""Kafka as the tools read it: by assignment, committed records only, from one offset to another, never
touching the group's offsets."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ingest.kafka.batch_size import BatchSize
from ingest.kafka.committed_offsets import committed_offsets
from ingest.kafka.credential_files import CredentialFiles
from ingest.kafka.header_workaround import with_readable_headers
from ingest.kafka.kafka_client import FETCH_BYTES, admin_client, go_to, parting_with, reading_consumer
from ingest.kafka.kafka_trouble import FORBIDDEN, Right, unavailable
from ingest.kafka.unreadable import Probe, UnreadableRange, sound, spoilt_by
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FatalError, UnavailableError
from lake.settings import IngestSettings

REQUEST_TIMEOUT_S = 15.0
SILENCE_MAX_S = 60.0
_FROM = "from="
_COMPACT = "compact"
log = structlog.get_logger()


class KafkaPartition(NamedTuple):
    """A partition, by its topic's name and id."""

    topic: str
    topic_id: str
    partition: int

    @property
    def key(self) -> tuple[str, int]:
        """As messages name it."""
        return self.topic, self.partition

    def at(self, offset: int, *metadata: str) -> Any:
        """The client's way to say it."""
        return TopicPartition(self.topic, self.partition, offset, *metadata)


def topic_partition_of(message: Message) -> tuple[str, int]:
    """A message's topic and partition: the `key` of its KafkaPartition."""
    return message.topic(), message.partition()


class Stored(NamedTuple):
    """An offset that the group has stored, and the topic's id it was stored with (empty: nobody said).
    `checkpoint`: as in `checkpoint.py`.

    `first`: where the group began to read; what lies before is not its own to read. 0 where nobody said.
    """

    offset: int
    topic_id: str
    checkpoint: str = ""
    first: int = 0

    @property
    def metadata(self) -> str:
        """As it stands beside the offset."""
        return " ".join(
            [
                self.topic_id,
                *([self.checkpoint] if self.checkpoint else []),
                *([f"{_FROM}{self.first}"] if self.first else []),
            ]
        )


def parse_stored(offset: int, metadata: str | None) -> Stored:
    """Reads what stands beside a group's offset. An offset that another tool has set, with nothing beside it,
    is where the group begins."""
    if not metadata:
        return Stored(offset, "", first=offset)
    topic_id, *others = metadata.split(" ")
    first = next((text.removeprefix(_FROM) for text in others if text.startswith(_FROM)), "")
    checkpoint = next((text for text in others if not text.startswith(_FROM)), "")
    return Stored(offset, topic_id, checkpoint, int(first) if first.isdigit() else 0)


class Ends(NamedTuple):
    """The offsets `[start, end)` a partition holds now; above `end` there are only records of transactions
    not decided yet."""

    start: int
    end: int


class KafkaReader:
    """Topics, offsets and messages of the brokers in the settings. One thread at a time. `wait_s`: how long a
    full batch of messages is waited for."""

    def __init__(self, settings: IngestSettings, wait_s: float = 0.5, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._settings = settings
        self._servers = settings.kafka.bootstrap_servers
        self._group = settings.kafka.group
        self._credentials = CredentialFiles(settings)
        self._client = admin_client(settings)
        self._unreadable: list[UnreadableRange] = []

    @property
    def _admin(self) -> AdminClient:
        """A client by the credentials that are there now: tools go on for months."""
        if self._credentials.changed():
            self._credentials = CredentialFiles(self._settings)
            self._client = admin_client(self._settings)
        return self._client

    def partitions(self, topics: Iterable[str]) -> list[KafkaPartition]:
        """The partitions of topics, those that do not exist left out. Raises UnavailableError."""
        found: list[KafkaPartition] = []
        for name, future in self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
        ).items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unavailable(
                    f"does not describe topic {name}", error, Right("DESCRIBE", f"topic {name}")
                ) from error
            found += [
                KafkaPartition(name, str(topic.topic_id), partition.id) for partition in topic.partitions
            ]
        return sorted(found)

    def ends(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, Ends]:
        """First and last offsets, as readers of committed records see them. Raises UnavailableError."""
        asked = list(partitions)
        first, last = (
            self._offsets(dict.fromkeys(asked, spec)) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return {partition: Ends(first[partition], last[partition]) for partition in asked}

    def from_time(self, partitions: Iterable[KafkaPartition], time_ms: int) -> dict[KafkaPartition, int]:
        """The first offset whose timestamp is at or after a time; the end where there is none. Raises
        UnavailableError."""
        asked = list(partitions)
        found, ends = self._offsets(dict.fromkeys(asked, OffsetSpec.for_timestamp(time_ms))), self.ends(asked)
        return {
            partition: offset if offset >= 0 else ends[partition].end for partition, offset in found.items()
        }

    def high_watermarks(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offset after the last record that reached the brokers, of transactions not decided yet as well.
        Raises UnavailableError."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED)

    def _offsets(
        self, specs: Mapping[KafkaPartition, Any], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[KafkaPartition, int]:
        if not specs:
            return {}
        request = {partition.at(OFFSET_INVALID): spec for partition, spec in specs.items()}
        by_key = {partition.key: partition for partition in specs}
        try:
            answers = self._admin.list_offsets(
                request, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
            )
            return {
                by_key[asked.topic, asked.partition]: int(future.result().offset)
                for asked, future in answers.items()
            }
        except KafkaException as error:
            raise self._unavailable("does not list offsets", error) from error

    def stored(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """What the ingesters' group has stored; partitions without anything are left out. Raises
        UnavailableError."""
        asked = {partition.key: partition for partition in partitions}
        if not asked:
            return {}
        try:
            with closing(reading_consumer(self._settings, self._group)) as consumer:
                answer = committed_offsets(
                    consumer, [partition.at(OFFSET_INVALID) for partition in asked.values()]
                )
        except KafkaException as error:
            raise self._unavailable(
                f"does not give the offsets of group {self._group}",
                error,
                Right("READ", f"group {self._group}"),
            ) from error
        return {
            asked[each.topic, each.partition]: parse_stored(each.offset, each.metadata)
            for each in answer
            if each.offset >= 0
        }

    def may_be_compacted(self, topics: Iterable[str]) -> frozenset[str]:
        """Topics of which the broker may have removed messages that others of the same key have followed;
        also those of which it does not say. Raises UnavailableError."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        found = set()
        for resource, future in self._admin.describe_configs(resources).items() if resources else ():
            try:
                policy = future.result(REQUEST_TIMEOUT_S)["cleanup.policy"].value
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._unavailable(f"does not describe topic {resource.name}", error) from error
                policy = _COMPACT
            if _COMPACT in policy:
                found.add(resource.name)
        return frozenset(found)

    def delete_below(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Has the brokers delete every record below an offset, for good (KIP-107). Raises UnavailableError;
        what was not deleted is then still there."""
        asked = [partition.at(offset) for partition, offset in offsets.items()]
        try:
            for future in (
                self._admin.delete_records(asked, request_timeout=REQUEST_TIMEOUT_S).values() if asked else ()
            ):
                future.result()
        except KafkaException as error:
            raise self._unavailable(
                "does not delete records",
                error,
                Right("DELETE", f"topic {', '.join(sorted({partition.topic for partition in offsets}))}"),
            ) from error

    def read(self, ranges: Mapping[KafkaPartition, tuple[int, int]]) -> Generator[Message]:
        """Every committed record of `[start, end)` of each partition; per partition in order. Raises
        UnavailableError, FatalError.

        What nobody can read is stepped over, and told by `take_unreadable`.
        """
        with closing(self.read_runs(ranges)) as runs:
            for run in runs:
                yield from run

    def read_runs(
        self, ranges: Mapping[KafkaPartition, tuple[int, int]], fetch_bytes: int = FETCH_BYTES
    ) -> Generator[list[Message]]:
        """The same in runs, as they come: one or more records of one partition each."""
        left = {partition.key: end for partition, (start, end) in ranges.items() if start < end}
        if not left:
            return
        with parting_with(self._consumer(fetch_bytes)) as consumer:
            consumer.assign(
                [partition.at(start) for partition, (start, end) in ranges.items() if start < end]
            )
            yield from self._until(
                consumer, {partition.key: start for partition, (start, _) in ranges.items()}, left
            )

    def take_unreadable(self) -> list[UnreadableRange]:
        """What was stepped over since the last call; of a partition all that lies before what was read last,
        and nothing behind it."""
        found, self._unreadable = self._unreadable, []
        return found

    def first(self, starts: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, Message]:
        """The first committed record at or beyond an offset; partitions that hold none are left out. Raises
        UnavailableError, FatalError."""
        found: dict[tuple[str, int], Message] = {}
        with parting_with(self._consumer(fetch_bytes=1024)) as consumer:
            left = {partition.key: 1 << 62 for partition in starts}
            consumer.assign([partition.at(offset) for partition, offset in starts.items()])
            for run in self._until(
                consumer, {partition.key: offset for partition, offset in starts.items()}, left
            ):
                found.setdefault(topic_partition_of(run[0]), run[0])
                left.pop(topic_partition_of(run[0]), None)
        return {partition: found[partition.key] for partition in starts if partition.key in found}

    def _until(
        self, consumer: Any, starts: dict[tuple[str, int], int], left: dict[tuple[str, int], int]
    ) -> Iterator[list[Message]]:
        """Runs of messages until every partition has come to its end (or was taken out of `left` by the
        caller)."""
        with closing(Probe(self._settings)) as probe:
            silent_s = 0.0  # spent here, not by whoever takes the messages
            batch_size = BatchSize()
            while left:
                began_s = self._clock.monotonic_s()
                # For more than there is the client would wait until its time is up.
                there = sum(end - starts[key] for key, end in left.items())
                messages = consumer.consume(min(batch_size.messages, there), self._wait_s)
                silent_s = 0.0 if messages else silent_s + self._clock.monotonic_s() - began_s
                spoilt = spoilt_by(messages)
                good = with_readable_headers(sound(messages, spoilt))
                batch_size.learn(len(good), sum(map(len, good)))
                for key, together in groupby(good, topic_partition_of):
                    delivered = list(together)
                    starts[key] = delivered[-1].offset() + 1
                    if run := _within(delivered, key, left):
                        yield run
                for message in messages:
                    if (error := message.error()) is not None and topic_partition_of(message) not in spoilt:
                        self._react(error, topic_partition_of(message), left)
                for key in spoilt.keys() & left.keys():
                    self._step_over(consumer, probe, key, starts, left)
                if silent_s > SILENCE_MAX_S:
                    raise UnavailableError(
                        f"Kafka at {self._servers} sent nothing of {sorted(left)} for {SILENCE_MAX_S:.0f} s; "
                        "is the broker well?"
                    )

    def _step_over(
        self,
        consumer: Any,
        probe: Probe,
        key: tuple[str, int],
        starts: dict[tuple[str, int], int],
        left: dict[tuple[str, int], int],
    ) -> None:
        while key in left and (unreadable := probe.extent(*key, starts[key])) is not None:
            log.warning(
                "records.unreadable",
                topic=key[0],
                partition=key[1],
                first=unreadable.start,
                next=unreadable.end,
                reason=unreadable.error,
            )
            if (part := unreadable.within(starts[key], left[key])).offsets > 0:
                self._unreadable.append(part)
            starts[key] = unreadable.end
            if unreadable.end >= left[key]:
                del left[key]
        go_to(consumer, *key, starts[key])

    def _react(self, error: KafkaError, key: tuple[str, int], left: dict[tuple[str, int], int]) -> None:
        if (
            error.code() == KafkaError._PARTITION_EOF
        ):  # what is left below the end are control records and aborted ones
            left.pop(key, None)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise UnavailableError(
                f"topic {key[0]} partition {key[1]}: {error.str()}: Kafka's retention removed it while it "
                "was read; try again"
            )
        elif error.code() in FORBIDDEN:
            group = f"group {self._group}.tools"
            right = Right("READ", f"topic {key[0]}" if key[0] else group)
            raise self._unavailable("does not give records", KafkaException(error), right)
        elif error.fatal():
            raise FatalError(f"Kafka: {error.str()}")
        else:
            log.warning("kafka.trouble", code=error.name(), text=error.str(), topic=key[0])

    def _consumer(self, fetch_bytes: int) -> Consumer:
        return reading_consumer(self._settings, f"{self._group}.tools", fetch_bytes)

    def _unavailable(self, what: str, error: Exception, right: Right | None = None) -> UnavailableError:
        return unavailable(self._settings, what, error, right, self._client)


def _within(run: list[Message], key: tuple[str, int], left: dict[tuple[str, int], int]) -> list[Message]:
    """What of a partition's messages lies below its end; a partition that has come to it is not left any
    more."""
    end = left.get(key, 0)
    if run[-1].offset() + 1 < end:
        return run
    left.pop(key, None)
    return [message for message in run if message.offset() < end]
