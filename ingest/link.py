"""What the worker processes and the committer of a node say to each other.

A worker asks (`OpenTables`, `GrowTables`) and waits for the answer; it hands over written flushes (`Submit`) and goes on, until
`Settled` says of each what became of it. Everything is picklable and goes through one pipe per worker, in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import orjson

from lake.data_file import DataFile
from lake.log_schema import LogSchema
from lake.marks import Marks, Range, TopicPartition
from lake.tenant import TableId


@dataclass(frozen=True, slots=True)
class TableView:
    """What a worker has to know of a table to write for it; `schema` is its JSON, so that equal ones share one object."""

    uuid: str
    location: str
    schema: bytes
    marks: Marks

    @property
    def log_schema(self) -> LogSchema:
        return shared_schema(self.schema)


@lru_cache(maxsize=4_096)
def shared_schema(json: bytes) -> LogSchema:
    """One object for all tables with the same schema."""
    return LogSchema(orjson.loads(json))


@dataclass(frozen=True, slots=True)
class WrittenFlush:
    """A flush whose files are synced and whose dead letters are acknowledged. `new`: columns its files have that the table did not, with their ids."""

    table: TableId
    uuid: str
    ranges: Mapping[TopicPartition, Range]
    files: Sequence[DataFile]
    rows: int
    new: Mapping[str, int]


class Outcome(Enum):
    """What became of a flush."""

    DONE = "done"  # committed, or found to be committed already
    REDO = "redo"  # the table has changed: write it again for the view that comes with this


@dataclass(frozen=True, slots=True)
class Counts:
    """What a worker has counted since its last report."""

    delivered: Mapping[str, int] = field(default_factory=dict)  # by topic
    dead: Mapping[str, int] = field(default_factory=dict)  # by reason
    absorbed: int = 0
    rows_with_errors: int = 0
    expired: Mapping[str, int] = field(default_factory=dict)  # by topic


# ---- worker -> committer


@dataclass(frozen=True, slots=True)
class OpenTables:
    """Answered by `Opened`."""

    tables: Sequence[TableId]


@dataclass(frozen=True, slots=True)
class GrowTables:
    """New columns by table, column name -> original path. Answered by `Grown`."""

    names: Mapping[TableId, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Submit:
    """Flushes to commit."""

    flushes: Sequence[WrittenFlush]


@dataclass(frozen=True, slots=True)
class Partition:
    """How far a worker is with one topic-partition: offsets routed, stored in the group, and at its end."""

    topic: str
    partition: int
    routed: int
    stored: int | None
    end: int


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's state, once a second."""

    partitions: Sequence[Partition]
    buffered_bytes: int
    in_flight_bytes: int
    buffered_tables: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker ends because of this; the sentence is for a person."""

    sentence: str
    fatal: bool


# ---- committer -> worker


@dataclass(frozen=True, slots=True)
class Opened:
    """The views asked for."""

    views: Mapping[TableId, TableView]


@dataclass(frozen=True, slots=True)
class Grown:
    """Schemas (JSON) that have the columns asked for."""

    schemas: Mapping[TableId, bytes]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of flushes, each with the table's view now."""

    outcomes: Sequence[tuple[TableId, Outcome, TableView]]


@dataclass(frozen=True, slots=True)
class Stop:
    """Flush everything and leave."""


FromWorker = OpenTables | GrowTables | Submit | Report | Failed
ToWorker = Opened | Grown | Settled | Stop
