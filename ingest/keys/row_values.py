"""Values of data files at given rows: of a file only the row groups are read that hold one of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_columns import field_ids, parquet_errors
from ingest.keys.key_lookup import KeyRows
from lake.storage import Storage


def rows_at(storage: Storage, uri: str, positions: NDArray[np.int64], names: Mapping[int, str]) -> pa.Table:
    """Reads the rows with these numbers, at least one, in their order. `names`: the columns to be read, by
    field id, as they are called in the answer; those that the file does not have are left out.

    Raises NotFoundError, UnavailableError; ProtocolError where the file is no Parquet.
    """
    with storage.open(uri) as file, parquet_errors(uri):
        parquet = pq.ParquetFile(file)
        ids = field_ids(parquet.schema_arrow)
        there = {name: names[field_id] for name, field_id in ids.items() if field_id in names}
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


def values_at(
    reader: ColumnReader, found: KeyRows, uris: Sequence[str], kinds: Mapping[int, pa.DataType]
) -> list[pa.Array]:
    """Reads some columns' values at each found row, in their order: an array for each column of `kinds`, a
    type by field id. NULL where a file was written before it had the column. Raises what `rows_at` does."""
    parts = [[pa.array([], kind)] for kind in kinds.values()]
    for at in np.unique(found.file).tolist():  # rows are in the order of their files
        of_file = _values_of(reader, uris[at], found.position[found.file == at], kinds)
        for part, values in zip(parts, of_file, strict=True):
            part.append(values)
    return [pa.concat_arrays(part) for part in parts]


def _values_of(
    reader: ColumnReader, uri: str, positions: NDArray[np.int64], kinds: Mapping[int, pa.DataType]
) -> list[pa.Array]:
    """The values of one file, in the order of the positions."""
    parts: list[list[pa.Array]] = [[] for _ in kinds]
    all_places = []
    for group, places, at in reader.groups(uri, positions):
        all_places.append(places)
        columns = reader.of_group(uri, group, list(kinds))
        for part, column, kind in zip(parts, columns, kinds.values(), strict=True):
            part.append(pa.nulls(len(at), kind) if column is None else column.take(at).cast(kind))
    in_order = pa.array(np.argsort(np.concatenate(all_places), kind="stable"))
    return [pa.concat_arrays(part).take(in_order) for part in parts]
