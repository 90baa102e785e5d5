"""What the driver of the Spark engine and a task say to each other: the order it begins with, what it asks on
the way, the result it ends with.

    task asks        the driver answers
    FetchTaskSpec    TaskSpec: ranges, tables
    AskRouting       RoutingDecisions: where the records of tables go now
    AskRetention     TableRetention, as a worker is told it by the catalog
    GrowTables       Grown, as a worker gets it from the committer

The result goes back through Spark, so that of a task that is tried twice exactly one counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.model.link import Counts, TableView, WrittenFlush
from ingest.model.source import Source
from ingest.model.trouble import Trouble
from ingest.node.engines.spark_plan import OffsetRange
from lake.errors import Rejected
from lake.settings import IngestSettings, StorageSettings
from lake.tenant import TableId

Firsts = Mapping[TableId, Mapping[int, int]]  # the lowest offset of a table's records per source


# The task number of those that write what others have handed on.
WRITING = -1


@dataclass(frozen=True, slots=True)
class FetchTaskSpec:
    """A task begins: its number within the job, or WRITING."""

    job: int
    task: int


@dataclass(frozen=True)
class TaskSetup:
    """What all tasks of a run need, secrets among it: it goes through Spark, which can encrypt. `address`,
    `key`: of the driver's RPC server. `core`: the name of the driver's library of the native core, which
    Spark brings to executors; empty: it does without."""

    settings: IngestSettings
    storage: StorageSettings
    warehouse: str
    address: tuple[str, int]
    key: bytes
    core: str = ""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """`sources`: by number. `skipped`: tables whose records are left for later. `only`: of all records those
    of these tables, from these offsets on; None: everything. `hands_on`: tables of which the task has little
    are handed on. The ranges of a task that writes are those of the whole job.
    """

    sources: Sequence[Source]
    ranges: Sequence[OffsetRange]
    skipped: frozenset[TableId]
    only: Firsts | None
    hands_on: bool = False


@dataclass(frozen=True, slots=True)
class AskRouting:
    """A task has records of these tables."""

    job: int
    tables: Sequence[TableId]


@dataclass(frozen=True, slots=True)
class AskRetention:
    """A task has old records of this table; see `Retentions`."""

    table: TableId
    said: Mapping[str, str]
    anew: bool


@dataclass(frozen=True, slots=True)
class RoutingDecisions:
    """Where records go: into the table as it is, to the parking topic under an id, to the dead letters. Those
    of tables in none of these wait."""

    views: Mapping[TableId, TableView] = field(default_factory=dict)
    parked: Mapping[TableId, str] = field(default_factory=dict)
    dead_lettered: Mapping[TableId, Rejected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobOver:
    """The task is of a job that has ended: somebody else's result counted."""


@dataclass(frozen=True, slots=True)
class TaskFlush:
    """One task's part of a table's flush, durable but for the commit. `first_offsets`: its lowest per
    source."""

    flush: WrittenFlush
    first_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """`read`: the ranges as far as they were read; none of a task that writes. `left`: tables whose records
    were not written, with their lowest offsets. `stuck`: of these, those that could not be. `record_bytes`:
    how many records of a source were measured, and their bytes. `small`: tables of which the task had little,
    and the bytes of their records. `without_core`: why the task could not use the core that it was given.
    `refused`: what a person has to mend; then nothing else counts.
    """

    read: Sequence[OffsetRange] = ()
    flushes: Sequence[TaskFlush] = ()
    left: Firsts = field(default_factory=dict)
    stuck: Sequence[tuple[TableId, Trouble]] = ()
    counts: Counts = field(default_factory=Counts)
    record_bytes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    small: Sequence[TableId] = ()
    small_bytes: int = 0
    seconds: float = 0.0
    without_core: str | None = None
    refused: str | None = None
