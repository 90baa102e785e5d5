"""How far each partition of the input topics is in: below that offset every record is in its table, a dead
dead letter, or parked.

Told by the group's offsets, as the lag is, but never out of a memory: whoever erases compares it with what
had reached Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.kafka.group_lag import position_of_group
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from lake.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class Durable:
    """One partition. `offset`: every record below it is where it stays. `reached`: the offset after the last
    record that reached Kafka."""

    partition: KafkaPartition
    offset: int
    reached: int


def durable_offsets(settings: IngestSettings, reader: KafkaReader) -> Sequence[Durable]:
    """Of all input topics, the replay topic among them. Raises UnavailableError where Kafka does not
    answer."""
    partitions = reader.partitions([topic.name for topic in settings.with_own_topics().topics])
    reached = reader.high_watermarks(
        partitions
    )  # before the group's offsets: what comes later is no part of it
    stored, ends = reader.stored(partitions), reader.ends(partitions)
    places = {
        partition: position_of_group(partition, stored.get(partition), ends[partition])
        for partition in partitions
    }
    waiting = {partition: at for partition, at in places.items() if at < ends[partition].end}
    first = reader.first(waiting) if waiting else {}
    # Where only control records and aborted ones follow, everything is in up to the end.
    offsets = {p: first[p].offset() if p in first else max(places[p], ends[p].end) for p in partitions}
    return [Durable(partition, int(offsets[partition]), reached[partition]) for partition in partitions]
