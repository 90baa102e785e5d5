"""What travels between driver and executors: jobs there, results back. Plain frozen values, pickled by
Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How merged files are written. `sort_by`: columns after which rows are ordered; the others name columns
    that are treated differently."""

    zstd_level: int = 3
    row_group_rows: int = 131_072
    sort_by: tuple[str, ...] = ("timestamp",)
    bloom: tuple[str, ...] = ()  # with a Bloom filter
    plain: tuple[str, ...] = ()  # without a dictionary
    zstd_levels: tuple[tuple[str, int], ...] = ()  # with a level of their own


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Files of one hour that become one file, or several full ones. `deletes`: delete files that are applied
    on the way and go with them."""

    hour: int
    inputs: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The merges of one table in one Spark task. `schema`: the table's current schema as Iceberg's JSON."""

    table: TableName
    location: str
    schema: Mapping[str, Any]
    groups: tuple[MergeGroup, ...]
    layout: FileLayout


@dataclass(frozen=True, slots=True)
class Merged:
    """A group and the proven files that stand for it, each with the checksum of its bytes as they were when
    it was proven."""

    group: MergeGroup
    outputs: tuple[DataFile, ...]
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    """What became of a job: all its groups merged and proven, or a sentence why not (then nothing of it is
    used).

    `is_refused`: the merge was done, but its proof failed.
    """

    job: MergeJob
    merged: tuple[Merged, ...]
    failure: str = ""
    cpu_s: float = 0.0
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Bin:
    """Jobs of one Spark task; their tables are committed together."""

    jobs: Sequence[MergeJob]
    storage: StorageSettings
    now_ms: int
