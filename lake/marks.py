"""Marks: how far a table has absorbed each topic-partition, and what that says about a flush.

The mark of a table for a topic-partition is the next offset it has not absorbed. Marks are the table property `firn.offsets`,
set in the same commit as the data; every snapshot of ours repeats them in its summary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import orjson

from lake.errors import ProtocolError

MARKS_PROPERTY = "firn.offsets"
_VERSION = 1


class TopicPartition(NamedTuple):
    """A partition of a topic by the topic's id, which changes when a topic is re-created under its old name."""

    topic_id: str
    partition: int


class Range(NamedTuple):
    """Offsets `[start, end)` of one topic-partition that a flush covers, also where it holds no record of them."""

    start: int
    end: int


class Verdict(Enum):
    """What the marks say about a flush, before every attempt to commit it."""

    COMMIT = "commit"  # every mark stands where the flush starts
    ABSORBED = "absorbed"  # every mark is at or beyond where the flush ends: it is already there
    AHEAD = "ahead"  # some marks are inside or beyond their range: commit only the rows at or beyond the marks
    BEHIND = "behind"  # some mark is before the start: the table was moved back, and a person has to say what to do


@dataclass(frozen=True, slots=True)
class Marks:
    """Immutable marks of one table."""

    offsets: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> int:
        """The next offset the table has not absorbed; 0 where it has seen nothing of the partition."""
        return self.offsets.get(partition, 0)

    def compare(self, ranges: Mapping[TopicPartition, Range]) -> Verdict:
        """Says what to do with a flush of these ranges."""
        behind = ahead = False
        absorbed = True
        for partition, (start, end) in ranges.items():
            mark = self.of(partition)
            behind |= mark < start
            ahead |= mark > start
            absorbed &= mark >= end
        if behind:
            return Verdict.BEHIND
        if absorbed:
            return Verdict.ABSORBED
        return Verdict.AHEAD if ahead else Verdict.COMMIT

    def advanced(self, ranges: Mapping[TopicPartition, Range]) -> "Marks":
        """Marks after a commit of these ranges; no mark goes back."""
        return Marks({**self.offsets, **{partition: max(self.of(partition), r.end) for partition, r in ranges.items()}})

    def exceeds(self, other: "Marks") -> bool:
        """Whether some partition's mark is beyond that of `other`."""
        return any(offset > other.of(partition) for partition, offset in self.offsets.items())

    def joined(self, other: "Marks") -> "Marks":
        """The higher mark of each partition."""
        return Marks({partition: max(self.of(partition), other.of(partition)) for partition in {**self.offsets, **other.offsets}})

    def to_property(self) -> str:
        """The value of the table property: `{"v":1,"offsets":{topic id:{partition:offset}}}`."""
        topics: dict[str, dict[str, int]] = {}
        for (topic_id, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic_id, {})[str(partition)] = offset
        return orjson.dumps({"v": _VERSION, "offsets": topics}).decode()


NO_MARKS = Marks({})


def parse_marks(value: str | None) -> Marks:
    """Reads the table property; None is a table that has absorbed nothing. Raises ProtocolError for anything unreadable."""
    if value is None:
        return NO_MARKS
    try:
        document = orjson.loads(value)
        if document["v"] != _VERSION:
            raise ProtocolError(f"{MARKS_PROPERTY} has version {document['v']}, this Firn knows {_VERSION}: run the newer Firn that wrote it")
        return Marks({TopicPartition(topic, int(p)): int(offset) for topic, ps in document["offsets"].items() for p, offset in ps.items()})
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"{MARKS_PROPERTY} cannot be read ({value[:200]!r}); restore it from the last snapshot's summary") from error
