"""Columns of text laid out as the columns of a table: time, severity and message found, names and types as
the table has them, what does not fit noted in `_errors`.

These are the rules for every record, however it was decoded and however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.convert.bad_values import MISSING_TIME, RowError, bad_value, errors_column, missing_times
from ingest.convert.standard_fields import NAMES, Found, Times, take_message, take_severity, take_times
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.convert.text_columns import STRING, TextColumn, TextColumns, Twin
from ingest.convert.times import UTC_US
from ingest.convert.typed_values import BadRows, typed_values
from ingest.decode.decoder import json_text
from ingest.decode.event_time import instant_text
from lake.errors import Reason, Rejected
from lake.log_schema import ERRORS, MESSAGE, OVERFLOW, SEVERITY, TIMESTAMP, ValueReason

# Errors of a row are told in the order of these: of its members, its time, the types of its columns.
_TIME_TURN, _MISSING_TURN, _TYPE_TURN = 1 << 40, (1 << 40) + (1 << 20), 1 << 41


@dataclass(slots=True)
class LaidOut:
    """Rows of a table. `columns`: by name, `timestamp` and where they have any value `_errors` and
    `_overflow` among them. `kept`: which records they are, in order (None: all); the others are in
    `rejected`.

    `origins`: what time, severity and message come from. `found`: where the values of the other columns come
    from.
    """

    columns: dict[str, pa.Array]
    kept: Any = None  # an array of positions
    rejected: Sequence[tuple[int, Rejected]] = ()
    origins: Mapping[str, TextColumn] = field(default_factory=dict)
    found: Mapping[str, TextColumn] = field(default_factory=dict)


def lay_out(records: TextColumns, kafka_us: Any, terms: Terms) -> LaidOut:
    """Lays out decoded records. `kafka_us`: int64 numpy array of their Kafka timestamps in microseconds, by
    which lateness is judged, and which stand in for missing times."""
    found, errors = dict(records.columns), [*records.errors]
    twins: dict[str, list[Twin]] = {}
    for twin in records.twins:
        twins.setdefault(twin.name, []).append(twin)
    for name in NAMES.intersection(twins):
        found[name] = _with_twins(found[name], twins.pop(name), terms.columns.path(name), errors)
    times = take_times(found, kafka_us, terms.local, _TIME_TURN, errors)
    if rejected := _out_of_limits(times, kafka_us, terms.time):
        return _without(rejected, records, kafka_us, terms)
    severity, message = take_severity(found), take_message(found)
    columns, overflow = _typed(found, twins, terms.columns, errors)
    columns[TIMESTAMP] = pa.array(times.us).cast(UTC_US)
    missing = times.are_missing if records.tells_time else None
    if (told := _told(records.rows, errors, missing)) is not None:
        columns[ERRORS] = told
    if overflow:
        columns[OVERFLOW] = pa.array([overflow.get(row) for row in range(records.rows)], STRING)
    origins = {TIMESTAMP: times.origin, SEVERITY: severity, MESSAGE: message}
    known = {name: column for name, column in origins.items() if column is not None}
    return LaidOut(columns, origins=known, found=found)


def _without(
    rejected: Sequence[tuple[int, Rejected]], records: TextColumns, kafka_us: Any, terms: Terms
) -> LaidOut:
    """Lays out the records that are not rejected: a dead letter makes no column."""
    keep = np.ones(records.rows, bool)
    keep[[row for row, _ in rejected]] = False
    laid = lay_out(records.filter(keep), kafka_us[keep], terms) if keep.any() else LaidOut({})
    laid.kept, laid.rejected = np.flatnonzero(keep), rejected
    return laid


def _with_twins(
    column: TextColumn, twins: Sequence[Twin], path: str | None, errors: list[RowError]
) -> TextColumn:
    """Of several values of a row the one is kept that comes from the column's own path, else the first."""
    fields, texts = list(column.fields), column.texts.to_pylist()
    which = [0] * len(texts) if column.which is None else column.which.tolist()
    for twin in twins:
        own = fields[which[twin.row]].path
        if own == twin.path:
            reason, loser = ValueReason.DUPLICATE_KEY, (twin.path, twin.text)
        elif path == twin.path:
            reason, loser = ValueReason.NAME_COLLISION, (own, texts[twin.row])
            which[twin.row], texts[twin.row] = len(fields), twin.text
            fields.append(twin.as_field)
        else:
            reason, loser = ValueReason.NAME_COLLISION, (twin.path, twin.text)
        errors.append(RowError(twin.row, twin.turn, bad_value(*loser, reason)))
    return TextColumn(pa.array(texts, STRING), tuple(fields), np.array(which))


def _out_of_limits(times: Times, kafka_us: Any, limits: TimeLimits) -> list[tuple[int, Rejected]]:
    distances = times.us - kafka_us
    rejected = list[tuple[int, Rejected]]()
    if limits.late_us is not None:
        late = times.are_told & (distances < -limits.late_us)
        rejected += _rejected(late, times, kafka_us, Reason.TOO_LATE, "later than limits.late allows")
    if limits.ahead_us is not None:
        ahead = times.are_told & (distances > limits.ahead_us)
        rejected += _rejected(
            ahead, times, kafka_us, Reason.TOO_FAR_AHEAD, "further ahead than limits.ahead_s"
        )
    return rejected


def _rejected(rows: Any, times: Times, kafka_us: Any, reason: Reason, why: str) -> list[tuple[int, Rejected]]:
    return [
        (
            row,
            Rejected(
                reason,
                f"happened {instant_text(int(times.us[row]))}, reached Kafka "
                f"{instant_text(int(kafka_us[row]))}: {why}",
            ),
        )
        for row in np.flatnonzero(rows).tolist()
    ]


def _typed(
    found: Found, twins: Mapping[str, Sequence[Twin]], columns: Columns, errors: list[RowError]
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """The columns that the table has or gets, in its types; and by row what is beyond its limit, as JSON."""
    typed: dict[str, pa.Array] = {}
    beyond: dict[int, list[str]] = {}
    for turn, (name, column) in enumerate(found.items(), _TYPE_TURN):
        if column.texts.null_count == len(column.texts):
            continue
        admitted = columns.admits(name, column.first_path)
        if name in twins:
            column = found[name] = _with_twins(column, twins[name], columns.path(name), errors)
        if not admitted:
            _add_overflow(name, column, beyond)
            continue
        values, bad = _values(columns.kind(name), column)
        for row, reason in bad:
            told = bad_value(column.path(row), column.texts[row].as_py(), reason)
            errors.append(RowError(row, turn, told))
        if values is not None and values.null_count < len(values):
            typed[name] = values
    return typed, {row: "{" + ",".join(members) + "}" for row, members in beyond.items()}


def _values(kind: Any, column: TextColumn) -> tuple[pa.Array | None, BadRows]:
    if kind != "string":
        return typed_values(kind, column.texts)
    unspellable = column.unspellable
    if not unspellable:
        return column.texts, []
    spellable = np.ones(len(column.texts), bool)
    spellable[unspellable] = False
    return column.only(spellable).texts, [(row, ValueReason.INVALID_TEXT) for row in unspellable]


def _add_overflow(name: str, column: TextColumn, beyond: dict[int, list[str]]) -> None:
    key = json_text(name)
    for row, text in enumerate(column.texts.to_pylist()):
        if text is not None:
            value = json_text(text) if column.is_text(row) else text
            beyond.setdefault(row, []).append(f"{key}:{value}")


def _told(rows: int, errors: list[RowError], missing: Any) -> pa.Array | None:
    """The column `_errors`, None where there are none. `missing`: the rows that should have a time, and have
    none."""
    if missing is None or not missing.any():
        return errors_column(rows, errors) if errors else None
    if not errors:
        return missing_times(missing)
    without = [RowError(row, _MISSING_TURN, MISSING_TIME) for row in np.flatnonzero(missing).tolist()]
    return errors_column(rows, errors + without)
