"""Batches that the client cannot read: they do not decompress, grow beyond its bound, or do not have the
checksum they say.

The client tells the error with the offset at which the batch begins, and tries the same batch again for ever.
Whoever reads looks for the end of the batch by asking, with a consumer of its own, for offsets behind it: as
long as an offset lies in the batch, the same error comes with the same beginning. What it finds is one range
`[start, end)`, exact whatever stands behind it, which is recorded and stepped over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ingest.kafka.kafka_client import make_client, part_with, reading_options
from lake.errors import Reason, Rejected, UnavailableError
from lake.settings import IngestSettings

# What the client says of bytes it has. Anything that a broker says may pass, and is waited for.
CODES = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED})
# So often in a row a batch has to come back with the same error: bytes that were damaged on their way are
# sent again.
TRIES = 3
ANSWER_S = 10.0
Place = tuple[str, int]  # a topic's name and the partition
_OUTSIDE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """The offsets `[start, end)` of a partition that nobody can read, and what the client says of them."""

    topic: str
    partition: int
    start: int
    end: int
    error: str

    @property
    def offsets(self) -> int:
        """As many records at most."""
        return self.end - self.start

    def within(self, start: int, end: int) -> "UnreadableRange":
        """The part of it that somebody wants who reads from one offset to another."""
        return replace(self, start=max(start, self.start), end=min(end, self.end))


@dataclass(frozen=True, slots=True)
class RejectedRange(Rejected):
    """A range as a dead letter has it: one dead letter for all offsets up to `until`, without bytes."""

    until: int = 0

    @classmethod
    def of(cls, unreadable: UnreadableRange) -> Self:
        """Why there is a dead letter for a range."""
        detail = (
            f"offsets {unreadable.start} to {unreadable.end - 1} cannot be read, no bytes are kept: "
            f"{unreadable.error}"
        )
        return cls(Reason.UNREADABLE, detail, unreadable.end)


def spoilt_by(messages: Iterable[Message]) -> dict[Place, int]:
    """The partitions of which a batch among what was delivered cannot be read, each with where that is in it.
    Behind it the client is not to be relied on: after a wrong checksum it may take anything for records, and
    go on anywhere."""
    found: dict[Place, int] = {}
    for at, message in enumerate(messages):
        if (error := message.error()) is not None and error.code() in CODES:
            found.setdefault((message.topic(), message.partition()), at)
    return found


def sound(messages: Iterable[Message], spoilt: Mapping[Place, int]) -> Iterator[Message]:
    """Of what was delivered all records that do not lie behind a batch of their partition that cannot be
    read."""
    for at, message in enumerate(messages):
        if message.error() is None and (
            not spoilt or at < spoilt.get((message.topic(), message.partition()), at + 1)
        ):
            yield message


class _Told(NamedTuple):
    """The error of the batch that an offset lies in, and where that batch begins."""

    begins: int
    error: str


class Probe:
    """Asks for single batches. Its consumer is made when it is first needed. One thread at a time."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._consumer: Any = None

    def close(self) -> None:
        if self._consumer is not None:
            part_with(self._consumer)
            self._consumer = None

    def extent(self, topic: str, partition: int, at: int) -> UnreadableRange | None:
        """The range that begins at an offset, or behind a gap after it; None where something else comes from
        there now. Raises UnavailableError."""
        try:
            return self._extent(topic, partition, at)
        finally:
            if self._consumer is not None:
                self._consumer.unassign()  # it would go on asking

    def _extent(self, topic: str, partition: int, at: int) -> UnreadableRange | None:
        told = self._told(topic, partition, at)
        if told is None or any(self._told(topic, partition, at) != told for _ in range(TRIES - 1)):
            return None
        inside, step = at, 1
        while self._lies_in(told, topic, partition, inside + step):
            inside, step = inside + step, step * 2
        outside = inside + step
        while outside - inside > 1:
            middle = (inside + outside) // 2
            inside, outside = (
                (middle, outside) if self._lies_in(told, topic, partition, middle) else (inside, middle)
            )
        return UnreadableRange(topic, partition, max(at, told.begins), outside, told.error)

    def _lies_in(self, batch: _Told, topic: str, partition: int, offset: int) -> bool:
        told = self._told(topic, partition, offset)
        return told is not None and told.begins == batch.begins

    def _told(self, topic: str, partition: int, offset: int) -> _Told | None:
        """What is wrong with the batch that an offset lies in; None where a record comes, or the partition
        ends. Raises UnavailableError.

        A client that met a wrong checksum has gone on anywhere behind it: it may answer with an offset that
        nobody asked for, or not any more. What a client that was used before says of an end, or does not say,
        is therefore asked of a new one.
        """
        was_used = self._consumer is not None
        where = f"topic {topic} partition {partition}"
        try:
            message = self._answer(topic, partition, offset)
        except KafkaException as trouble:
            raise UnavailableError(
                f"{where}: what lies at offset {offset} is not told for now: {trouble}"
            ) from trouble
        error = None if message is None else message.error()
        if was_used and (
            message is None or (error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET)
        ):
            self.close()
            return self._told(topic, partition, offset)
        if message is None:
            raise UnavailableError(f"{where}: Kafka sends nothing from offset {offset} on")
        if error is None or error.code() in _OUTSIDE:
            return None
        if error.code() in CODES:
            return _Told(message.offset(), error.str())
        raise UnavailableError(f"{where}: what lies at offset {offset} is not told for now: {error.str()}")

    def _answer(self, topic: str, partition: int, offset: int) -> Any:
        """The first record or error from an offset on, None where nothing comes in time."""
        if self._consumer is None:
            # A byte asked for is one batch given; its answer may hold as much as any other consumer's.
            quick = {
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.error.backoff.ms": 5,
                "fetch.queue.backoff.ms": 5,
            }
            self._consumer = make_client(
                Consumer,
                {**reading_options(self._settings, f"{self._settings.kafka.group}.probe", 1), **quick},
            )
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        return next(iter(self._consumer.consume(1, ANSWER_S)), None)
