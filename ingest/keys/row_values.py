"""Values of one column at given rows of data files."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ingest.keys.key_columns import open_key_columns
from ingest.keys.key_lookup import KeyRows
from lake.errors import ProtocolError
from lake.storage import Storage


def values_at(
    storage: Storage, found: KeyRows, uris: Sequence[str], column_id: int, kind: pa.DataType
) -> pa.Array:
    """The column's value at each found row, in their order; NULL where the file was written before it had the
    column. Raises NotFoundError, UnavailableError, ProtocolError."""
    parts = [
        _of_file(storage, found.taken(found.file == at), uris[at], column_id, kind) for at in _files(found)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def _files(found: KeyRows) -> list[int]:
    # Rows are in the order of their files.
    return np.unique(found.file).tolist()  # type: ignore[no-any-return]


def _of_file(storage: Storage, rows: KeyRows, uri: str, column_id: int, kind: pa.DataType) -> pa.Array:
    try:
        with open_key_columns(storage, uri, [column_id]) as columns:
            chunks = [columns.of_group(group)[0] for group in range(len(columns.rows_of_groups))]
    except ProtocolError as error:
        if "has no column with the field id" not in str(error):
            raise
        return pa.nulls(len(rows), kind)
    whole = pa.concat_tables([pa.table({"v": chunk}) for chunk in chunks]).column("v")
    taken = whole.take(pa.array(rows.position))
    return taken.combine_chunks().cast(kind)
