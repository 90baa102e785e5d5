"""Which offsets of a topic a backfill reads: what was asked for, as far as Kafka has it and it lies before
what live ingestion will read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, Stored
from lake.errors import NotFoundError, RefusedError, SettingsError
from lake.settings import IngestSettings

ALL = -1
Bound = Mapping[int, int]  # offset by partition; under ALL for those that are not named


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: offsets `[from_offsets, to_offsets)`, or Kafka timestamps `[from_ms, to_ms)`;
    without any of them what the group has left out. `partitions`: only these; empty: all."""

    from_offsets: Bound = field(default_factory=dict)
    to_offsets: Bound = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None
    partitions: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets `[start, end)` of a partition. `begun`: where the group began to read it, which is where it
    ends for tables that have no mark."""

    partition: KafkaPartition
    start: int
    end: int
    begun: int


def plan_ranges(
    settings: IngestSettings, topic: str, reader: KafkaReader, wanted: Wanted
) -> list[TopicRange]:
    """The ranges to read, none of them empty. Raises NotFoundError, RefusedError where nobody knows what is
    left out, SettingsError, UnavailableError."""
    partitions = reader.partitions([topic])
    if not partitions:
        raise NotFoundError(
            f"Kafka at {settings.kafka.bootstrap_servers} has no topic {topic}; create it first"
        )
    unknown = (
        {*wanted.partitions, *wanted.from_offsets, *wanted.to_offsets}
        - {ALL}
        - {each.partition for each in partitions}
    )
    if unknown:
        raise SettingsError(
            f"topic {topic} has no partition {min(unknown)}; it has {len(partitions)}, from 0"
        )
    stored, ends = _stored(settings, topic, reader, partitions), reader.ends(partitions)
    starts = _offsets(reader, partitions, wanted.from_offsets, wanted.from_ms)
    stops = _offsets(reader, partitions, wanted.to_offsets, wanted.to_ms)
    ranges = []
    for each in partitions:
        group = stored.get(each, Stored(0, each.topic_id))  # not read yet: it will be, from its start
        start = max(ends[each].start, starts.get(each, 0))
        end = min(stops.get(each, group.first), group.offset)
        if start < end and (not wanted.partitions or each.partition in wanted.partitions):
            ranges.append(TopicRange(each, start, end, group.first))
    return ranges


def _stored(
    settings: IngestSettings, topic: str, reader: KafkaReader, partitions: Sequence[KafkaPartition]
) -> Mapping[KafkaPartition, Stored]:
    stored = reader.stored(partitions)
    if not stored:
        raise RefusedError(
            f"group {settings.kafka.group} has not begun to read topic {topic}, so nobody knows what it "
            "will leave out. Start `python -m ingest run` first; "
            'with start = "latest" in the settings of the topic it begins at the end, and this verb brings '
            "in what came before"
        )
    if any(each.topic_id not in ("", partition.topic_id) for partition, each in stored.items()):
        raise RefusedError(
            f"topic {topic} was re-created since group {settings.kafka.group} has read it; run `python -m "
            f"ingest reset-topic {topic}` first"
        )
    return stored


def _offsets(
    reader: KafkaReader, partitions: Sequence[KafkaPartition], offsets: Bound, time_ms: int | None
) -> Mapping[KafkaPartition, int]:
    """Where a bound lies, for partitions that it says something of."""
    if time_ms is not None:
        return reader.from_time(partitions, time_ms)
    found = {each: offsets.get(each.partition, offsets.get(ALL)) for each in partitions}
    return {each: offset for each, offset in found.items() if offset is not None}
