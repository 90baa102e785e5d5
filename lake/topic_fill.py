"""What a backfill has brought into a table of a topic's offsets that no live mark covers: the property
`firn.backfill.topic.<topic id>`.

It is set in the commit of the rows. Live marks say how far ingestion is from where it began (`firn.offsets`,
`[first, next)`); this one says which offsets before that are in the table as well, per partition as stretches
that neither overlap nor touch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from lake.errors import ProtocolError
from lake.marks import Range, TopicPartition

FILL_PREFIX = "firn.backfill.topic."
_VERSION = 1


@dataclass(frozen=True, slots=True)
class TopicFill:
    """Stretches of offsets by partition, each ascending. `topic`: its name, for people."""

    topic: str
    filled: Mapping[int, Sequence[Range]] = field(default_factory=dict)

    def of(self, partition: int) -> Sequence[Range]:
        """The stretches of a partition."""
        return self.filled.get(partition, ())

    def has(self, partition: int, offset: int) -> bool:
        """Whether an offset is in the table."""
        return any(start <= offset < end for start, end in self.of(partition))

    def next(self, partition: int, offset: int) -> int:
        """The first offset at or beyond this one that is not in the table."""
        return next((end for start, end in self.of(partition) if start <= offset < end), offset)

    def joined(self, partition: int, more: Range) -> "TopicFill":
        """With one more stretch."""
        return TopicFill(self.topic, {**self.filled, partition: join([*self.of(partition), more])})

    def to_property(self) -> str:
        """The value of the table property: `{"v":1,"topic":name,"filled":{partition:[[start,end],...]}}`."""
        filled = {
            str(partition): [list(each) for each in ranges]
            for partition, ranges in sorted(self.filled.items())
        }
        return orjson.dumps({"v": _VERSION, "topic": self.topic, "filled": filled}).decode()


def join(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Stretches in order, those that overlap or touch as one, none empty."""
    joined: list[Range] = []
    for start, end in sorted(each for each in ranges if each.start < each.end):
        if joined and start <= joined[-1].end:
            joined[-1] = Range(joined[-1].start, max(end, joined[-1].end))
        else:
            joined.append(Range(start, end))
    return tuple(joined)


def fill_property(topic_id: str) -> str:
    """The property of a topic."""
    return FILL_PREFIX + topic_id


def parse_fill(properties: Mapping[str, str], topic_id: str) -> TopicFill | None:
    """What a table's properties say of a topic; None where they say nothing. Raises ProtocolError."""
    value = properties.get(fill_property(topic_id))
    if value is None:
        return None
    try:
        document = orjson.loads(value)
        if document["v"] != _VERSION:
            raise ProtocolError(
                f"{fill_property(topic_id)} has version {document['v']}, this Firn knows {_VERSION}: run the "
                "newer Firn that wrote it"
            )
        filled = {
            int(p): join(Range(int(start), int(end)) for start, end in ranges)
            for p, ranges in document["filled"].items()
        }
        return TopicFill(str(document["topic"]), filled)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"{fill_property(topic_id)} cannot be read ({value[:200]!r}); set it as it was, or its records "
            "would be read into the table again"
        ) from error


def all_fills(properties: Mapping[str, str]) -> dict[TopicPartition, Sequence[Range]]:
    """The stretches of all topics. Raises ProtocolError."""
    found: dict[TopicPartition, Sequence[Range]] = {}
    for topic_id in [name.removeprefix(FILL_PREFIX) for name in properties if name.startswith(FILL_PREFIX)]:
        if (fill := parse_fill(properties, topic_id)) is not None:
            found |= {
                TopicPartition(topic_id, partition): ranges
                for partition, ranges in fill.filled.items()
                if ranges
            }
    return found


def filled_ends(properties: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The offset after the last one filled, per partition. Raises ProtocolError."""
    return {topic_partition: ranges[-1].end for topic_partition, ranges in all_fills(properties).items()}
