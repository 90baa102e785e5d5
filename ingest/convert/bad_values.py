"""Values that their columns cannot hold, as `_errors` tells them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.decode.column_name import BadValue
from ingest.decode.decoder import is_text, json_text
from lake.log_schema import TIMESTAMP, ValueReason

ERRORS_TYPE = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string()), ("reason", pa.string())]))
MISSING_TIME = BadValue(TIMESTAMP, None, ValueReason.MISSING_TIMESTAMP)


class RowError(NamedTuple):
    """An entry of a row's `_errors`; those of a row are told in the order of `turn`."""

    row: int
    turn: int
    bad: BadValue


def bad_value(path: str, text: str, reason: ValueReason) -> BadValue:
    """The entry for a value; a path that UTF-8 cannot spell is given as JSON text with escapes."""
    return BadValue(path if is_text(path) else json_text(path), text, reason)


def entries(errors: Iterable[BadValue]) -> list[dict[str, str | None]] | None:
    """The value of the `_errors` column: None, never an empty list, where there are none."""
    return [{"field": e.field, "value": e.value, "reason": e.reason.value} for e in errors] or None


def errors_column(rows: int, errors: Sequence[RowError]) -> pa.Array:
    """The `_errors` of so many rows: NULL, never an empty list, where there are none."""
    ordered = sorted(errors, key=lambda error: (error.row, error.turn))
    told = [error.bad for error in ordered]
    members = [
        pa.array([bad.field for bad in told], pa.string()),
        pa.array([bad.value for bad in told], pa.string()),
        pa.array([bad.reason.value for bad in told], pa.string()),
    ]
    counts = np.bincount(
        np.fromiter((error.row for error in ordered), np.int64, len(ordered)), minlength=rows
    )
    return _lists(pa.StructArray.from_arrays(members, fields=list(ERRORS_TYPE.value_type)), counts)


def missing_times(missing: Any) -> pa.Array:
    """The `_errors` of rows of which some (a mask) have no time, and none has another error."""
    entry = pa.array(entries([MISSING_TIME]), ERRORS_TYPE.value_type)
    return _lists(entry.take(pa.array(np.zeros(int(missing.sum()), np.int32))), missing.astype(np.int64))


def _lists(values: pa.Array, counts: Any) -> pa.Array:
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values, type=ERRORS_TYPE, mask=pa.array(counts == 0)
    )
