"""Marks: how far a table has committed each topic-partition, and what that says about a flush.

The mark of a table for a topic-partition is the next offset it has not committed. Marks are the table
property `firn.offsets`, set in the same commit as the data; every snapshot of ours repeats them in its
summary.

Beside it stands where the ingestion began that has set it: a mark covers `[first, next)`. Where no first is
said, nobody knows, and it counts as 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import orjson

from lake.errors import ProtocolError
from lake.pickling import pickled_by_init

MARKS_PROPERTY = "firn.offsets"
_VERSION = 1


class TopicPartition(NamedTuple):
    """A partition of a topic by the topic's id, which changes when a topic is re-created under its old
    name."""

    topic_id: str
    partition: int


class Range(NamedTuple):
    """Offsets `[start, end)` of one topic-partition that a flush covers, also where it holds no record of
    them."""

    start: int
    end: int


class Verdict(Enum):
    """What the marks say about a flush, before every attempt to commit it."""

    COMMIT = "commit"  # every mark stands where the flush starts
    COMMITTED = "committed"  # every mark is at or beyond where the flush ends: it is already there
    AHEAD = (
        "ahead"  # some marks are inside or beyond their range: commit only the rows at or beyond the marks
    )
    # some mark is before the start: the table was moved back, and a person has to say what to do
    BEHIND = "behind"


@pickled_by_init
@dataclass(frozen=True, slots=True)
class Marks:
    """Immutable marks of one table. `firsts`: where the ingestion began, of partitions of which that is known
    and is not 0."""

    offsets: Mapping[TopicPartition, int]
    firsts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> int:
        """The next offset the table has not committed; 0 where it has seen nothing of the partition."""
        return self.offsets.get(partition, 0)

    def compare(self, ranges: Mapping[TopicPartition, Range]) -> Verdict:
        """Says what to do with a flush of these ranges."""
        behind = ahead = False
        committed = True
        for partition, (start, end) in ranges.items():
            mark = self.of(partition)
            behind |= mark < start
            ahead |= mark > start
            committed &= mark >= end
        if behind:
            return Verdict.BEHIND
        if committed:
            return Verdict.COMMITTED
        return Verdict.AHEAD if ahead else Verdict.COMMIT

    def covered(self, partition: TopicPartition) -> Range | None:
        """The offsets that the mark of a partition covers; None where there is no mark."""
        end = self.offsets.get(partition)
        return None if end is None else Range(min(self.firsts.get(partition, 0), end), end)

    def advanced(
        self, ranges: Mapping[TopicPartition, Range], firsts: Mapping[TopicPartition, int] | None = None
    ) -> "Marks":
        """Marks after a commit of these ranges; no mark goes back. `firsts`: where ingestion began, for
        partitions that have no mark yet."""
        offsets = {
            **self.offsets,
            **{partition: max(self.of(partition), r.end) for partition, r in ranges.items()},
        }
        begun = {p: firsts[p] for p in ranges if p not in self.offsets and firsts.get(p)} if firsts else {}
        return Marks(offsets, {**self.firsts, **begun})

    def exceeds(self, other: "Marks") -> bool:
        """Whether some partition's mark is beyond that of `other`."""
        return any(offset > other.of(partition) for partition, offset in self.offsets.items())

    def joined(self, other: "Marks") -> "Marks":
        """The higher mark of each partition."""
        offsets = {
            partition: max(self.of(partition), other.of(partition))
            for partition in {**self.offsets, **other.offsets}
        }
        return Marks(offsets, {**other.firsts, **self.firsts})

    def to_property(self) -> str:
        """The value of the table property: `{"v":1,"offsets":{topic id:{partition:next}},"firsts":{topic
        id:{partition:first}}}`, without `firsts` where there are none."""
        document = {"v": _VERSION, "offsets": by_topic(self.offsets)}
        return orjson.dumps(document | ({"firsts": by_topic(self.firsts)} if self.firsts else {})).decode()


NO_MARKS = Marks({})


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As JSON has it: topic id -> partition -> offset."""
    topics: dict[str, dict[str, int]] = {}
    for (topic_id, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic_id, {})[str(partition)] = offset
    return topics


def _by_partition(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(p)): int(offset) for topic, ps in topics.items() for p, offset in ps.items()
    }


def parse_marks(value: str | None) -> Marks:
    """Reads the table property; None is a table that has committed nothing. Raises ProtocolError for anything
    unreadable."""
    if value is None:
        return NO_MARKS
    try:
        document = orjson.loads(value)
        if document["v"] != _VERSION:
            raise ProtocolError(
                f"{MARKS_PROPERTY} has version {document['v']}, this Firn knows {_VERSION}: run the newer "
                "Firn that wrote it"
            )
        return Marks(_by_partition(document["offsets"]), _by_partition(document.get("firsts", {})))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"{MARKS_PROPERTY} cannot be read ({value[:200]!r}); restore it from the last snapshot's summary"
        ) from error
