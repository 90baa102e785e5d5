"""What travels between driver and executors: jobs there, results back. Plain frozen values, pickled by
Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.settings import StorageSettings
from lake.span import Partition
from lake.table_location import NOWHERE, TableLocation


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How merged files are written. `sort_by`: columns after which rows are ordered; `bloom` and what follows
    name columns that are treated differently. `zstd_level`: the highest, taken where it saves.
    `token_filter`: whether there is a filter of the words. `delta_text`: whether text may be encoded as
    deltas."""

    zstd_level: int = 10
    row_group_rows: int = 131_072
    sort_by: tuple[str, ...] = ("timestamp",)
    bloom: tuple[str, ...] = ()  # with a Bloom filter
    plain: tuple[str, ...] = ()  # without a dictionary
    zstd_levels: tuple[tuple[str, int], ...] = ()  # with a level of their own
    token_filter: bool = True
    delta_text: bool = False


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What the table says of one input: the position deletes that may name its rows, and its sequence
    number."""

    deletes: tuple[DataFile, ...] = ()
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Files that become one file of a partition, or several full ones: of the same partition, or of those
    whose rows a span takes in. `deletes`: delete files that are applied on the way. `facts`: one for each
    input, or none where no row of them is deleted.

    `sequence_number`: the table's when it was planned. `keeps_places`: the merge is to tell where each row
    went, so that deletes that come meanwhile can follow. `kept_from_us`: earlier rows go (retention; µs since
    1970), and with them `keeps_places`.
    """

    partition: Partition
    inputs: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...] = ()
    facts: tuple[InputFacts, ...] = ()
    sequence_number: int = 0
    keeps_places: bool = False
    kept_from_us: int | None = None

    @property
    def partitions(self) -> frozenset[Partition]:
        """Where its inputs lie."""
        return frozenset(each for file in self.inputs if (each := file.partition) is not None)

    @property
    def by_bucket(self) -> bool:
        """Whether the partition is a bucket of a keyed table, and no hour."""
        return any(file.bucket is not None for file in self.inputs)

    def facts_of(self, at: int) -> InputFacts:
        """What is said of an input."""
        return self.facts[at] if self.facts else InputFacts()


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The merges of one table in one Spark task. `schema`: the table's current schema as Iceberg's JSON.
    `keeps_row_ids`: its rows have ids (format version 3), which they keep."""

    table: TableName
    location: str
    schema: Mapping[str, Any]
    groups: tuple[MergeGroup, ...]
    layout: FileLayout
    table_location: TableLocation = NOWHERE
    keeps_row_ids: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Where the rows of a merge's inputs went. `applied`: by input, the deleted rows that were left out;
    `places`: of all others, in the order of the inputs, their row numbers in the new file."""

    applied: tuple[BitMap64, ...]
    places: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Merged:
    """A group and the proven files that stand for it, each with the checksum of its bytes as they were when
    it was proven. `places`: where rows went, where the group asks for that."""

    group: MergeGroup
    outputs: tuple[DataFile, ...]
    checksums: tuple[int, ...]
    places: RowPlaces | None = None


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
