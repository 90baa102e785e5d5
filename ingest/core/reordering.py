"""Rows in another order. Arrow's `take` looks at every row of every column; in columns that most rows lack,
like those of mixed logs, the native core looks at the others alone."""

import ctypes
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.core.library import Absent, ReorderedTexts, Status, load

# From this many rows without a value for each one with it on, `take` is the dearer one.
SPARSE_FROM = 2


class Reordering:
    """An order of rows: `order` has, for each place, the number of the row that goes there."""

    def __init__(self, order: pa.Array) -> None:
        self._order = order

    def rows(self, rows: pa.Table) -> pa.Table:
        """All columns in this order."""
        return pa.table([self._column(column) for column in rows.columns], schema=rows.schema)

    def _column(self, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        count = len(self._order)
        if column.null_count == count:
            return column
        is_sparse = column.null_count >= SPARSE_FROM * (count - column.null_count)
        reordered = self._texts(column) if is_sparse and column.type == pa.string() else None
        return pc.take(column, self._order) if reordered is None else reordered

    def _texts(self, column: pa.ChunkedArray) -> pa.Array | None:
        """None where that is for Arrow to do."""
        functions = load()
        texts = pa.concat_arrays(column.chunks)
        validity, offsets, data = texts.buffers()
        if isinstance(functions, Absent) or texts.offset or data is None:
            return None
        out_offsets = np.zeros(len(texts) + 1, np.int32)
        out_validity = np.zeros((len(texts) + 7) // 8, np.uint8)
        out_data = np.zeros(data.size, np.uint8)
        status = functions.firn_reorder(
            len(texts),
            offsets.address,
            validity.address,
            data.address,
            data.size,
            self._places.ctypes.data,
            ctypes.byref(
                ReorderedTexts(out_offsets.ctypes.data, out_validity.ctypes.data, out_data.ctypes.data)
            ),
        )
        if status != Status.DONE:
            return None
        buffers = map(pa.py_buffer, (out_offsets, out_data, out_validity))
        return pa.StringArray.from_buffers(len(texts), *buffers, texts.null_count)

    @cached_property
    def _places(self) -> NDArray[np.uint32]:
        """For each row the place where it goes."""
        places = np.empty(len(self._order), np.uint32)
        places[self._order.to_numpy()] = np.arange(len(self._order), dtype=np.uint32)
        return places
