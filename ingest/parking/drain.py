"""Writing what was parked of one table, in the order of its offsets, by the ordinary marks, a bounded piece
at a time.

readings    the parking topic, from where this parking began to its end as of now, and on while much has come
            meanwhile. Before that, of a table that was moved back and is to be read again: of the parking
            topic what the input topics no longer have; the input topics, from the marks to their ends. (What
            is parked is no measure of where to stop: it may begin below an offset that a node before stored
            late.)
taken       per partition the next offset not taken yet, from the marks on; what is below is skipped. Messages
            may be repeated in the parking topic, by a restart or a paused node. But every producer writes the
            messages of one parking in order and without a gap, so nothing that is needed ever comes after
            something beyond it.
flush       one is in flight; the range of a partition ends behind the last message taken of it
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from ingest.commit.flush_lifecycle import Flushes
from ingest.kafka.aside import Aside
from ingest.kafka.header_workaround import with_readable_headers
from ingest.kafka.kafka_client import go_to, part_with, reading_consumer
from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader, topic_partition_of
from ingest.kafka.kafka_trouble import FORBIDDEN, Right, unavailable
from ingest.kafka.topic_mac import TopicMac
from ingest.kafka.unreadable import Probe, sound, spoilt_by
from ingest.model.fault_point import reach
from ingest.model.link import Drain as Order
from ingest.model.link import Outcome, TableView, WrittenFlush
from ingest.model.over_limit import first_over, is_over
from ingest.model.source import Source
from ingest.model.trouble import Cause, Trouble, trouble_of
from ingest.parking.parked_topic import ParkedMessage, parking_of, parking_partition, read_parked
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.routes import Routes
from ingest.write.flush_writer import TABLE_DELETED, Flush, FlushWriter, cut_flush
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, UnavailableError
from lake.marks import TopicPartition
from lake.settings import IngestSettings

# The first flush shows whether the table takes rows again, so it is small.
FIRST_MESSAGES = 500
FLUSH_BYTES = 16 * 1024 * 1024
CONSUME_MESSAGES = 2_000
# So few that live records may wait for them.
REST_MESSAGES = 10_000
log = structlog.get_logger()
Take = Callable[[Message], None]


@dataclass(slots=True)
class Reading:
    """Some partitions read from one offset to another; `left` are those whose end is still ahead."""

    start: Mapping[KafkaPartition, int]
    left: dict[tuple[str, int], int]
    take: Take
    passed: Take  # is shown every message, also those beyond an end
    own: bool = False  # of a topic that Firn alone writes
    next: dict[tuple[str, int], int] = field(init=False)  # behind what has come

    def __post_init__(self) -> None:
        self.next = {partition.key: offset for partition, offset in self.start.items()}


@dataclass
class Drain:
    """One drain of one table. `step` is called again and again and never blocks for long. `reached`: the
    offset of the parking topic it has read up to."""

    order: Order
    settings: IngestSettings
    aside: Aside
    writer: FlushWriter
    submit: Callable[[Sequence[WrittenFlush]], None]
    clock: Clock = SYSTEM_CLOCK
    view: TableView = field(init=False)
    sources: list[Source] = field(default_factory=list)
    _numbers: dict[Source, int] = field(default_factory=dict)
    _buffer: TableBuffer = field(init=False)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _input_begins: dict[TopicPartition, int] = field(default_factory=dict)
    _flushes: Flushes[Flush] = field(default_factory=Flushes)
    _has_flushed: bool = False
    reached: int = 0
    _consumer: Consumer = field(init=False)
    _readings: Iterator[Reading] = field(init=False)
    _reading: Reading | None = None

    def __post_init__(self) -> None:
        self.view, self.reached = self.order.view, self.order.start
        self._buffer = TableBuffer(self.order.table, 0.0)
        self._reader = KafkaReader(self.settings)
        self._consumer = reading_consumer(self.settings, f"{self.settings.kafka.group}.drain")
        self._probe = Probe(self.settings)
        self._mac = TopicMac(self.settings)
        self._readings = self._plan()

    def close(self) -> None:
        """Ends the reading."""
        self._probe.close()
        part_with(self._consumer)

    def step(self, for_s: float) -> bool:
        """Takes what comes, for so long at most, and hands over a flush where it is time; True when all is
        done.

        Raises FirnError where the table takes nothing yet.
        """
        until_s = self.clock.monotonic_s() + for_s
        while not len(self._flushes):
            if self._reading is None or not self._reading.left:
                self._begin_next()
            came = self._reading is not None and self._read(self._reading)
            limit_reached = self._buffer.size_bytes >= FLUSH_BYTES or (
                not self._has_flushed and len(self._buffer) >= FIRST_MESSAGES
            )
            if len(self._buffer) and (limit_reached or self._reading is None):
                self._cut()
            elif self._reading is None:
                return True
            elif not came or self.clock.monotonic_s() >= until_s:
                break
        return False

    def _begin_next(self) -> None:
        self._reading = next(self._readings, None)
        if self._reading is not None:
            self._consumer.assign([partition.at(offset) for partition, offset in self._reading.start.items()])

    def settled(self, outcome: Outcome, view: TableView) -> None:
        """What became of the flush in flight."""
        self.view = view
        flush = self._flushes.settled(self.order.table, outcome).cut
        if outcome is Outcome.REDO:
            self._hand_over(flush)
        elif outcome is Outcome.DEAD_LETTER:
            self.writer.dead_letter_all(flush.buffer, self.sources, TABLE_DELETED)
            self.writer.acknowledged()
        else:
            self.writer.committed(flush.buffer, self.sources, view)
            self.writer.acknowledged()

    # ---- what is read

    def _plan(self) -> Iterator[Reading]:
        if self.order.reread:
            # Looked at once: what retention removes from here on makes the reading fail, and it is begun
            # anew.
            ends = self._reader.ends(self._reader.partitions(topic.name for topic in self.settings.topics))
            self._input_begins = {
                TopicPartition(each.topic_id, each.partition): there.start for each, there in ends.items()
            }
            yield from self._parked(self._take_expired)
            yield from self._input(ends)
            self.reached = self.order.start
        before = None
        while before is None or self.reached - before > REST_MESSAGES:
            before = self.reached
            yield from self._parked(self._take_parked)

    def _parked(self, take: Take) -> Iterator[Reading]:
        """The parking topic, from where it has been read on, as of now."""
        partition = parking_partition(self._reader, self.settings.internal_topics.parked, self.order.parking)
        ends = self._reader.ends([partition])[partition]
        if partition.topic_id != self.order.topic_id:
            raise self._lost("was re-created since")
        if ends.start > self.reached:
            raise self._lost(
                f"begins at offset {ends.start} now, and {self.order.start} was its end when (set its "
                "retention.ms and retention.bytes to -1)"
            )
        if self.reached < ends.end:
            yield Reading({partition: self.reached}, {partition.key: ends.end}, take, _nothing, own=True)
        self.reached = max(ends.end, self.reached)

    def _lost(self, how: str) -> "ParkingLostError":
        return ParkingLostError(
            f"topic {self.settings.internal_topics.parked} {how} table {self.order.table} was parked, and "
            f"records of it are gone from there; run `python -m ingest resolve {self.order.table} "
            "--reread` to read them from the input topics again, or `--accept` to go without them"
        )

    def _input(self, ends: Mapping[KafkaPartition, Ends]) -> Iterator[Reading]:
        """The input topics from the table's marks to their ends."""
        topics = {topic.name: topic for topic in self.settings.topics}
        routes = Routes(self.settings)
        start, left = {}, {}
        stored = self._reader.stored(ends)
        for partition, (first, end) in ends.items():
            topic_partition = TopicPartition(partition.topic_id, partition.partition)
            begun = stored[partition].first if partition in stored else 0
            mark = self.view.marks.of(topic_partition)
            begin = max(first, begun, first_over(self.view.over, topic_partition, mark))
            if begin > mark > 0:
                log.error(
                    "records.expired",
                    table=str(self.order.table),
                    topic=partition.topic,
                    partition=partition.partition,
                    first=begin,
                )
            if begin < end:
                start[partition], left[partition.key] = begin, end
        ids = {partition.key: partition for partition in ends}
        partitions = Counter(partition.topic_id for partition in ends)

        def take(as_sent: Message) -> None:
            (message,) = routes.masked(as_sent.topic(), [as_sent])
            partition, topic = ids[message.topic(), message.partition()], topics[message.topic()]
            if routes.goes_to(message, self.order.table):
                alone = partitions[partition.topic_id] == 1
                self._add(
                    Source.of(topic, partition.topic_id, partition.partition, is_alone=alone),
                    _record(message),
                )

        def passed(message: Message) -> None:
            partition = ids[message.topic(), message.partition()]
            self._ends[TopicPartition(partition.topic_id, partition.partition)] = message.offset() + 1

        if left:
            yield Reading(start, left, take, passed)

    def _read(self, reading: Reading) -> bool:
        """Takes what the client has there; whether that was anything."""
        try:
            messages = self._consumer.consume(CONSUME_MESSAGES if self._has_flushed else FIRST_MESSAGES, 0.0)
        except KafkaException as error:
            raise unavailable(self.settings, "does not give parked messages", error) from error
        spoilt = spoilt_by(messages)
        for message in with_readable_headers(sound(messages, spoilt)):
            key = topic_partition_of(message)
            reading.next[key] = message.offset() + 1
            end = reading.left.get(key)
            if end is None:
                continue
            if message.offset() < end:
                reading.take(message)
                reading.passed(message)
            if message.offset() + 1 >= end:
                del reading.left[key]
        for message in (
            message
            for message in messages
            if message.error() is not None and topic_partition_of(message) not in spoilt
        ):
            trouble = message.error()
            if trouble.code() == KafkaError._PARTITION_EOF:  # what is left below the end are control records
                reading.left.pop(topic_partition_of(message), None)
            elif trouble.code() == KafkaError._AUTO_OFFSET_RESET:
                raise UnavailableError(f"topic {message.topic()}: {trouble.str()}")
            elif trouble.code() in FORBIDDEN:
                group = f"group {self.settings.kafka.group}.drain"
                right = Right("READ", f"topic {message.topic()}" if message.topic() else group)
                told = "does not give parked messages"
                raise unavailable(self.settings, told, KafkaException(trouble), right)
        for key in spoilt.keys() & reading.left.keys():
            self._step_over(reading, key)
        return bool(messages)

    def _step_over(self, reading: Reading, key: tuple[str, int]) -> None:
        """Behind what nobody can read. Of an input topic live ingestion has come by there, too, and has made
        the dead letter."""
        while (unreadable := self._probe.extent(*key, reading.next[key])) is not None:
            if reading.own:
                raise self._lost(
                    f"cannot be read from offset {unreadable.start} to {unreadable.end - 1} "
                    f"({unreadable.error}), where records were put after"
                )
            log.warning(
                "records.unreadable",
                table=str(self.order.table),
                topic=key[0],
                partition=key[1],
                first=unreadable.start,
                next=unreadable.end,
            )
            reading.next[key] = unreadable.end
            if unreadable.end >= reading.left[key]:
                del reading.left[key]
                return
        go_to(self._consumer, *key, reading.next[key])

    def _take_expired(self, message: Message) -> None:
        if self._is_ours(message):
            parked = read_parked(message, self.aside)
            if parked.record.offset < self._input_begins.get(
                TopicPartition(parked.source.topic_id, parked.source.partition), 0
            ):
                self._take(parked)

    def _take_parked(self, message: Message) -> None:
        if self._is_ours(message):
            self._take(read_parked(message, self.aside))

    def _is_ours(self, message: Message) -> bool:
        """Whether Firn has parked it for this table. What somebody else wrote into the topic stays there."""
        if parking_of(message) != self.order.parking:
            return False
        if not self._mac.is_own(message):
            self.writer.count_foreign(self.settings.internal_topics.parked)
            log.error(
                "message.foreign",
                topic=message.topic(),
                partition=message.partition(),
                offset=message.offset(),
            )
            return False
        return True

    def _take(self, parked: ParkedMessage) -> None:
        self._add(parked.source, parked.record)
        topic_partition = TopicPartition(parked.source.topic_id, parked.source.partition)
        self._ends[topic_partition] = max(self._ends.get(topic_partition, 0), parked.record.offset + 1)

    # ---- what is written

    def _add(self, source: Source, record: RawRecord) -> None:
        topic_partition = source.place
        mark = self.view.marks.of(topic_partition)
        if record.offset < self._ends.get(topic_partition, 0):
            return  # taken before
        if record.offset < mark and not is_over(self.view.over, topic_partition, record.offset):
            return  # in the table
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = len(self.sources)
            self.sources.append(source)
        self._buffer.add(*record._replace(source=number))

    def _cut(self) -> None:
        buffer, self._buffer = self._buffer, TableBuffer(self.order.table, 0.0)
        flush = cut_flush(buffer, self.sources, self._end, self.order.number)
        self._flushes.begin(flush)
        self._hand_over(flush)

    def _end(self, number: int) -> int:
        source = self.sources[number]
        return self._ends[source.place]

    def _hand_over(self, flush: Flush) -> None:
        written = self.writer.write([flush], self.sources, {self.order.table: self.view})  # 1, 2
        if written.stuck:  # the main process decides when the drain is begun anew
            raise DrainStuckError(written.stuck[0][1])
        self._has_flushed = True
        self._flushes.written(written, self.clock.monotonic_s())
        self.submit(written.flushes)
        reach("drain_handed_over")


class DrainStuckError(FirnError):
    """A flush of a drain could not be written."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.sentence)
        self.trouble = trouble


class ParkingLostError(FirnError):
    """The parking topic does not hold any more what was parked."""


def drain_trouble(error: FirnError) -> Trouble:
    """What an error while draining means for the table."""
    if isinstance(error, DrainStuckError):
        return error.trouble
    return (
        Trouble(Cause.PARKING_LOST, str(error))
        if isinstance(error, ParkingLostError)
        else trouble_of(error, Cause.STORAGE)
    )


def _nothing(_: Message) -> None:
    return


def _record(message: Message) -> RawRecord:
    return RawRecord(
        0, message.offset(), message.timestamp()[1], message.key(), message.headers() or (), message.value()
    )
