"""Time, severity and message: the three things that every log line has, found under the names that shippers
give them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.bad_values import RowError, bad_value
from ingest.convert.text_columns import STRING, Mask, TextColumn
from ingest.convert.times import read_moments
from ingest.decode.formats.syslog import SEVERITIES
from lake.log_schema import MESSAGE, SEVERITY, TIMESTAMP, ValueReason

# The surest name first.
TIMESTAMP_NAMES = (TIMESTAMP, "@timestamp", "time", "ts", "eventtime", "event_time", "datetime", "date")
SEVERITY_NAMES = (
    SEVERITY,
    "level",
    "log_level",
    "loglevel",
    "severity_text",
    "severitytext",
    "levelname",
    "priority",
)
MESSAGE_NAMES = (MESSAGE, "msg", "log", "event", "body", "text")
# What is beyond microseconds of a field that is called as the column.
FINER_TIMESTAMP = f"{TIMESTAMP}__string"
NAMES = frozenset((*TIMESTAMP_NAMES, *SEVERITY_NAMES, *MESSAGE_NAMES, FINER_TIMESTAMP))
# A name that says "this is the time" and holds none is worth an entry in _errors; `time: "12ms"` is not.
_SURE_TIMESTAMPS = (TIMESTAMP, "@timestamp")
# The levels of pino and bunyan; the number stays in its own column.
NUMERIC_LEVELS: Mapping[str, str] = {
    "10": "TRACE",
    "20": "DEBUG",
    "30": "INFO",
    "40": "WARN",
    "50": "ERROR",
    "60": "FATAL",
}
# A priority is a severity only in the words of syslog (syslog-ng writes it so); tickets and queues have
# priorities too.
PRIORITY = "priority"
SYSLOG_WORDS = frozenset((*SEVERITIES, "emergency", "critical", "error", "warn", "informational", "panic"))
# Docker and what reads its files keep the line's end in this field.
LINE_FIELD = "log"
_LINE_END = r"\r?\n\z"

Found = dict[str, TextColumn]


@dataclass(slots=True)
class Times:
    """The times of records. `us`: by row microseconds since 1970, Kafka's where it has no time. `are_told`:
    rows that say a time; `are_missing`: rows that do not even try to. `origin`: the fields they come from."""

    us: Any
    are_told: Mask
    are_missing: Mask
    origin: TextColumn | None = None


def take_times(found: Found, kafka_us: Any, local: tzinfo, first_turn: int, errors: list[RowError]) -> Times:
    """Takes the time out of the columns: of each row the first that can be read."""
    rows = len(kafka_us)
    times = Times(kafka_us.copy(), np.zeros(rows, bool), np.ones(rows, bool))
    for turn, name in enumerate(TIMESTAMP_NAMES, first_turn):
        if (column := found.get(name)) is None:
            continue
        tried = column.present & ~times.are_told
        if not tried.any():
            continue
        told, finer = _read_times(column, tried, times, kafka_us, local)
        is_sure = name in _SURE_TIMESTAMPS
        if is_sure and (failed := tried & ~told).any():
            errors += _errors(column, failed, turn, ValueReason.BAD_TIMESTAMP)
            times.are_missing &= ~failed
        # The column holds microseconds; what the record said beyond that is kept beside it.
        if name == TIMESTAMP and finer.any():
            _keep_beside(column, finer, found, turn, errors)
            finer = ~tried
        _keep(found, name, column, ~(tried if is_sure else told) | finer)
        if times.are_told.all():
            break
    times.are_missing &= ~times.are_told
    return times


def _read_times(
    column: TextColumn, tried: Mask, times: Times, kafka_us: Any, local: tzinfo
) -> tuple[Mask, Mask]:
    """Reads the times of some rows: which are times, and which of these say more than microseconds."""
    texts = column.texts if tried.all() else pc.if_else(pa.array(tried), column.texts, pa.NULL)
    moments = read_moments(texts, kafka_us, local)
    told = moments.are_times
    if told.any():
        times.us[told] = moments.us[told]
        times.are_told |= told
        times.origin = column if times.origin is None else times.origin.filled(column, told)
    return told, told & ~moments.are_exact


def _keep_beside(column: TextColumn, finer: Mask, found: Found, turn: int, errors: list[RowError]) -> None:
    beside = found.get(FINER_TIMESTAMP)
    if beside is None:
        found[FINER_TIMESTAMP] = column.only(finer)
        return
    taken = beside.present & finer
    errors += _errors(column, taken, turn, ValueReason.NAME_COLLISION)
    found[FINER_TIMESTAMP] = beside.filled(column, finer & ~taken)


def _errors(column: TextColumn, rows: Mask, turn: int, reason: ValueReason) -> list[RowError]:
    return [
        RowError(row, turn, bad_value(column.path(row), column.texts[row].as_py(), reason))
        for row in np.flatnonzero(rows).tolist()
    ]


def take_severity(found: Found) -> TextColumn | None:
    """Makes the column `severity` of what rows have under the surest of its names; returns it."""
    return _take_first(found, SEVERITY, SEVERITY_NAMES, _severities)


def take_message(found: Found) -> TextColumn | None:
    """Makes the column `message` of what rows have under the surest of its names; returns it."""
    return _take_first(found, MESSAGE, MESSAGE_NAMES, _messages)


# The values of the column from those of a field, and the rows whose field keeps its own beside.
_Read = Callable[[str, TextColumn], tuple[TextColumn, Mask | bool]]


def _take_first(found: Found, wanted: str, names: Sequence[str], read: _Read) -> TextColumn | None:
    chosen: TextColumn | None = None
    for name in names:
        column = found.get(name)
        if column is None or (chosen is not None and not chosen.texts.null_count):
            continue
        takes = column.present if chosen is None else column.present & ~chosen.present
        if name == PRIORITY:
            takes &= _are_syslog_words(column.texts)
        if not takes.any():
            continue
        values, beside = read(name, column)
        _keep(found, name, column, ~takes | beside)
        if chosen is not None:
            chosen = chosen.filled(values, takes)
        else:
            chosen = values if takes.all() else values.only(takes)
    if chosen is not None:
        found[wanted] = chosen
    return chosen


def _severities(name: str, column: TextColumn) -> tuple[TextColumn, Mask | bool]:
    numbers = pc.index_in(column.texts, pa.array(list(NUMERIC_LEVELS), STRING))
    if name == SEVERITY or numbers.null_count == len(numbers):
        return column, False
    words = pc.coalesce(pa.array(list(NUMERIC_LEVELS.values()), STRING).take(numbers), column.texts)
    return column.with_texts(words), numbers.is_valid().to_numpy(zero_copy_only=False)


def _messages(name: str, column: TextColumn) -> tuple[TextColumn, Mask | bool]:
    if name != LINE_FIELD or not pc.any(pc.ends_with(column.texts, "\n")).as_py():
        return column, False
    return column.with_texts(pc.replace_substring_regex(column.texts, _LINE_END, "")), False


def _are_syslog_words(texts: pa.Array) -> Mask:
    words = texts.dictionary_encode()
    known = np.array([word.lower() in SYSLOG_WORDS for word in words.dictionary.to_pylist()] + [False])
    return known[words.indices.fill_null(-1).to_numpy()]


def _keep(found: Found, name: str, column: TextColumn, rows: Mask) -> None:
    """Leaves a column only what it has in some rows."""
    if rows.any():
        found[name] = column.only(rows)
    else:
        del found[name]
