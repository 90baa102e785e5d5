"""The parking topic: where the messages of a parked table wait, whole and with their coordinates, in the
order in which they were routed.

A parked message is the message as it was (value, key, headers), plus headers from `firn.parked` on, which
names the parking it belongs to. What the topic would not take is put into the warehouse and a header says
where (`claim_check.py`).
"""

from dataclasses import dataclass
from typing import Any, cast
from zlib import crc32

import structlog
from confluent_kafka import Message

from ingest.decode.replay import facts_behind
from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import BODY, ENVELOPE, check_in
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from lake.errors import ProtocolError, UnavailableError
from lake.settings import ChangeSettings, FormatName, IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId, TenantId

PARKED_FOLDER = "parked"  # in the warehouse
PARKED = "firn.parked"  # the first header behind the message's own
FLUSH_LOG_EVERY_S = 10.0
# Where Firn creates the topic. A drain reads a whole partition: of many tables that are parked at once, each
# reads a part of what all have.
PARTITIONS = 8
QUEUE_KBYTES = 64 * 1024
PARKED_BYTES_MAX = 1 << 31  # what was taken has to come back
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message of the parking topic. `record.source` has no meaning: the message has its `source` with
    it."""

    parking: str
    table: TableId
    source: Source
    record: RawRecord


class ParkedTopic:
    """Produces to the parking topic with acks=all, in order; `flush` returns when every message is
    acknowledged."""

    def __init__(self, settings: IngestSettings, storage: AnyStorage, warehouse: str) -> None:
        self._topic = settings.internal_topics.parked
        self._storage = storage
        self._bodies = f"{warehouse.rstrip('/')}/{PARKED_FOLDER}"
        self._producer = AcknowledgedProducer(settings, self._topic, queue_kbytes=QUEUE_KBYTES)

    def send(self, source: Source, record: RawRecord, table: TableId, parking: str) -> None:
        """Queues one message; `flush` makes sure of it."""
        facts = {
            PARKED: parking,
            "firn.tenant": table.tenant.name,
            "firn.stream": table.stream,
            "firn.topic": source.topic,
            "firn.topic_id": source.topic_id,
            "firn.partition": str(source.partition),
            "firn.offset": str(record.offset),
            "firn.timestamp_ms": str(record.timestamp_ms),
            "firn.format": source.form,
            "firn.time_zone": source.time_zone,
        }
        if source.changes is not None:
            facts["firn.changes"] = source.changes.model_dump_json()
            facts["firn.is_alone"] = "yes" if source.is_alone else "no"
        kept = check_in(self._storage, self._bodies, record.value, record.key, record.headers)
        facts |= kept.places
        self._producer.send(
            kept.value,
            kept.key,
            [*kept.headers, *((name, text.encode()) for name, text in facts.items())],
            partition=partition_of(parking),
        )

    def flush(self) -> None:
        """Returns when every message is acknowledged, however long the broker is away. Raises FatalError
        where the topic refuses one."""
        while left := self._producer.flush(FLUSH_LOG_EVERY_S):
            log.warning("parked.not_acknowledged", messages=left, topic=self._topic)
        self._producer.check("a parked message")

    def mark(self) -> int:
        """A mark behind every message so far, for `reached`."""
        return self._producer.mark()

    def reached(self, mark: int, timeout_s: float) -> bool:
        """Whether every message before a mark is acknowledged, at the latest when the time is over. Raises
        FatalError where the topic refuses one."""
        reached = self._producer.reached(mark, timeout_s)
        self._producer.check("a parked message")
        return reached


def read_parked(message: Message, aside: Aside) -> ParkedMessage:
    """A message of the parking topic as it was before it was parked. Raises ProtocolError where something
    else put it there."""
    found = facts_behind(cast("Any", message.headers()) or (), PARKED)
    where = f"message {message.offset()} of topic {message.topic()}"
    if found is None:
        raise ProtocolError(f"{where} was not parked by Firn; nobody else may write to the topic")
    facts, headers = found
    try:
        source = Source(
            facts["firn.topic"],
            facts["firn.topic_id"],
            int(facts["firn.partition"]),
            cast("FormatName", facts["firn.format"]),
            facts["firn.time_zone"],
            ChangeSettings.model_validate_json(facts["firn.changes"]) if "firn.changes" in facts else None,
            facts.get("firn.is_alone") == "yes",
        )
        value = aside.read(facts[BODY], PARKED_BYTES_MAX) if BODY in facts else message.value()
        key, headers = aside.read_envelope(facts[ENVELOPE]) if ENVELOPE in facts else (message.key(), headers)
        record = RawRecord(0, int(facts["firn.offset"]), int(facts["firn.timestamp_ms"]), key, headers, value)
        return ParkedMessage(
            facts[PARKED], TableId(TenantId(facts["firn.tenant"]), facts["firn.stream"]), source, record
        )
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"{where} lacks a header of a parked message ({error!r})") from error


def parking_begins(reader: KafkaReader, topic: str, table: TableId) -> tuple[str, int, int]:
    """Where a table is to be parked from now on: the topic's id, a partition, its end. Raises
    UnavailableError where the topic is not there."""
    partitions = reader.partitions([topic])
    if not partitions:
        raise _missing(topic)
    partition = partitions[crc32(str(table).encode()) % len(partitions)]
    return partition.topic_id, partition.partition, reader.ends([partition])[partition].end


def parking_partition(reader: KafkaReader, topic: str, parking: str) -> KafkaPartition:
    """The one that the messages of a parking are in. Raises UnavailableError where it is not there."""
    found = [
        partition for partition in reader.partitions([topic]) if partition.partition == partition_of(parking)
    ]
    if not found:
        raise _missing(f"{topic} partition {partition_of(parking)}")
    return found[0]


def partition_of(parking: str) -> int:
    """All messages of one parking are in one partition, for their order; its id says which, 0 where it says
    nothing."""
    number, dash, _ = parking.partition("-")
    return int(number) if dash else 0


def _missing(what: str) -> UnavailableError:
    return UnavailableError(f"topic {what} is not there; the topic is created when the node starts")


def parking_of(message: Message) -> str | None:
    """The id of the parking that a message of the topic belongs to, without reading more of it."""
    headers = cast("Any", message.headers()) or ()
    return next((value.decode() for name, value in reversed(headers) if name == PARKED and value), None)
