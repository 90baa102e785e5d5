"""Records as they reach Kafka, before any commit: read from the ends of the input topics, routed and decoded
as ingestion does, kept nowhere.

Whoever looks on must not slow anything down: what does not fit the queue is dropped and counted, and a tail
that falls behind skips ahead.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaException, Message

from ingest.convert.row import Row, row_of
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.decode.decoder import decode, take_apart
from ingest.decode.event_time import instant_text, zone
from ingest.decode.formats.registry import BATCH_RECORD
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.kafka.header_workaround import with_readable_headers
from ingest.kafka.kafka_client import go_to, reading_consumer
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.kafka.kafka_trouble import FORBIDDEN, Right, unavailable
from ingest.kafka.unreadable import Probe, sound, spoilt_by
from ingest.route.router import Envelope, Router
from ingest.route.routes import Routes
from lake import metrics
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, Rejected, RetryableError
from lake.log_schema import MESSAGE, SEVERITY, new_log_schema
from lake.settings import FormatName, IngestSettings, TopicSettings
from lake.severity import level_of
from lake.tenant import TableId, TenantId

QUEUE_EVENTS_MAX = 2_000
QUEUE_BYTES_MAX = 8 * 1024 * 1024
BEHIND_MAX = 50_000
POLL_S = 0.2
LOOK_AROUND_EVERY_S = 1.0
DISCOVER_EVERY_S = 30.0
_ANY_TIME = TimeLimits(None, None)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TailFilter:
    """Whose records: a tenant's, of one stream or all (None), that hold every word (in any case) in some
    value."""

    tenant: TenantId
    stream: str | None = None
    words: tuple[str, ...] = ()

    def takes(self, target: TableId | Rejected) -> bool:
        return (
            isinstance(target, TableId)
            and target.tenant == self.tenant
            and self.stream in (None, target.stream)
        )


@dataclass(frozen=True, slots=True)
class TailEvent:
    """Something to tell. `kind`: open, record, rejected, dropped, skipped, failed."""

    kind: str
    data: dict[str, Any]
    size_bytes: int = 0


class TailQueue:
    """The bounded queue between the reading thread and whoever looks on."""

    def __init__(self) -> None:
        self._events: deque[TailEvent] = deque()
        self._bytes = 0
        self._dropped = self._told = 0
        self._lock = threading.Lock()

    def put(self, event: TailEvent) -> None:
        """Adds an event, or counts it as dropped."""
        with self._lock:
            if len(self._events) >= QUEUE_EVENTS_MAX or self._bytes + event.size_bytes > QUEUE_BYTES_MAX:
                self._dropped += 1
                metrics.TAIL_DROPPED.inc()
            else:
                self._events.append(event)
                self._bytes += event.size_bytes

    def take(self) -> list[TailEvent]:
        """Everything that waits, and how much was dropped since the last time."""
        with self._lock:
            events = [*self._events]
            self._events.clear()
            self._bytes = 0
            if self._dropped > self._told:
                events.append(
                    TailEvent("dropped", {"records": self._dropped - self._told, "total": self._dropped})
                )
                self._told = self._dropped
        return events


class LiveTail:
    """One tail with a thread of its own, from `start` to `stop`."""

    def __init__(self, settings: IngestSettings, wanted: TailFilter, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._wanted = wanted
        self._topics = {topic.name: topic for topic in settings.topics}
        self._routers = {topic.name: Router(topic) for topic in settings.topics}
        self._routes = Routes(settings)
        self._partitions: list[KafkaPartition] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self.queue = TailQueue()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; the thread ends within a moment."""
        self._stopping.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        metrics.TAILS.inc()
        try:
            with closing(reading_consumer(self._settings, f"{self._settings.kafka.group}.tail")) as consumer:
                self._follow(consumer)
        except FirnError as error:
            log.warning("tail.failed", reason=str(error))
            self.queue.put(TailEvent("failed", {"message": str(error)}))
        finally:
            metrics.TAILS.dec()

    def _follow(self, consumer: Consumer) -> None:
        reader = KafkaReader(self._settings)
        self.discover(consumer, reader, from_end=True)
        # Only what is of this tenant is told, in all events: topics and their numbers are of everybody.
        self.queue.put(TailEvent("open", {"tenant": self._wanted.tenant.name, "stream": self._wanted.stream}))
        looked_s = discovered_s = self._clock.monotonic_s()
        while not self._stopping.is_set():
            self._take_all(consumer, consumer.consume(200, POLL_S))
            now_s = self._clock.monotonic_s()
            if now_s - looked_s > LOOK_AROUND_EVERY_S:
                self.skip_ahead(consumer)
                looked_s = now_s
            if now_s - discovered_s > DISCOVER_EVERY_S:
                try:
                    self.discover(consumer, reader, from_end=False)
                except RetryableError as error:
                    log.info("tail.waits", reason=str(error))
                discovered_s = now_s

    def _take_all(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """What has come; behind a batch that nobody can read, the partition is read on where the next one
        begins. Raises KafkaRefusedError where nothing will come, for want of a right."""
        for message in messages:
            if (error := message.error()) is not None and error.code() in FORBIDDEN:
                group = f"group {self._settings.kafka.group}.tail"
                right = Right("READ", f"topic {message.topic()}" if message.topic() else group)
                raise unavailable(self._settings, "gives no records", KafkaException(error), right)
        spoilt = spoilt_by(messages)
        good = with_readable_headers(sound(messages, spoilt))
        for topic, some in groupby(good, Message.topic):
            for message in self._routes.masked(topic, list(some)):
                self._take(message)
        if spoilt:
            with closing(Probe(self._settings)) as probe:
                for topic_partition, at in spoilt.items():
                    told = messages[at].offset()
                    while (unreadable := probe.extent(*topic_partition, told)) is not None:
                        told = unreadable.end
                    go_to(consumer, *topic_partition, told)

    def discover(self, consumer: Consumer, reader: KafkaReader, *, from_end: bool) -> None:
        """Takes up partitions that are new; those that come later are read from their start.

        The ends are asked for here: the client would find them some time after we said that we listen.
        """
        new = reader.ends(p for p in reader.partitions(self._topics) if p not in self._partitions)
        if new:
            consumer.incremental_assign(
                [partition.at(ends.end if from_end else ends.start) for partition, ends in new.items()]
            )
            self._partitions += new

    def skip_ahead(self, consumer: Consumer) -> None:
        """Where reading is far behind, goes to the end and says so."""
        for position in consumer.position([partition.at(0) for partition in self._partitions]):
            if position.offset < 0:
                continue
            _, end = consumer.get_watermark_offsets(position, cached=True)
            if end - position.offset > BEHIND_MAX:
                skipped = end - position.offset
                position.offset = end
                consumer.seek(position)
                log.info(
                    "tail.skipped",
                    topic=position.topic,
                    partition=position.partition,
                    messages_of_all_tenants=skipped,
                )
                self.queue.put(
                    TailEvent(
                        "skipped",
                        {
                            "message": (
                                "the tail fell behind; records were left out, and it went on with the newest"
                            )
                        },
                    )
                )

    def _take(self, message: Message) -> None:
        topic, value = self._topics[message.topic()], message.value()
        target = (
            self._routers[topic.name].route(
                Envelope(topic.name, message.key(), message.headers() or (), value)
            )
            if value
            else None
        )
        if (
            target is None
            or not isinstance(target, TableId)
            or not self._wanted.takes(target)
            or len(value) > self._settings.limits.record_bytes_max
        ):
            return
        for index, row in self._rows(topic, value, message.timestamp()[1]):
            coordinates = {
                "stream": target.stream,
                "topic": topic.name,
                "partition": message.partition(),
                "offset": message.offset(),
                "index": index,
            }
            if isinstance(row, Row):
                self._tell(row, coordinates)
            elif not self._wanted.words:
                self.queue.put(
                    TailEvent(
                        "rejected",
                        {"reason": row.reason.value, "detail": row.detail, **coordinates},
                        len(row.detail),
                    )
                )

    def _rows(
        self, topic: TopicSettings, value: bytes, timestamp_ms: int
    ) -> Iterator[tuple[int, Row | Rejected]]:
        batch = take_apart(value, topic.format, self._settings.limits.depth_max)
        if isinstance(batch, Rejected):
            yield 0, batch
        elif batch is None:
            yield 0, self._row(topic, value, topic.format, timestamp_ms)
        else:
            for index, record in enumerate(batch):
                yield (
                    index,
                    record
                    if isinstance(record, RejectedRecord)
                    else self._row(topic, record, BATCH_RECORD, timestamp_ms),
                )

    def _row(self, topic: TopicSettings, value: bytes, form: FormatName, timestamp_ms: int) -> Row | Rejected:
        fields = decode(value, form, self._settings.limits.depth_max)
        if isinstance(fields, Rejected):
            return fields
        columns = Columns(new_log_schema(), self._settings.limits.columns_max)
        return row_of(fields, timestamp_ms, Terms(columns, _ANY_TIME, zone(topic.time_zone)))

    def _tell(self, row: Row, coordinates: dict[str, Any]) -> None:
        texts = [str(value) for value in row.values.values()]
        if self._wanted.words and not holds_all("\n".join(texts).lower(), self._wanted.words):
            return
        fields = {name: str(value) for name, value in row.values.items() if name not in (SEVERITY, MESSAGE)}
        severity = row.values.get(SEVERITY)
        data = {
            "timestamp": instant_text(row.timestamp_us),
            "severity": severity,
            "level": level_of(severity),
            "message": row.values.get(MESSAGE),
            "fields": fields,
            "errors": row.errors,
            "overflow": row.overflow,
            **coordinates,
        }
        self.queue.put(TailEvent("record", data, sum(map(len, texts)) + 256))


def holds_all(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text in lower case holds every word."""
    return all(word in text for word in words)


def words_of(query: str) -> tuple[str, ...]:
    """The words of a query, in lower case."""
    return tuple(query.lower().split())
