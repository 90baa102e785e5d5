"""How far the tables are behind Kafka, told by the group's offsets alone: also when no ingester runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader, Stored
from lake.clock import Clock, moment_of
from lake.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition. `stored` None: the group has no offset for it yet. `oldest`: the Kafka timestamp of the
    first record not known to be durable."""

    partition: KafkaPartition
    stored: int | None
    end: int
    lag_records: int
    oldest: datetime | None
    recreated: bool


@dataclass(frozen=True, slots=True)
class GroupLag:
    """All input topics. `complete_until`: every record with an older Kafka timestamp is in its table, or a
    dead letter, or parked."""

    partitions: Sequence[PartitionLag]
    missing_topics: Sequence[str]
    complete_until: datetime

    @property
    def lag_records(self) -> int:
        """Offsets between the group's and the ends; control records of transactions among them."""
        return sum(each.lag_records for each in self.partitions)


class LagMeter:
    """Measures, and remembers the oldest waiting record of each partition while the group's offset stands.
    One thread at a time."""

    def __init__(self, settings: IngestSettings, reader: KafkaReader, clock: Clock) -> None:
        self._topics = [topic.name for topic in settings.with_own_topics().topics]
        # Nobody misses these before the first ingester has made them.
        self._optional = (settings.internal_topics.replay, settings.internal_topics.dead_letters)
        self._reader = reader
        self._clock = clock
        self._oldest: dict[tuple[KafkaPartition, int], datetime] = {}

    def measure(self) -> GroupLag:
        """The lag now. Raises UnavailableError where Kafka does not answer."""
        now = self._clock.now()  # before the ends are asked for: what comes later is not in them
        partitions = self._reader.partitions(self._topics)
        stored, ends = self._reader.stored(partitions), self._reader.ends(partitions)
        places = {
            partition: position_of_group(partition, stored.get(partition), ends[partition])
            for partition in partitions
        }
        oldest = self._oldest_waiting(
            {partition: at for partition, at in places.items() if at < ends[partition].end}
        )
        found = {partition.topic for partition in partitions}
        lags = [
            _lag(partition, stored.get(partition), ends[partition], places[partition], oldest.get(partition))
            for partition in partitions
        ]
        missing = [topic for topic in self._topics if topic not in found and topic not in self._optional]
        return GroupLag(lags, missing, min([now, *oldest.values()]))

    def _oldest_waiting(self, waiting: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, datetime]:
        """The timestamps of the first records at or beyond offsets; nothing for partitions where only control
        records or aborted ones follow."""
        self._oldest = {
            known: moment for known, moment in self._oldest.items() if waiting.get(known[0]) == known[1]
        }
        unknown = {partition: at for partition, at in waiting.items() if (partition, at) not in self._oldest}
        for partition, message in (self._reader.first(unknown) if unknown else {}).items():
            self._oldest[partition, unknown[partition]] = moment_of(message.timestamp()[1])
        return {
            partition: self._oldest[partition, at]
            for partition, at in waiting.items()
            if (partition, at) in self._oldest
        }


def position_of_group(partition: KafkaPartition, stored: Stored | None, ends: Ends) -> int:
    """From where the group goes on: a partition without an offset of this topic's id is read from its
    start."""
    return (
        ends.start if stored is None or _is_of_another(partition, stored) else max(stored.offset, ends.start)
    )


def _is_of_another(partition: KafkaPartition, stored: Stored) -> bool:
    return bool(stored.topic_id) and stored.topic_id != partition.topic_id


def _lag(
    partition: KafkaPartition, stored: Stored | None, ends: Ends, place: int, oldest: datetime | None
) -> PartitionLag:
    recreated = stored is not None and _is_of_another(partition, stored)
    lag = ends.end - place if oldest is not None else 0
    return PartitionLag(
        partition, None if stored is None or recreated else stored.offset, ends.end, lag, oldest, recreated
    )
