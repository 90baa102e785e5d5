"""The input topics as the driver of the Spark engine has them: it knows how far they go and stores the
group's offsets; it reads nothing itself."""

from collections.abc import Mapping

from ingest.kafka.consumer import InputTopics
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.model.source import Source
from ingest.node.engines.spark_plan import Lag
from lake.settings import IngestSettings

# What a record takes before one of its partition was read.
RECORD_BYTES_UNKNOWN = 1_024.0
# How much of the average the newest records make up.
NEWEST_SHARE = 0.5


class PlannedTopics(InputTopics):
    """All partitions of the input topics."""

    def __init__(self, settings: IngestSettings) -> None:
        super().__init__(settings)
        self._reader = KafkaReader(settings)
        self._ends: dict[int, int] = {}
        self._record_bytes: dict[int, float] = {}

    def _begin(self, starts: Mapping[Source, int]) -> None:
        """Tasks read."""

    def look(self) -> None:
        """Finds out where the partitions end now. Raises UnavailableError."""
        numbers = {
            KafkaPartition(s.topic, s.topic_id, s.partition): number
            for number, s in enumerate(self.assignment.sources)
        }
        self._ends = {numbers[partition]: ends.end for partition, ends in self._reader.ends(numbers).items()}

    def end(self, number: int) -> int:
        return max(self._ends.get(number, 0), self.positions[number])

    def lag(self, number: int, start: int) -> Lag:
        """What waits of a partition from an offset on."""
        return self.piece(number, start, max(start, self.end(number)))

    def piece(self, number: int, start: int, end: int) -> Lag:
        """Offsets of a partition, with what its records take."""
        return Lag(
            number,
            start,
            end,
            self._record_bytes.get(number, RECORD_BYTES_UNKNOWN),
            number in self._record_bytes,
        )

    def note(self, number: int, records: int, size_bytes: int) -> None:
        """What records that were read have taken."""
        if records:
            newest = size_bytes / records
            self._record_bytes[number] = newest + (self._record_bytes.get(number, newest) - newest) * (
                1 - NEWEST_SHARE
            )
