"""Ids of rows, which tables of format version 3 keep whatever file a row is in (Iceberg spec, "Row
Lineage").

A file as ingestion writes it has none in it: its rows are numbered from what its manifest says, and were
changed last when it was added. A merge writes both into the new file, since a row of it has another place.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.data_file import DataFile

ROW_ID, LAST_UPDATED = 2_147_483_540, 2_147_483_539
# As a schema's JSON spells fields; the names are Iceberg's.
LINEAGE_FIELDS: tuple[Mapping[str, Any], ...] = (
    {"id": ROW_ID, "name": "_row_id", "required": False, "type": "long"},
    {"id": LAST_UPDATED, "name": "_last_updated_sequence_number", "required": False, "type": "long"},
)


def lineage_column(
    field_id: int,
    file: DataFile,
    sequence_number: int | None,
    rows: range,
    written: pa.ChunkedArray | None = None,
) -> pa.ChunkedArray:
    """One of the two columns, for some rows of a file. `written`: what stands in the file, where it has the
    column. NULL where nobody has given the rows ids yet."""
    if file.first_row_id is None:
        inherited = pa.nulls(len(rows), pa.int64())
    elif field_id == ROW_ID:
        inherited = pa.array(np.arange(rows.start, rows.stop, dtype=np.int64) + file.first_row_id)
    else:
        inherited = pa.repeat(pa.scalar(sequence_number, pa.int64()), len(rows))
    column = pa.chunked_array([inherited])
    return column if written is None else pc.coalesce(written, column)
