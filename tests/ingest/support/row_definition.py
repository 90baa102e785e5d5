"""The definition of how a record is laid out, one value after the other: what `ingest.convert.layout` does by
columns is compared with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from ingest.convert.bad_values import MISSING_TIME
from ingest.convert.standard_fields import (
    LINE_FIELD,
    MESSAGE_NAMES,
    NAMES,
    NUMERIC_LEVELS,
    PRIORITY,
    SEVERITY_NAMES,
    SYSLOG_WORDS,
    TIMESTAMP_NAMES,
)
from ingest.convert.terms import Columns, TimeLimits
from ingest.convert.values import as_text, to_column
from ingest.decode.column_name import BadValue, column_name, is_usable, pointer
from ingest.decode.decoder import Fields, Pairs, is_text, json_text
from ingest.decode.event_time import instant_text, parse_instant
from ingest.decode.formats.registry import recognise
from ingest.decode.formats.text_line import to_pairs
from lake.errors import Reason, Rejected
from lake.log_schema import (
    MESSAGE,
    RESERVED_NAMES,
    SEVERITY,
    TIMESTAMP,
    ValueReason,
)

# A name that says so is worth an entry in _errors where it holds no time.
_SURE_TIMESTAMPS = (TIMESTAMP, "@timestamp")


@dataclass(slots=True)
class Row:
    """One record as columns. `values` holds the dynamic columns and `severity`, `message`; `origins` the
    paths that time, severity and message came from."""

    timestamp_us: int
    values: dict[str, Any]
    errors: list[BadValue]
    overflow: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)


def lay_out(
    fields: Fields, timestamp_ms: int, columns: Columns, limits: TimeLimits, local: tzinfo = UTC
) -> Row | Rejected:
    """Lays out one decoded record. `timestamp_ms`: its Kafka timestamp, by which lateness is judged and which
    stands in for a missing time.

    `local`: the zone of times that name none.
    """
    kafka_us = timestamp_ms * 1000
    if isinstance(fields, str):
        known = recognise(fields, kafka_us, local)
        if known is None:
            return Row(kafka_us, {MESSAGE: fields}, [])
        fields = to_pairs(*known)
    found: dict[str, tuple[str, Any]] = {}
    errors: list[BadValue] = []
    origins: dict[str, str] = {}
    _flatten(fields, "", "", found, errors, columns)
    timestamp_us = _timestamp(found, errors, origins, kafka_us, local)
    if timestamp_us is None:
        timestamp_us = kafka_us
    elif rejected := _out_of_limits(timestamp_us, kafka_us, limits):
        return rejected
    _severity(found, origins)
    _message(found, origins)
    values, overflow = _typed(found, errors, columns)
    return Row(timestamp_us, values, errors, overflow, origins)


def is_syslog_word(text: str) -> bool:
    """Whether a priority is one of syslog's."""
    return text.lower() in SYSLOG_WORDS


def without_line_end(text: str) -> str:
    """A line without the one line end it was written with."""
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _flatten(
    pairs: Pairs,
    prefix: str,
    path: str,
    found: dict[str, tuple[str, Any]],
    errors: list[BadValue],
    columns: Columns,
) -> None:
    for key, value in pairs:
        name, where = column_name(prefix, key), pointer(path, key)
        if isinstance(value, Pairs):
            _flatten(value, name, where, found, errors, columns)
        elif value is not None:
            _place(name, where, value, found, errors, columns)


def _place(
    name: str,
    path: str,
    value: Any,
    found: dict[str, tuple[str, Any]],
    errors: list[BadValue],
    columns: Columns,
) -> None:
    if not is_usable(name):
        errors.append(
            _error(
                path,
                value,
                ValueReason.RESERVED_NAME if name in RESERVED_NAMES else ValueReason.UNUSABLE_NAME,
            )
        )
    elif name not in found:
        found[name] = (path, value)
    elif found[name][0] == path:
        errors.append(_error(path, value, ValueReason.DUPLICATE_KEY))
    elif (columns.path_before if name in NAMES else columns.path)(name) == path:
        errors.append(_error(found[name][0], found[name][1], ValueReason.NAME_COLLISION))
        found[name] = (path, value)
    else:
        errors.append(_error(path, value, ValueReason.NAME_COLLISION))


def _severity(found: dict[str, tuple[str, Any]], origins: dict[str, str]) -> None:
    name = _severity_name(found)
    if name is None:
        return
    path, value = found[name]
    origins[SEVERITY] = path
    if name == SEVERITY:
        return
    if isinstance(value, str) and value in NUMERIC_LEVELS:
        found[SEVERITY] = (path, NUMERIC_LEVELS[value])
    else:
        found[SEVERITY] = found.pop(name)


def _severity_name(found: Mapping[str, tuple[str, Any]]) -> str | None:
    """The name under which a record says its severity, the surest first."""
    for name in SEVERITY_NAMES:
        if name in found and (name != PRIORITY or is_syslog_word(as_text(found[name][1]))):
            return name
    return None


def _message(found: dict[str, tuple[str, Any]], origins: dict[str, str]) -> None:
    name = next((name for name in MESSAGE_NAMES if name in found), None)
    if name is None:
        return
    path, value = found.pop(name)
    origins[MESSAGE] = path
    found[MESSAGE] = (
        path,
        without_line_end(value) if name == LINE_FIELD and isinstance(value, str) else value,
    )


def _timestamp(
    found: dict[str, tuple[str, Any]],
    errors: list[BadValue],
    origins: dict[str, str],
    kafka_us: int,
    local: tzinfo,
) -> int | None:
    bad = False
    for name in TIMESTAMP_NAMES:
        if name not in found:
            continue
        path, value = found[name]
        instant = parse_instant(value, kafka_us, local) if isinstance(value, str) else None
        if instant is not None:
            origins[TIMESTAMP] = path
            del found[name]
            # The column holds microseconds; what the record said beyond that is kept beside it.
            if not instant.exact:
                beside = f"{TIMESTAMP}__string" if name == TIMESTAMP else name
                if beside in found:
                    errors.append(_error(path, value, ValueReason.NAME_COLLISION))
                else:
                    found[beside] = path, value
            return instant.us
        if name in _SURE_TIMESTAMPS:
            errors.append(_error(path, value, ValueReason.BAD_TIMESTAMP))
            del found[name]
            bad = True
    if not bad:
        errors.append(MISSING_TIME)
    return None


def _out_of_limits(timestamp_us: int, kafka_us: int, limits: TimeLimits) -> Rejected | None:
    if limits.late_us is not None and timestamp_us < kafka_us - limits.late_us:
        return Rejected(
            Reason.TOO_LATE,
            f"happened {instant_text(timestamp_us)}, reached Kafka {instant_text(kafka_us)}: later than "
            "limits.late allows",
        )
    if limits.ahead_us is not None and timestamp_us > kafka_us + limits.ahead_us:
        return Rejected(
            Reason.TOO_FAR_AHEAD,
            f"happened {instant_text(timestamp_us)}, reached Kafka {instant_text(kafka_us)}: further ahead "
            "than limits.ahead_s",
        )
    return None


def _typed(
    found: Mapping[str, tuple[str, Any]], errors: list[BadValue], columns: Columns
) -> tuple[dict[str, Any], str | None]:
    values: dict[str, Any] = {}
    beyond: list[tuple[str, Any]] = []
    for name, (path, value) in found.items():
        if not columns.admits(name, path):
            beyond.append((name, value))
            continue
        stored = to_column(columns.kind(name), value)
        if isinstance(stored, ValueReason):
            errors.append(_error(path, value, stored))
        else:
            values[name] = stored
    return values, json_text(Pairs(beyond)) if beyond else None


def _error(path: str, value: Any, reason: ValueReason) -> BadValue:
    text, where = as_text(value), path
    return BadValue(
        where if is_text(where) else json_text(where), text if is_text(text) else json_text(text), reason
    )
