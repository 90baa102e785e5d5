"""Which rows of a merge's inputs are alive, and the proof that a merge keeps them key by key.

Deletes are applied while inputs are read; the proof reads the columns of the key once more, takes the rows
that no delete names by another way, and has both sides in the order of the key: a key that is lost, doubled
or another is seen.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from lake.data_file import DataFile
from lake.deletes.row_deletes import load_row_deletes
from lake.log_schema import LogSchema
from lake.storage import Storage
from lake.table_location import TableLocation
from optimize.merge_job import MergeGroup, RowPlaces
from optimize.verify import ProofFailed


def load_deleted(storage: Storage, group: MergeGroup, table_location: TableLocation) -> list[BitMap64]:
    """The deleted rows of each input; each delete file is read once. Raises ProofFailed where a delete names
    a row that its file does not have, and what `load_row_deletes` raises."""
    loaded = {file.place: load_row_deletes(storage, file, table_location) for file in group.deletes}
    found = []
    for at, file in enumerate(group.inputs):
        deleted = BitMap64()
        for each in group.facts_of(at).deletes:
            deleted |= loaded[each.place].get(file.uri, BitMap64())
        if deleted and deleted.max() >= file.rows:
            raise ProofFailed(f"row {deleted.max()} of {file.uri} is deleted, and it has {file.rows} rows")
        found.append(deleted)
    return found


def without_deleted(rows: pa.Table, deleted: BitMap64) -> pa.Table:
    """The rows of a file that are alive."""
    if not deleted:
        return rows
    alive = np.ones(rows.num_rows, dtype=bool)
    alive[np.asarray(deleted.to_array(), dtype=np.int64)] = False
    return rows.filter(pa.array(alive))


def places_of(deleted: Sequence[BitMap64], order: pa.Array) -> RowPlaces:
    """Where the rows went that an order names. `order`: row numbers of the inputs' live rows, one input after
    the other."""
    taken = order.to_numpy(zero_copy_only=False)
    places = np.empty(len(taken), dtype=np.uint32)
    places[taken] = np.arange(len(taken), dtype=np.uint32)
    return RowPlaces(tuple(deleted), places)


def key_columns(schema: LogSchema) -> list[str]:
    """The columns of a table's identifier fields."""
    return [column.name for column in schema.columns if column.id in schema.key_ids]


def check_keys(inputs: Sequence[tuple[DataFile, pa.Table, BitMap64]], rows: pa.Table) -> None:
    """The new file's keys are those of the live rows before, each as often. `inputs`: files, the columns of
    the key of all their rows, and which of them are deleted; `rows`: the rows of the new file. Raises
    ProofFailed."""
    before = []
    for file, keys, deleted in inputs:
        if keys.num_rows != file.rows:
            raise ProofFailed(f"{file.uri} holds {keys.num_rows} keys, its manifest says {file.rows} rows")
        alive = np.setdiff1d(np.arange(file.rows), np.fromiter(deleted, np.int64, len(deleted)))
        before.append(keys.take(pa.array(alive)))
    had = pa.concat_tables(before)
    order = [(name, "ascending") for name in had.column_names]
    has = rows.select(had.column_names).cast(had.schema)
    if had.num_rows != has.num_rows:
        raise ProofFailed(f"{had.num_rows} keys are alive, and the new file has {has.num_rows}")
    if not had.sort_by(order).equals(has.sort_by(order)):
        raise ProofFailed(f"the {has.num_rows} keys of the new file are not those that are alive")
