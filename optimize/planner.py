"""What is to be done for one table, decided from facts alone: no clock, no storage, no catalog."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.log_schema import TIMESTAMP, LogSchema
from lake.settings import OptimizeSettings
from optimize.merged_file import is_as_ingested, merged_at_ms
from optimize.table_view import Partition

MS_PER_HOUR = 3_600_000


class Standing(StrEnum):
    """How a partition stands."""

    DUE = "due"
    UP_TO_DATE = "up to date"
    OPEN_HOUR = "open hour"
    COOLING_DOWN = "cooling down after its last merge"
    EQUALITY_DELETES = "foreign writer with equality deletes"
    ROW_IDS = "format version 3: rows keep their ids"


class Engine(StrEnum):
    """Who merges a partition: PyArrow inside Spark tasks, or Spark's own rewrite_data_files."""

    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Merge:
    """A partition to merge; each group of files becomes one file. Spark's rewrite makes its own groups of all
    `files`."""

    hour: int
    engine: Engine
    groups: tuple[tuple[DataFile, ...], ...]
    has_deletes: bool = False

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for group in self.groups for file in group)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def saved_files(self) -> int:
        return len(self.files) - len(self.groups)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """How one partition stands, and its merge where it is due. `due_at_ms`: when waiting ends, where it is
    known."""

    hour: int
    standing: Standing
    files: int
    size_bytes: int
    merge: Merge | None = None
    due_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What is due for one table."""

    table: TableName
    tenant: str
    partitions: tuple[PartitionPlan, ...] = ()
    expire: tuple[int, ...] = ()
    merge_manifests: bool = False
    target_bytes: int = 0
    never_optimized: bool = False

    @property
    def merges(self) -> tuple[Merge, ...]:
        return tuple(partition.merge for partition in self.partitions if partition.merge is not None)

    @property
    def is_due(self) -> bool:
        return bool(self.merges or self.expire or self.merge_manifests)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the planner has to know of a table besides its partitions. `resumes`: an earlier round left work
    undone, which then does not rest."""

    table: TableName
    tenant: str
    timestamp_id: int
    data_manifests: int
    expirable: tuple[int, ...]
    has_been_replaced: bool
    resumes: bool = False
    keeps_row_ids: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


def timestamp_id(schema: LogSchema) -> int:
    """The field id of the event time, by which files are put in order."""
    return schema.by_name[TIMESTAMP].id


def plan_table(
    facts: TableFacts, partitions: Iterable[Partition], settings: OptimizeSettings, now_ms: int
) -> TablePlan:
    """The plan of one table."""
    target = target_bytes(facts.properties, settings)
    plans = tuple(
        _plan_partition(p, facts, target, settings, now_ms) for p in sorted(partitions, key=lambda p: p.hour)
    )
    # A commit that replaces files gathers the manifests it touches anyway.
    merge_manifests = facts.data_manifests > settings.merge.manifests_max
    never = not facts.has_been_replaced and any(p.merge for p in plans)
    return TablePlan(facts.table, facts.tenant, plans, facts.expirable, merge_manifests, target, never)


def target_bytes(properties: Mapping[str, str], settings: OptimizeSettings) -> int:
    """The table's own target size where it is a number, else the setting's."""
    value = properties.get("write.target-file-size-bytes", "")
    return int(value) if value.isdecimal() and int(value) > 0 else settings.merge.target_file_bytes


def _plan_partition(
    partition: Partition, facts: TableFacts, target: int, settings: OptimizeSettings, now_ms: int
) -> PartitionPlan:
    files, size = len(partition.files), sum(file.size_bytes for file in partition.files)

    def stands(
        standing: Standing, *, merge: Merge | None = None, due_at_ms: int | None = None
    ) -> PartitionPlan:
        return PartitionPlan(partition.hour, standing, files, size, merge, due_at_ms)

    closes_ms = (partition.hour + 1) * MS_PER_HOUR + int(settings.merge.closed_after_s * 1000)
    if now_ms < closes_ms:
        return stands(Standing.OPEN_HOUR, due_at_ms=closes_ms)
    if facts.keeps_row_ids:
        return stands(Standing.ROW_IDS)
    if partition.equality_delete_files:
        return stands(Standing.EQUALITY_DELETES)
    small = [
        file
        for file in partition.files
        if file.size_bytes < target * settings.merge.small_file_ratio
        and file.file_format.upper() == "PARQUET"
    ]
    groups = group_files(small, target, facts.timestamp_id)
    alone = lone_files(partition.files, groups, settings)
    if not groups and not alone and not partition.position_delete_files:
        return stands(Standing.UP_TO_DATE)
    merged_ms = max(
        (at for file in partition.files if (at := merged_at_ms(file.uri)) is not None), default=None
    )
    rests_until_ms = None if merged_ms is None else merged_ms + int(settings.merge.late_cooldown_s * 1000)
    if rests_until_ms is not None and now_ms < rests_until_ms and not facts.resumes:
        return stands(Standing.COOLING_DOWN, due_at_ms=rests_until_ms)
    if partition.position_delete_files:
        return stands(
            Standing.DUE, merge=Merge(partition.hour, Engine.SPARK, (partition.files,), has_deletes=True)
        )
    if (
        max((sum(file.size_bytes for file in group) for group in groups), default=0)
        >= settings.merge.rewrite_bytes_min
    ):
        return stands(Standing.DUE, merge=Merge(partition.hour, Engine.SPARK, groups))
    return stands(Standing.DUE, merge=Merge(partition.hour, Engine.ARROW, (*groups, *alone)))


def lone_files(
    files: Sequence[DataFile], groups: Iterable[Sequence[DataFile]], settings: OptimizeSettings
) -> tuple[tuple[DataFile, ...], ...]:
    """Files that no group takes and that are as ingestion wrote them, each to be written anew by itself,
    once; small ones are not worth it."""
    grouped = {file.uri for group in groups for file in group}
    sizes = range(settings.merge.lone_file_bytes_min, settings.merge.rewrite_bytes_min)
    return tuple(
        (file,)
        for file in files
        if file.uri not in grouped and file.size_bytes in sizes and is_as_ingested(file.uri)
    )


def group_files(files: Sequence[DataFile], target: int, time_id: int) -> tuple[tuple[DataFile, ...], ...]:
    """Files in order of their first event, packed into groups of at most `target` bytes; groups of a single
    file are left out.

    Neighbours in time go together, so that the merged files of one hour overlap little.
    """
    groups: list[list[DataFile]] = []
    size = 0
    for file in sorted(files, key=lambda f: (first_event_us(f, time_id) or 0, f.uri)):
        if not groups or size + file.size_bytes > target:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return tuple(tuple(group) for group in groups if len(group) > 1)


def first_event_us(file: DataFile, time_id: int) -> int | None:
    """The event time of a file's first row, µs since 1970; None where its bounds do not tell."""
    bound = (file.lower_bounds or {}).get(time_id)
    return None if bound is None else int.from_bytes(bound, "little", signed=True)
