"""Where a committer reads how far a table is, and what its commits change of that: the marks of the live topics, or those of a backfill."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lake.commit import TableState
from lake.marks import Marks, Range, TopicPartition


@dataclass(frozen=True, slots=True)
class Advance:
    """What a commit says of marks: `marks` are those of the live topics, `properties` others; `writer`: who last moved the live ones."""

    marks: Marks
    writer: str
    properties: Mapping[str, str] = field(default_factory=dict)


class Ledger(Protocol):
    """The marks that flushes are compared with."""

    def marks(self, state: TableState) -> Marks:
        """How far the table is."""

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], writer: str) -> Advance:
        """What a commit of these ranges by this writer sets."""

    def moved_by(self, state: TableState) -> str:
        """Who moved these marks on; empty where nobody is to be named."""


class LiveMarks:
    """The marks of the input topics."""

    def marks(self, state: TableState) -> Marks:
        return state.marks

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], writer: str) -> Advance:
        return Advance(state.marks.advanced(ranges), writer)

    def moved_by(self, state: TableState) -> str:
        return state.writer
