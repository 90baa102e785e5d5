"""Records that their tenant's limit leaves no room for: which they are, as the table itself says.

A commit sets the table property `firn.over-limit` with the marks: stretches of offsets, by topic-partition,
whose records of this table are dead letters and no rows. The dead letters are sent after that. So whoever
reads these records again, after a crash between the two, finds them below the marks, and that they are not
rows: a record is in one place, whatever the clock or the limit says by then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from lake.errors import Reason, Rejected
from lake.marks import TopicPartition

PROPERTY = "firn.over-limit"
# Stretches of one topic-partition in one commit; behind so many all is over the limit.
STRETCHES_MAX = 1_000
OFFSETS_MAX = 2**63
Stretch = tuple[int, int]
Stretches = Mapping[TopicPartition, Sequence[Stretch]]
SENT_BEFORE = Rejected(Reason.OVER_LIMIT, "its tenant had sent more than its limit a second leaves room for")


def parse_stretches(text: str) -> dict[TopicPartition, list[Stretch]]:
    """What a table says; nothing where that is not as `spell_stretches` writes it: whoever may write to a
    table may write its properties."""
    try:
        found = {}
        for name, stretches in orjson.loads(text or "{}").items():
            topic_id, _, partition = name.rpartition("/")
            found[TopicPartition(topic_id, int(partition))] = [_stretch(*each) for each in stretches]
    except (AttributeError, TypeError, ValueError, OverflowError):
        return {}
    return found


def _stretch(start: int, end: int) -> Stretch:
    if not 0 <= start < end < OFFSETS_MAX:
        raise ValueError(f"{start} to {end} is no stretch of offsets")
    return int(start), int(end)


def spell_stretches(before: str, several: Iterable[Stretches]) -> str | None:
    """The property after a commit of flushes with these; None where it stays as it is. Of a topic-partition
    only the newest are kept: dead letters of earlier ones were acknowledged before."""
    new = {place: stretches for each in several for place, stretches in each.items()}
    if not new:
        return None
    told = {**parse_stretches(before), **new}
    return orjson.dumps(
        {f"{place.topic_id}/{place.partition}": stretches for place, stretches in told.items()}
    ).decode()


def are_in(offsets: Any, stretches: Sequence[Stretch]) -> Any:
    """Which of these offsets (int64 numpy array) lie in stretches, which ascend."""
    if not stretches:
        return np.zeros(len(offsets), bool)
    starts, ends = np.array(stretches, np.int64).T
    at = np.searchsorted(starts, offsets, "right") - 1
    return (at >= 0) & (offsets < ends[at])


def is_over(text: str, place: TopicPartition, offset: int) -> bool:
    """Whether a table says of a record that its tenant's limit left no room for it."""
    return bool(text) and any(at <= offset < end for at, end in parse_stretches(text).get(place, ()))


def first_over(text: str, place: TopicPartition, mark: int) -> int:
    """From where on records may be no rows of the table: its mark, or before it those over the limit, whose
    dead letters may not have been sent."""
    return min([mark, *(at for at, _ in parse_stretches(text).get(place, ()))])


@dataclass(slots=True)
class OverLimit:
    """Of one buffer, by source: the stretches that are over the limit, decided once, up to which offset that
    is, and up to which offset dead letters of such records were sent."""

    why: Rejected = SENT_BEFORE
    stretches: dict[int, list[Stretch]] = field(default_factory=dict)
    decided: dict[int, int] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)

    def decide(self, source: int, offsets: Any, over: Any) -> None:
        """Takes note of what is over the limit (numpy array of bool) of further offsets, which ascend."""
        edges = np.flatnonzero(np.diff(over, prepend=False, append=False)).reshape(-1, 2)
        known = self.stretches.setdefault(source, [])
        for first, end in edges.tolist():
            start, stop = int(offsets[first]), int(offsets[end - 1]) + 1
            if known and (len(known) >= STRETCHES_MAX or known[-1][1] == start):
                known[-1] = known[-1][0], stop
            else:
                known.append((start, stop))
        self.decided[source] = int(offsets[-1]) + 1

    def places(self, numbers: Any, offsets: Any) -> Any:
        """Which messages are over it, by their sources and offsets, as a numpy array of bool; None: none."""
        found = np.zeros(len(offsets), bool)
        for source, stretches in self.stretches.items():
            own = numbers == source
            found[own] = are_in(offsets[own], stretches)
        return found if found.any() else None
