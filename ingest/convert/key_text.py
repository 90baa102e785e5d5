"""A key as text, as histories have it: a JSON object whose values are spelled as searches show them, so that
whoever has a row finds its history."""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import orjson

from ingest.changes.change import Cells
from ingest.changes.column_type import ColumnType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)


def _local(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None).isoformat()


def _instant(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")


def _time(us: int) -> str:
    return str((datetime.combine(_EPOCH_DAY, time()) + timedelta(microseconds=us)).time())


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


# As `ingest.changes.column_value` stores them.
_TEXTS: Mapping[ColumnType, Callable[[Any], str]] = {
    "date": lambda days: str(_EPOCH_DAY + timedelta(days=days)),
    "time": _time,
    "timestamp": _local,
    "timestamptz": _instant,
    "uuid": lambda value: str(UUID(bytes=value)),
    "binary": _bytes,
}


def key_text(key: Cells) -> str | None:
    """The text of a key; None where there is none, as of a table that was emptied."""
    if not key.values:
        return None
    told = {name: _told(value, key.types.get(name)) for name, value in key.values.items()}
    return orjson.dumps(told, default=str).decode()


def _told(value: Any, kind: ColumnType | None) -> Any:
    text = None if kind is None else _TEXTS.get(kind)
    return value if text is None else text(value)
