"""Columns of text to a declared type, exactly as `values` converts them one by one, the usual spellings by
columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.times import read_moments
from ingest.convert.values import to_column
from lake.log_schema import ValueReason, arrow_type

# Numbers that Arrow reads exactly, and that fit the type.
_PLAIN = {
    "int": r"\A-?[0-9]{1,9}\z",
    "long": r"\A-?[0-9]{1,18}\z",
    "double": r"\A-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?\z",
}
BadRows = list[tuple[int, ValueReason]]


def typed_values(kind: Any, texts: pa.Array) -> tuple[pa.Array | None, BadRows]:
    """The values of an Iceberg type other than string, NULL where the text is no such value (None: it is none
    in all rows); and those rows, which ascend, with the reason."""
    if kind == "timestamptz":
        return _moments(texts)
    if not isinstance(kind, str) or kind not in _PLAIN:
        return _one_by_one(kind, texts)
    are_plain = pc.match_substring_regex(texts, _PLAIN[kind])
    if are_plain.true_count == len(texts) - texts.null_count:
        return texts.cast(arrow_type(kind)), []
    plain = pc.if_else(are_plain, texts, pa.NULL).cast(arrow_type(kind))
    others, bad = _one_by_one(kind, pc.if_else(are_plain, pa.NULL, texts))
    return plain if others is None else pc.coalesce(plain, others), bad


def _moments(texts: pa.Array) -> tuple[pa.Array | None, BadRows]:
    moments = read_moments(texts, None)
    fits = moments.are_times & moments.are_exact
    bad = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False) & ~fits).tolist()
    told = [
        (row, ValueReason.OUT_OF_RANGE if moments.are_times[row] else ValueReason.WRONG_TYPE) for row in bad
    ]
    return pa.array(moments.us, pa.int64(), mask=~fits).cast(arrow_type("timestamptz")), told


def _one_by_one(kind: Any, texts: pa.Array) -> tuple[pa.Array | None, BadRows]:
    """By the exact rules, each text once."""
    encoded = texts.dictionary_encode()
    stored = [to_column(kind, text) for text in encoded.dictionary.to_pylist()]
    reasons = [value if isinstance(value, ValueReason) else None for value in stored]
    places = encoded.indices.fill_null(-1).to_numpy()
    are_bad = np.array([reason is not None for reason in reasons] + [False])[places]
    bad = [(row, reasons[places[row]]) for row in np.flatnonzero(are_bad).tolist()]
    if all(reasons):
        return None, bad
    values = [None if reason else value for value, reason in zip(stored, reasons, strict=True)]
    return pa.array(values, arrow_type(kind)).take(encoded.indices), bad
