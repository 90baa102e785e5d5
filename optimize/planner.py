"""What is to be done for one table, decided from facts alone: no clock, no storage, no catalog."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lake.catalog_client import TableName
from lake.data_file import PARQUET, DataFile
from lake.log_schema import TIMESTAMP, LogSchema
from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from lake.span import Partition as Place
from lake.span import Span, hours_of, in_order
from optimize.cold import NO_SPANS, ColdSpans
from optimize.merged_file import is_as_ingested, merged_at_ms
from optimize.retention import first_event_us
from optimize.table_view import Partition

# Files of a bucket go together while none has more than so many times the bytes of all smaller ones.
LIKE_SIZE = 4


class Standing(StrEnum):
    """How a partition stands."""

    DUE = "due"
    UP_TO_DATE = "up to date"
    OPEN_HOUR = "open hour"
    COOLING_DOWN = "cooling down after its last merge"
    GATHERING = "few small files, not worth a merge yet"
    EQUALITY_DELETES = "foreign writer with equality deletes"
    TOO_LARGE = "files too large to be rewritten in a task"


class Engine(StrEnum):
    """Who merges a partition: PyArrow inside Spark tasks, or Spark's own rewrite_data_files."""

    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Merge:
    """What becomes files of a partition; each group of files becomes one. Spark's rewrite makes its own
    groups of all `files`."""

    partition: Place
    engine: Engine
    groups: tuple[tuple[DataFile, ...], ...]

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
    known. `gather`: URIs of files that stay, but whose delete files become one. Of a span `files` are also
    those of its hours and days that go into it."""

    partition: Place
    standing: Standing
    files: int
    size_bytes: int
    merge: Merge | None = None
    due_at_ms: int | None = None
    by_bucket: bool = False
    gather: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What is due for one table."""

    table: TableName
    tenant: str
    partitions: tuple[PartitionPlan, ...] = ()
    expire: tuple[int, ...] = ()
    merge_manifests: bool = False
    dangling_deletes: int = 0
    equality_deletes: int = 0
    target_bytes: int = 0
    never_optimized: bool = False

    @property
    def merges(self) -> tuple[Merge, ...]:
        return tuple(partition.merge for partition in self.partitions if partition.merge is not None)

    @property
    def is_due(self) -> bool:
        return bool(self.merges or self.expire or self.merge_manifests or self.loses_deletes)

    @property
    def rests_until_ms(self) -> int | None:
        """When time alone may make something due, ms since 1970; None: never."""
        return min((p.due_at_ms for p in self.partitions if p.due_at_ms is not None), default=None)

    @property
    def gather(self) -> tuple[str, ...]:
        """URIs of data files whose many delete files become one."""
        return tuple(uri for partition in self.partitions for uri in partition.gather)

    @property
    def loses_deletes(self) -> bool:
        """Whether delete files go without a merge: they dangle, or become others."""
        return bool(self.dangling_deletes or self.equality_deletes or self.gather)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the planner has to know of a table besides its partitions. `resumes`: an earlier round left work
    undone, which then does not rest. `dangling_deletes`: delete files that no data file is left for;
    `equality_deletes`: those that are to be turned into positions; `cold`: what its cold hours become.
    `spanned`: hours of its days and months, whose files Spark's rewrite of an hour would take along."""

    table: TableName
    tenant: str
    timestamp_id: int
    manifests: int
    expirable: tuple[int, ...]
    has_been_replaced: bool
    resumes: bool = False
    keeps_row_ids: bool = False
    spanned: Container[int] = frozenset()
    dangling_deletes: int = 0
    equality_deletes: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    cold: ColdSpans = NO_SPANS


def timestamp_id(schema: LogSchema) -> int:
    """The field id of the event time, by which files are put in order."""
    return schema.by_name[TIMESTAMP].id


def plan_table(
    facts: TableFacts, partitions: Iterable[Partition], settings: OptimizeSettings, now_ms: int
) -> TablePlan:
    """The plan of one table."""
    target = target_bytes(facts.properties, settings)
    ordered = sorted(partitions, key=lambda p: in_order(p.value))
    spans, alone = _plan_spans(ordered, facts, target, settings, now_ms)
    plans = (
        *((_plan_bucket if p.by_bucket else _plan_alone)(p, facts, target, settings, now_ms) for p in alone),
        *spans,
    )
    # A commit that replaces files gathers the manifests it touches anyway.
    merge_manifests = facts.manifests > settings.merge.manifests_max
    never = not facts.has_been_replaced and any(p.merge for p in plans)
    return TablePlan(
        facts.table,
        facts.tenant,
        plans,
        facts.expirable,
        merge_manifests,
        facts.dangling_deletes,
        facts.equality_deletes,
        target,
        never,
    )


def target_bytes(properties: Mapping[str, str], settings: OptimizeSettings) -> int:
    """The table's own target size where it is a number, else the setting's."""
    value = properties.get("write.target-file-size-bytes", "")
    return int(value) if value.isdecimal() and int(value) > 0 else settings.merge.target_file_bytes


def _stands(
    partition: Partition, standing: Standing, *, merge: Merge | None = None, due_at_ms: int | None = None
) -> PartitionPlan:
    files, size = len(partition.files), sum(file.size_bytes for file in partition.files)
    return PartitionPlan(
        partition.value, standing, files, size, merge, due_at_ms, by_bucket=partition.by_bucket
    )


def _plan_spans(
    partitions: Sequence[Partition], facts: TableFacts, target: int, settings: OptimizeSettings, now_ms: int
) -> tuple[list[PartitionPlan], list[Partition]]:
    """The plans of cold spans, the longest first, and the partitions that are merged by themselves, if at
    all: those that are not cold, and those that a span has no room for or does not take now."""
    plans, left, alone = list[PartitionPlan](), list(partitions), list[Partition]()
    for unit in facts.cold.units:
        parts: dict[Span | None, list[Partition]] = {}
        for each in left:
            parts.setdefault(facts.cold.span_of(unit, each.value), []).append(each)
        left = parts.pop(None, [])
        for span, members in parts.items():
            plan = None if span is None else _plan_span(span, members, facts, target, settings, now_ms)
            if plan is None:
                left += members
                continue
            plans.append(plan)
            if plan.standing is Standing.COOLING_DOWN:
                alone += [each for each in members if each.value != span]
    return plans, [*left, *alone]


def _plan_span(
    span: Span,
    members: Sequence[Partition],
    facts: TableFacts,
    target: int,
    settings: OptimizeSettings,
    now_ms: int,
) -> PartitionPlan | None:
    """All files of a span, of its hours and of its days become one; None where that would be too large, or
    they cannot be merged."""
    files = _in_time(facts.timestamp_id, (file for each in members for file in each.files))
    together = Partition(span, files, facts={uri: f for each in members for uri, f in each.facts.items()})
    size = sum(file.size_bytes for file in files)
    if size >= min(target, settings.merge.rewrite_bytes_min) or not all(map(_is_parquet, files)):
        return None
    if any(each.equality_delete_files for each in members):
        return None
    own = [each for each in members if each.value == span]
    if own and len(files) == 1 and not together.deletes_of(files[0]):
        return _stands(together, Standing.UP_TO_DATE)
    rests_until_ms = _rests_until_ms(own[0], settings.cold.late_cooldown_s) if own else None
    if rests_until_ms is not None and now_ms < rests_until_ms and not facts.resumes:
        return _stands(together, Standing.COOLING_DOWN, due_at_ms=rests_until_ms)
    return _stands(together, Standing.DUE, merge=Merge(span, Engine.ARROW, (files,)))


def _plan_alone(
    partition: Partition, facts: TableFacts, target: int, settings: OptimizeSettings, now_ms: int
) -> PartitionPlan:
    """An hour, or a span that stays as it is but for late rows and deletes."""
    closes_ms = hours_of(partition.value).stop * MS_PER_HOUR + int(settings.merge.closed_after_s * 1000)
    if now_ms < closes_ms:
        return _stands(partition, Standing.OPEN_HOUR, due_at_ms=closes_ms)
    if partition.equality_delete_files:
        return _stands(partition, Standing.EQUALITY_DELETES)
    groups = group_files(_small_files(partition, target, settings), target, facts.timestamp_id)
    alone = lone_files(partition.files, groups, settings)
    alone += _with_deletes(partition, (*groups, *alone))
    if not groups and not alone:
        return _stands(partition, Standing.UP_TO_DATE)
    rests_until_ms = _rests_until_ms(partition, settings.merge.late_cooldown_s)
    if rests_until_ms is not None and now_ms < rests_until_ms and not facts.resumes:
        return _stands(partition, Standing.COOLING_DOWN, due_at_ms=rests_until_ms)
    largest = max((sum(file.size_bytes for file in group) for group in (*groups, *alone)), default=0)
    if largest < settings.merge.rewrite_bytes_min:
        merge = Merge(partition.value, Engine.ARROW, (*groups, *alone))
    elif facts.keeps_row_ids or hours_of(partition.value).start in facts.spanned:
        return _stands(partition, Standing.TOO_LARGE)
    else:
        has_deletes = any(map(partition.deletes_of, partition.files))
        merge = Merge(partition.value, Engine.SPARK, (partition.files,) if has_deletes else groups)
    return _stands(partition, Standing.DUE, merge=merge)


def _plan_bucket(
    partition: Partition, facts: TableFacts, target: int, settings: OptimizeSettings, now_ms: int
) -> PartitionPlan:
    """A bucket never closes: its small files are merged when they are some, or after a rest, and then what
    ingestion wrote is written anew also where it stays alone; whatever size a file has, it is written anew
    when too many of its rows are deleted. Many delete files become one."""
    if partition.equality_delete_files:
        return _stands(partition, Standing.EQUALITY_DELETES)
    alike = of_like_size(_small_files(partition, target, settings))
    rests_until_ms = _rests_until_ms(partition, settings.merge.late_cooldown_s) or 0
    if len(alike) < settings.merge.keyed_files_min and now_ms < rests_until_ms and not facts.resumes:
        waiting, alike = alike, ()
    else:
        waiting = ()
    worn = [file for file in partition.files if is_worn(file, partition.deletes_of(file), settings)]
    fits = [
        file
        for file in {each.uri: each for each in (*alike, *worn)}.values()
        if file.size_bytes < settings.merge.rewrite_bytes_min
    ]
    groups = group_files(fits, target, facts.timestamp_id, alone={file.uri for file in worn})
    groups += () if waiting else lone_files(partition.files, groups, settings)
    merged = {file.uri for group in groups for file in group}
    crowded = tuple(
        file.uri
        for file in partition.files
        if file.uri not in merged and len(partition.deletes_of(file)) > settings.merge.delete_files_max
    )
    if groups:
        plan = _stands(partition, Standing.DUE, merge=Merge(partition.value, Engine.ARROW, groups))
    elif worn:
        plan = _stands(partition, Standing.TOO_LARGE)
    elif len(waiting) > 1:
        plan = _stands(partition, Standing.GATHERING, due_at_ms=rests_until_ms)
    else:
        plan = _stands(partition, Standing.UP_TO_DATE)
    return replace(plan, gather=crowded)


def _small_files(partition: Partition, target: int, settings: OptimizeSettings) -> list[DataFile]:
    below = target * settings.merge.small_file_ratio
    return [file for file in partition.files if file.size_bytes < below and _is_parquet(file)]


def _is_parquet(file: DataFile) -> bool:
    return file.file_format.upper() == PARQUET


def _with_deletes(
    partition: Partition, groups: Iterable[Sequence[DataFile]]
) -> tuple[tuple[DataFile, ...], ...]:
    """Files with deleted rows that are in no group, each to be written anew by itself."""
    grouped = {file.uri for group in groups for file in group}
    return tuple(
        (file,)
        for file in partition.files
        if file.uri not in grouped and partition.deletes_of(file) and _is_parquet(file)
    )


def _rests_until_ms(partition: Partition, cooldown_s: float) -> int | None:
    """Until when a merged partition rests; None where it was never merged."""
    merged = [at for file in partition.files if (at := merged_at_ms(file.uri)) is not None]
    return max(merged) + int(cooldown_s * 1000) if merged else None


def of_like_size(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The smallest files, up to the first that is many times as large as all smaller ones together: so a
    file is written again only when what it is merged with is worth it."""
    alike: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda f: (f.size_bytes, f.uri)):
        if alike and file.size_bytes > LIKE_SIZE * size:
            break
        alike.append(file)
        size += file.size_bytes
    return tuple(alike)


def is_worn(file: DataFile, deletes: Sequence[DataFile], settings: OptimizeSettings) -> bool:
    """Whether a file of a bucket is to be written anew for its deleted rows. Delete files that name several
    data files are counted as if all of it were for this one."""
    deleted = sum(each.rows for each in deletes)
    return _is_parquet(file) and deleted > file.rows * settings.merge.deleted_share_max


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


def group_files(
    files: Sequence[DataFile], target: int, time_id: int, alone: Container[str] = ()
) -> tuple[tuple[DataFile, ...], ...]:
    """Files in order of their first event, packed into groups of at most `target` bytes; groups of a single
    file are left out, but for those of `alone` (URIs).

    Neighbours in time go together, so that the merged files of one hour overlap little.
    """
    groups: list[list[DataFile]] = []
    size = 0
    for file in _in_time(time_id, files):
        if not groups or size + file.size_bytes > target:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return tuple(tuple(group) for group in groups if len(group) > 1 or group[0].uri in alone)


def _in_time(time_id: int, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted(files, key=lambda f: (first_event_us(f, time_id) or 0, f.uri)))
