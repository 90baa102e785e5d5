"""Where a committer reads how far a table is, and what its commits change of that: the marks of the live
topics, or those of a backfill."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lake.commit import TableState
from lake.marks import MARKS_PROPERTY, Marks, Range, TopicPartition
from lake.topic_fill import filled_ends


@dataclass(frozen=True, slots=True)
class Advance:
    """What a commit says of marks: `marks` are those of the live topics, `properties` others; `writer`: who
    last moved the live ones."""

    marks: Marks
    writer: str
    properties: Mapping[str, str] = field(default_factory=dict)


def beside_live(state: TableState, properties: Mapping[str, str]) -> Advance:
    """A commit of a backfill: live marks are repeated as they are, with whoever moved them last, so nobody
    takes it for a second ingester."""
    # Without the property the catalog would not notice that the table moves back.
    new = {} if MARKS_PROPERTY in state.properties else {MARKS_PROPERTY: state.marks.to_property()}
    return Advance(state.marks, state.writer, {**properties, **new})


class Ledger(Protocol):
    """The marks that flushes are compared with."""

    def marks(self, state: TableState) -> Marks:
        """How far the table is."""

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], writer: str) -> Advance:
        """What a commit of these ranges by this writer sets."""

    def moved_by(self, state: TableState) -> str:
        """Who moved these marks on; empty where nobody is to be named."""


@dataclass
class LiveMarks:
    """The marks of the input topics. `firsts`: where the ingestion of partitions began.

    A partition that the table has no mark for, but a backfill has filled up to there, counts as committed so
    far: what the group began behind is not its own to write, also where somebody sets its offsets back.
    """

    firsts: dict[TopicPartition, int] = field(default_factory=dict)

    def marks(self, state: TableState) -> Marks:
        filled = filled_ends(state.properties)
        return state.marks if not filled else Marks({**filled, **state.marks.offsets}, state.marks.firsts)

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], writer: str) -> Advance:
        return Advance(state.marks.advanced(ranges, self.firsts), writer)

    def moved_by(self, state: TableState) -> str:
        return state.writer
