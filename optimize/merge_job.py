"""What travels between driver and executors: jobs there, results back. Plain frozen values, pickled by Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How merged files are written. `sort_by` are column names after which rows are ordered; `bloom` are columns that get Bloom filters."""

    zstd_level: int = 3
    row_group_rows: int = 131_072
    sort_by: tuple[str, ...] = ("timestamp",)
    bloom: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()  # columns without dictionary


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Files of one hour that become one file."""

    hour: int
    inputs: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The merges of one table in one Spark task. `schema`: the table's current schema as Iceberg's JSON."""

    table: TableName
    location: str
    schema: Mapping[str, Any]
    groups: tuple[MergeGroup, ...]
    layout: FileLayout
    cost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Merged:
    """A group and the proven file that stands for it."""

    group: MergeGroup
    output: DataFile


@dataclass(frozen=True, slots=True)
class JobResult:
    """What became of a job: all its groups merged and proven, or a sentence why not (then nothing of it is used)."""

    job: MergeJob
    merged: tuple[Merged, ...]
    failure: str = ""
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Bin:
    """Jobs of one Spark task; their tables are committed together."""

    jobs: Sequence[MergeJob]
    storage: StorageSettings
    now_ms: int

    @property
    def cost_s(self) -> float:
        return sum(job.cost_s for job in self.jobs)
