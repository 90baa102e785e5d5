"""The group's offsets set by somebody else than the workers that read: at the first start, after a topic was
re-created, after the catalog went back."""

from collections.abc import Mapping
from contextlib import closing

import structlog
from confluent_kafka import KafkaException

from ingest.kafka.committed_offsets import group_forbidden
from ingest.kafka.kafka_client import reading_consumer
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, Stored
from ingest.kafka.kafka_trouble import Right, unavailable
from lake.settings import IngestSettings

LATEST = "latest"
log = structlog.get_logger()


def store_offsets(settings: IngestSettings, offsets: Mapping[KafkaPartition, Stored]) -> None:
    """Stores offsets for the group. Nobody may be reading meanwhile. Raises UnavailableError."""
    with closing(reading_consumer(settings, settings.kafka.group)) as consumer:
        try:
            consumer.commit(
                offsets=[partition.at(each.offset, each.metadata) for partition, each in offsets.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            raise unavailable(
                settings,
                "did not store the offsets",
                group_forbidden(consumer) or error,
                Right("READ", f"group {settings.kafka.group}, and the topics"),
            ) from error


def store_first_offsets(settings: IngestSettings, reader: KafkaReader) -> None:
    """Has the group begin at the end of every topic whose setting `start` says so, and of which it has read
    nothing yet. Raises UnavailableError.

    Stored before anything is read, for after a restart the end would be elsewhere. Partitions and topics that
    appear later are read from their starts: they came to be after the group had begun.
    """
    latest = [topic.name for topic in settings.topics if topic.start == LATEST]
    if not latest:
        return
    partitions = reader.partitions(latest)
    known = {partition.topic for partition in reader.stored(partitions)}
    new = [partition for partition in partitions if partition.topic not in known]
    if new:
        ends = reader.ends(new)
        store_offsets(
            settings, {each: Stored(ends[each].end, each.topic_id, first=ends[each].end) for each in new}
        )
        log.info(
            "group.begins",
            topics=sorted({each.topic for each in new}),
            offsets={f"{p.topic}-{p.partition}": end.end for p, end in ends.items()},
        )
