"""The proof of what Spark's rewrite_data_files wrote, on an executor: every row of the old files is there but
for those that delete files name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.data_file import DataFile, describe_parquet
from lake.errors import FirnError
from lake.log_schema import leaf_ids
from lake.settings import StorageSettings
from lake.storage import Storage, open_storage
from optimize.bounds_proof import SeenValues
from optimize.compaction import arrow_leaves, leaf_kinds
from optimize.merge_job import MergeGroup
from optimize.verify import ProofFailed, check_inputs, read_whole

# Columns of a position delete file (Iceberg spec, "Position Delete Files").
PATH, POSITION = "file_path", "pos"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What was rewritten of one hour. `untouched`: the hour's other data files, as their manifests spell
    them. `schema`: Iceberg's JSON."""

    group: MergeGroup
    outputs: tuple[DataFile, ...]
    untouched: tuple[str, ...]
    schema: Mapping[str, Any]
    storage: StorageSettings


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a rewrite is refused (empty: it is proven), and the checksums of its new files."""

    refusal: str = ""
    checksums: tuple[int, ...] = ()


def prove_all(rewrites: Iterable[Rewrite]) -> Iterator[Proof]:
    """The function of a Spark partition: one proof for each rewrite."""
    pa.set_cpu_count(1)
    for one in rewrites:
        try:
            yield prove(one, open_storage(one.storage))
        except (FirnError, ProofFailed, pa.ArrowException, OSError, ValueError, KeyError) as error:
            yield Proof(f"{type(error).__name__}: {error}")


def prove(one: Rewrite, storage: Storage) -> Proof:
    """Raises ProofFailed, FirnError, ArrowException."""
    deleted = deleted_positions(storage, one.group.deletes)
    left = sorted(deleted.keys() & set(one.untouched))
    if left:
        raise ProofFailed(f"{left[0]} has deleted rows and was not rewritten")
    gone = sum(len(deleted.get(file.uri, ())) for file in one.group.inputs)
    fields = one.schema["fields"]
    kinds = dict(zip(leaf_ids(fields), leaf_kinds(fields), strict=True))
    read = [_read_through(storage, file) for file in one.outputs]
    check_inputs(
        [(file, file) for file in one.group.inputs], [described for described, _ in read], kinds, gone
    )
    return Proof(checksums=tuple(checksum for _, checksum in read))


def deleted_positions(storage: Storage, files: Sequence[DataFile]) -> dict[str, np.ndarray[Any, Any]]:
    """The positions of deleted rows by data file, each once, as position delete files name them."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for file in files:
        table = pq.read_table(
            pa.BufferReader(read_whole(storage, file)), columns=[PATH, POSITION], use_threads=False
        )
        paths = table.column(PATH)
        for path in pc.unique(paths).to_pylist():
            positions = table.filter(pc.equal(paths, path)).column(POSITION)
            found.setdefault(path, []).append(positions.to_numpy(zero_copy_only=False))
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}


def _read_through(storage: Storage, file: DataFile) -> tuple[DataFile, int]:
    """The file as its own footer describes it, every row of it decoded once and held against its bounds, and
    its checksum. Raises ProofFailed."""
    data = read_whole(storage, file)
    parquet = pq.ParquetFile(pa.BufferReader(data))
    leaves = arrow_leaves(parquet.schema_arrow)
    rows, seen = 0, SeenValues(leaves)
    for batch in parquet.iter_batches(use_threads=False):
        rows += batch.num_rows
        seen.take(pa.Table.from_batches([batch]))
    described = describe_parquet(file.uri, file.hour or 0, file.size_bytes, parquet.metadata, leaves)
    if not rows == described.rows == file.rows:
        raise ProofFailed(
            f"{file.uri} holds {rows} rows, its footer says {described.rows}, its manifest {file.rows}"
        )
    if hidden := seen.hidden(file):
        raise ProofFailed(hidden)
    return described, crc32(data)
