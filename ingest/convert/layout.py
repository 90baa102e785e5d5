"""Columns of text laid out as the columns of a table: time, severity and message found, names and types as
the table has them, what does not fit noted in `_errors`.

These are the rules for every record, however it was decoded and however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.convert.bad_values import MISSING_TIME, RowError, bad_value, errors_column, missing_times
from ingest.convert.kept_times import KeptTimes
from ingest.convert.standard_fields import NAMES, Found, Times, take_message, take_severity, take_times
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.convert.text_columns import STRING, Gathered, Mask, TextColumn, TextColumns, Twin
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
    `_overflow` among them. `kept`: which records they are, ascending. `rejected`: others, with the reason.

    `origins`: what time, severity and message come from; `found`: where the values of other columns come
    from. Both by record.
    """

    columns: dict[str, pa.Array]
    kept: Any
    rejected: Sequence[tuple[int, Rejected]]
    origins: Mapping[str, TextColumn]
    found: Mapping[str, TextColumn | Gathered]


def lay_out(records: TextColumns, kafka_us: Any, terms: Terms) -> LaidOut:
    """Lays out decoded records, which are used up. `kafka_us`: int64 numpy array of their Kafka timestamps in
    microseconds, by which lateness is judged, and which stand in for missing times."""
    errors = [*records.errors]
    twins = _Twins(records, errors)
    standard: Found = {}
    for name in [name for name in records.columns if name in NAMES]:
        # What a record says of its time does not depend on which records came with it.
        column = twins.settle(name, records.columns[name], terms.columns.path_before(name))
        standard[name] = column.column(records.rows) if isinstance(column, Gathered) else column
    times = take_times(standard, kafka_us, terms.local, _TIME_TURN, errors)
    severity, message = take_severity(standard), take_message(standard)
    found = {name: column for name, column in records.columns.items() if name not in NAMES} | standard
    keep = np.ones(records.rows, bool)
    rejected = _out_of_limits(times, kafka_us, terms.time)
    keep[[row for row, _ in rejected]] = False
    rejected += _past_retention(times, keep, terms.time.kept)
    if not keep.all():  # a dead letter makes no column
        found = {name: column.only(keep) for name, column in found.items()}
        errors[:] = [error for error in errors if keep[error.row]]
        twins.leave(~keep)
    typing = _Typing(terms.columns, records.rows, errors, twins)
    for name, column in found.items():
        typing.take(name, column)
    columns = typing.columns
    columns[TIMESTAMP] = pa.array(times.us).view(UTC_US)
    missing = times.are_missing & keep if records.tells_time else np.zeros(records.rows, bool)
    if errors or missing.any():
        columns[ERRORS] = _told(records.rows, errors, missing)
    if typing.beyond:
        columns[OVERFLOW] = typing.overflow
    if not keep.all():
        kept = pa.array(keep)
        columns = {name: column.filter(kept) for name, column in columns.items()}
    origins = {TIMESTAMP: times.origin, SEVERITY: severity, MESSAGE: message}
    known = {name: column for name, column in origins.items() if column is not None}
    return LaidOut(columns, np.flatnonzero(keep), rejected, known, found)


class _Twins:
    """Which of several values of a row a column keeps: the one from the column's own path, else the first."""

    def __init__(self, records: TextColumns, errors: list[RowError]) -> None:
        self._errors = errors
        self._of: dict[str, list[Twin]] = {}
        for twin in records.twins:
            self._of.setdefault(twin.name, []).append(twin)

    def leave(self, rows: Mask) -> None:
        """Says nothing more of some rows."""
        self._of = {name: [twin for twin in twins if not rows[twin.row]] for name, twins in self._of.items()}

    def settle(self, name: str, column: TextColumn | Gathered, path: str | None) -> TextColumn | Gathered:
        """The column of a name, with errors told of what it does not keep. `path`: its own."""
        if name in self._of:
            assert isinstance(column, Gathered)
            for row, turn, _, cell in self._of[name]:
                reason, loser = ValueReason.NAME_COLLISION, cell
                if column.path(row) == cell.path:
                    reason = ValueReason.DUPLICATE_KEY
                elif path == cell.path:
                    loser = column.swap(row, cell)
                self._errors.append(RowError(row, turn, bad_value(loser.path, loser.text, reason)))
        return column


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


def _past_retention(times: Times, keep: Any, kept: KeptTimes | None) -> list[tuple[int, Rejected]]:
    """Takes the records out of `keep` whose rows maintenance would delete at once."""
    late = None if kept is None else kept.late(times.us)
    if kept is None or late is None:
        return []
    rows = np.flatnonzero(late & keep).tolist()
    keep[rows] = False
    return [(row, kept.why(int(times.us[row]))) for row in rows]


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


class _Typing:
    """Columns of text on their way to the types of a table. `beyond`: by row, as JSON, the members that the
    table has no column for."""

    def __init__(self, columns: Columns, rows: int, errors: list[RowError], twins: _Twins) -> None:
        self._known = columns
        self._rows = rows
        self._errors = errors
        self._twins = twins
        self._turn = _TYPE_TURN
        self.columns: dict[str, pa.Array] = {}
        self.beyond: dict[int, list[str]] = {}

    def take(self, name: str, column: TextColumn | Gathered) -> None:
        """Takes one column that the table has or gets, or keeps its values with what is beyond."""
        if column.is_empty:
            return
        admitted = self._known.admits(name, column.first_path)
        if name not in NAMES:
            column = self._twins.settle(name, column, self._known.path(name))
        if not admitted:
            self._add_beyond(name, column)
            return
        if isinstance(column, Gathered):
            column = column.column(self._rows)
        values, bad = _values(self._known.kind(name), column)
        for row, reason in bad:
            told = bad_value(column.path(row), column.texts[row].as_py(), reason)
            self._errors.append(RowError(row, self._turn, told))
        self._turn += 1
        if values is not None and values.null_count < len(values):
            self.columns[name] = values

    def _add_beyond(self, name: str, column: TextColumn | Gathered) -> None:
        key = json_text(name)
        for row, text in column.cells():
            value = json_text(text) if column.is_text(row) else text
            self.beyond.setdefault(row, []).append(f"{key}:{value}")

    @property
    def overflow(self) -> pa.Array:
        """The column `_overflow`."""
        texts = {row: "{" + ",".join(members) + "}" for row, members in self.beyond.items()}
        return pa.array([texts.get(row) for row in range(self._rows)], STRING)


def _values(kind: Any, column: TextColumn) -> tuple[pa.Array | None, BadRows]:
    if kind != "string":
        return typed_values(kind, column.texts)
    unspellable = column.unspellable
    if not unspellable:
        return column.texts, []
    spellable = np.ones(len(column.texts), bool)
    spellable[unspellable] = False
    return column.only(spellable).texts, [(row, ValueReason.INVALID_TEXT) for row in unspellable]


def _told(rows: int, errors: list[RowError], missing: Any) -> pa.Array:
    """The column `_errors`. `missing`: the rows that should have a time, and have none."""
    if not errors:
        return missing_times(missing)
    without = [RowError(row, _MISSING_TURN, MISSING_TIME) for row in np.flatnonzero(missing).tolist()]
    return errors_column(rows, errors + without)
