"""Values of data files at given rows: of a file only the row groups are read that hold one of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.keys.key_columns import parquet_errors
from ingest.keys.key_lookup import KeyRows
from lake.storage import Storage

_FIELD_ID = b"PARQUET:field_id"


def rows_at(storage: Storage, uri: str, positions: NDArray[np.int64], names: Mapping[int, str]) -> pa.Table:
    """Reads the rows with these numbers, at least one, in their order. `names`: the columns to be read, by
    field id, as they are called in the answer; those that the file does not have are left out.

    Raises NotFoundError, UnavailableError; ProtocolError where the file is no Parquet.
    """
    with storage.open(uri) as file, parquet_errors(uri):
        parquet = pq.ParquetFile(file)
        there = _columns(parquet.schema_arrow, names)
        counts = [parquet.metadata.row_group(at).num_rows for at in range(parquet.metadata.num_row_groups)]
        ends = np.cumsum(counts)
        group_of = np.searchsorted(ends, positions, side="right")
        parts, places = [], []
        for group in np.unique(group_of).tolist():
            of_group = np.flatnonzero(group_of == group)
            read = parquet.read_row_group(group, columns=list(there), use_threads=False).select(list(there))
            parts.append(read.take(pa.array(positions[of_group] - (ends[group] - counts[group]))))
            places.append(of_group)
    in_order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_tables(parts).take(pa.array(in_order)).rename_columns(list(there.values()))


def _columns(schema: pa.Schema, names: Mapping[int, str]) -> dict[str, str]:
    """What columns of the file are called in the answer."""
    ids = {field.name: int((field.metadata or {}).get(_FIELD_ID, b"0")) for field in schema}
    return {name: names[field_id] for name, field_id in ids.items() if field_id in names}


def values_at(
    storage: Storage, found: KeyRows, uris: Sequence[str], kinds: Mapping[int, pa.DataType]
) -> list[pa.Array]:
    """Reads some columns' values at each found row, in their order: an array for each column of `kinds`, a
    type by field id. NULL where a file was written before it had the column. Raises what `rows_at` does."""
    names = {column_id: str(column_id) for column_id in kinds}
    parts: dict[int, list[pa.Array]] = {column_id: [] for column_id in kinds}
    for at in np.unique(found.file).tolist():  # rows are in the order of their files
        positions = found.position[found.file == at]
        rows = rows_at(storage, uris[at], positions, names)
        for column_id, kind in kinds.items():
            parts[column_id].append(_values(rows, names[column_id], kind, len(positions)))
    return [
        pa.concat_arrays(of_column) if of_column else pa.array([], kinds[column_id])
        for column_id, of_column in parts.items()
    ]


def _values(rows: pa.Table, name: str, kind: pa.DataType, count: int) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(count, kind)
    return rows[name].combine_chunks().cast(kind)
