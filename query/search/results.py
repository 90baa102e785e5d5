"""Rows as the API gives them: what a record said, and where it came from."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

import orjson

from lake.clock import epoch_us
from lake.log_schema import (
    ERRORS,
    INDEX,
    MESSAGE,
    OBSERVED_TIMESTAMP,
    OFFSET,
    OVERFLOW,
    SEVERITY,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
)
from lake.severity import level_of
from query.model.instant import rfc3339
from query.model.problem import refuse


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Where a page ended: the order of rows is by time, then by identity."""

    timestamp_us: int
    topic_id: str
    partition: int
    offset: int
    index: int

    def to_text(self) -> str:
        raw = orjson.dumps([self.timestamp_us, self.topic_id, self.partition, self.offset, self.index])
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")


_SYSTEM = frozenset(SYSTEM_COLUMNS)
_AS_THEY_ARE = frozenset((str, int, bool, NoneType))
ORDER = (TIMESTAMP, TOPIC_ID, TOPIC_PARTITION, OFFSET, INDEX)


def parse_cursor(text: str) -> Cursor:
    """Reads a cursor. Raises BadRequestError."""
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        parts = None
    match parts:
        case [int(at_us), str(topic_id), int(partition), int(offset), int(index)] if all(
            -(2**63) <= n < 2**63 for n in (at_us, partition, offset, index)
        ):
            return Cursor(at_us, topic_id, partition, offset, index)
    raise refuse(
        "cursor: it is damaged; take it from the answer before, or leave it out to begin at the first page"
    )


def cursor_of(row: Mapping[str, Any]) -> Cursor:
    """The cursor that stands at a row of an engine."""
    return Cursor(epoch_us(row[TIMESTAMP]), row[TOPIC_ID], row[TOPIC_PARTITION], row[OFFSET], row[INDEX])


def to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row for the wire; columns without a value are left out of `fields`."""
    return {
        "timestamp": _plain(row[TIMESTAMP]),
        "observed_timestamp": _plain(row.get(OBSERVED_TIMESTAMP)),
        "severity": row.get(SEVERITY),
        "level": level_of(row.get(SEVERITY)).value,
        "message": row.get(MESSAGE),
        "fields": {
            name: value if type(value) in _AS_THEY_ARE else _plain(value)
            for name, value in row.items()
            if value is not None and name not in _SYSTEM
        },
        "errors": [_error(entry) for entry in row.get(ERRORS) or ()],
        "overflow": row.get(OVERFLOW),
        "coordinates": {
            "topic": row.get(TOPIC),
            "topic_id": row[TOPIC_ID],
            "partition": row[TOPIC_PARTITION],
            "offset": row[OFFSET],
            "index": row[INDEX],
        },
    }


def plain_row(values: Sequence[Any]) -> list[Any]:
    """The values of a row of any statement, as JSON can hold them."""
    return [value if type(value) in _AS_THEY_ARE else _plain(value) for value in values]


def _error(entry: Any) -> dict[str, Any]:
    """DuckDB gives dictionaries, Trino named tuples."""
    field, value, reason = (
        (entry[name] for name in ("field", "value", "reason")) if isinstance(entry, dict) else entry
    )
    return {"field": field, "value": value, "reason": reason}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date | time | UUID | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        names = getattr(value, "__annotations__", {}).get("names")
        if isinstance(value, tuple) and names:
            return {str(name): _plain(each) for name, each in zip(names, value, strict=True)}
        return [_plain(each) for each in value]
    return value
