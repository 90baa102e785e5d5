"""Rows in another order. Arrow's `take` looks at every row of every column; in columns that most rows lack,
like those of mixed logs, the native core looks at the others alone."""

import ctypes
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.core.library import Absent, ReorderedTexts, Status, TextsPart, load

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
        if isinstance(functions, Absent):
            return None
        parts = [(len(texts), *_buffers(texts)) for texts in column.chunks if len(texts)]
        given = (TextsPart * len(parts))()
        for part, (rows, validity, offsets, data) in zip(given, parts, strict=True):
            part.rows, part.offsets, part.validity = rows, offsets.address, validity.address
            part.data, part.size = data.address, data.size
        count = len(column)
        new_offsets, new_validity = np.zeros(count + 1, np.int32), np.zeros((count + 7) // 8, np.uint8)
        new_data = np.zeros(sum(data.size for *_, data in parts), np.uint8)
        out = ReorderedTexts(new_offsets.ctypes.data, new_validity.ctypes.data, new_data.ctypes.data)
        places = self._places.ctypes.data
        if functions.firn_reorder(given, len(parts), places, count, ctypes.byref(out)) != Status.DONE:
            return None
        made = map(pa.py_buffer, (new_offsets, new_data, new_validity))
        return pa.StringArray.from_buffers(count, *made, column.null_count)

    @cached_property
    def _places(self) -> NDArray[np.uint32]:
        """For each row the place where it goes."""
        places = np.empty(len(self._order), np.uint32)
        places[self._order.to_numpy()] = np.arange(len(self._order), dtype=np.uint32)
        return places


def _buffers(texts: pa.Array) -> Sequence[pa.Buffer]:
    """Validity, offsets and data from the first text on, also those that Arrow leaves out."""
    validity, offsets, data = (pa.concat_arrays([texts]) if texts.offset else texts).buffers()
    return validity or pa.py_buffer(b"\xff" * ((len(texts) + 7) // 8)), offsets, data or pa.py_buffer(b"")
