"""A data file written anew without some of its rows: column by column as it was, a row group at a time."""

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lake.data_file import DataFile, describe_parquet
from lake.errors import FatalError
from lake.storage import Storage

_FIELD_ID = b"PARQUET:field_id"


def write_without(
    storage: Storage, old: IO[bytes], uri: str, hour: int, positions: Sequence[int]
) -> DataFile:
    """Writes the Parquet file `old` to `uri` without the rows at `positions` (0: the first). Complete, not
    yet synced. Raises FatalError, UnavailableError."""
    footers: list[Any] = []
    with pq.ParquetFile(old) as source:
        keep = np.ones(source.metadata.num_rows, dtype=bool)
        keep[np.asarray(positions, dtype=np.int64)] = False
        leaves = [leaf for field in source.schema_arrow for leaf in _leaf_ids(field)]
        with storage.create(uri) as file:
            with pq.ParquetWriter(
                file, source.schema_arrow, compression="zstd", store_schema=False, metadata_collector=footers
            ) as writer:
                first = 0
                for at in range(source.metadata.num_row_groups):
                    rows = source.metadata.row_group(at).num_rows
                    mask = keep[first : first + rows]
                    first += rows
                    if mask.any():
                        writer.write_table(source.read_row_group(at).filter(pa.array(mask)))
            size = file.tell()
    if footers[0].num_rows != int(keep.sum()):
        raise FatalError(
            f"{uri} holds {footers[0].num_rows} rows, {int(keep.sum())} should be left; nothing was changed, "
            "look at the disk's health"
        )
    return describe_parquet(uri, hour, size, footers[0], leaves)


def _leaf_ids(field: pa.Field) -> list[int]:
    """Field ids of a column's primitive leaves, in Parquet's order."""
    kind = field.type
    if pa.types.is_struct(kind):
        return [leaf for at in range(kind.num_fields) for leaf in _leaf_ids(kind.field(at))]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaf_ids(kind.value_field)
    if pa.types.is_map(kind):
        return [*_leaf_ids(kind.key_field), *_leaf_ids(kind.item_field)]
    if field.metadata is None or _FIELD_ID not in field.metadata:
        raise FatalError(
            f"column {field.name!r} has no field id: the file was not written by an Iceberg engine and "
            "cannot be rewritten"
        )
    return [int(field.metadata[_FIELD_ID])]
