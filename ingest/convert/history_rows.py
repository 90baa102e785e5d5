"""Changes as rows of a history: the columns of the row after the change (before it, for a delete), and what
the change says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.changes.change import Cells, Change
from ingest.changes.source_position import position_text
from ingest.convert.bad_values import ERRORS_TYPE, entries
from ingest.convert.change_columns import ChangeColumns, lay_out_cells
from ingest.convert.key_text import key_text
from ingest.convert.read_changes import OfMessage, ReadChanges
from ingest.convert.work import coordinates
from ingest.decode.column_name import BadValue
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.log_schema import ERRORS, INDEX, KEY, OBSERVED_TIMESTAMP, OP, POSITION, TIMESTAMP, ValueReason

_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """`rows` in the order of their changes."""

    rows: pa.Table
    rows_with_errors: int


def lay_out_history(
    read: ReadChanges, buffer: TableBuffer, sources: Sequence[Source], columns: ChangeColumns
) -> HistoryRows:
    """Makes a row of every change but those that only repeat a delete."""
    kept = [each for each in read.changes if not each.change.repeats_delete]
    if not kept:
        return HistoryRows(pa.table({}), 0)
    laid = lay_out_cells([_cells(change) for _, change in kept], columns)
    arrays: dict[str, Any] = dict(zip(laid.rows.column_names, laid.rows.columns, strict=True))
    ordinals = [each.ordinal for each in kept]
    arrays |= coordinates(buffer, sources, ordinals, distinct=False, origins=read.origins)
    arrays[INDEX] = pa.array(np.zeros(len(kept), np.int32))
    arrays[TIMESTAMP] = pa.compute.coalesce(_times(kept), arrays[OBSERVED_TIMESTAMP])
    arrays |= _said(kept, columns)
    bad = [_errors(change, laid.errors.get(at, ())) for at, (_, change) in enumerate(kept)]
    if any(bad):
        arrays[ERRORS] = pa.array(bad, ERRORS_TYPE)
    return HistoryRows(pa.table(arrays), sum(1 for each in bad if each))


def _cells(change: Change) -> Cells:
    """The row of a change; its key alone where it tells no more."""
    return change.row if change.row.values else change.key


def _times(changes: Sequence[OfMessage]) -> pa.Array:
    return pa.array([change.time_us for _, change in changes], pa.int64()).cast(_UTC)


def _said(changes: Sequence[OfMessage], columns: ChangeColumns) -> Mapping[str, pa.Array]:
    """The columns that say what happened, to which key, and where that stands in the source."""
    texts = {
        OP: [change.op.value for _, change in changes],
        KEY: [key_text(change.key) for _, change in changes],
        POSITION: [_position_text(change) for _, change in changes],
    }
    # Records of the same table may have a field of such a name, with a column of its own.
    return {
        columns.place(name, "", "string").column: pa.array(values, pa.string())
        for name, values in texts.items()
    }


def _position_text(change: Change) -> str | None:
    return None if change.position is None else position_text(change.position)


def _errors(change: Change, laid: Sequence[BadValue]) -> Any:
    not_sent = [BadValue(name, None, ValueReason.UNAVAILABLE) for name in sorted(change.unavailable)]
    return entries([*change.errors, *laid, *not_sent])
