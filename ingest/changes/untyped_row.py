"""Rows that come without types: JSON, whose values keep their spelling until a column's type is known."""

from collections.abc import Mapping
from typing import Any

from ingest.changes.change import Cells, RowImage
from ingest.changes.connect_message import as_text
from ingest.changes.connect_schema import refusal, row_column
from ingest.changes.unavailable import Placeholder
from ingest.decode.column_name import BadValue, column_name, pointer
from ingest.decode.formats.json_object import Json, Pairs, is_text, json_text, parse_object
from lake.errors import Rejected
from lake.log_schema import ValueReason
from lake.short_texts import kept_of_short_texts


def read_untyped(row: bytes, depth_max: int, placeholder: Placeholder) -> RowImage | Rejected:
    """Reads the JSON object of a row: objects in it become columns of their members, as in log tables."""
    text = as_text(row)
    pairs = parse_object(text, depth_max) if isinstance(text, str) else text
    return pairs if isinstance(pairs, Rejected) else lay_out_untyped(pairs, placeholder)


def lay_out_untyped(pairs: Pairs, placeholder: Placeholder) -> RowImage:
    """Lays out the members of a row as columns."""
    layout = _Layout(placeholder)
    layout.add(pairs, "", "")
    return RowImage(
        Cells(layout.values, {}, layout.paths), frozenset(layout.unavailable), tuple(layout.errors)
    )


_NOTHING: Mapping[str, Any] = {}


class _Layout:
    """The columns of a row that have been found so far."""

    def __init__(self, placeholder: Placeholder) -> None:
        self.placeholder = placeholder
        self.values: dict[str, Any] = {}
        self.paths: dict[str, str] = {}
        self.unavailable: list[str] = []
        self.errors: list[BadValue] = []

    def add(self, pairs: Pairs, prefix: str, path: str) -> None:
        """Adds the members of an object whose column prefix and path are given."""
        for key, value in pairs:
            if isinstance(value, Pairs) and not self.placeholder.stands_for_untyped(value):
                self.add(value, column_name(prefix, key), pointer(path, key))
                continue
            column, where, reason = _column_of(prefix, path, key)
            if reason is not None or column in self.paths:
                self._refuse(column, where, value, reason or ValueReason.NAME_COLLISION)
                continue
            self.paths[column] = where
            if self.placeholder.stands_for_untyped(value):
                self.unavailable.append(column)
            else:
                self.values[column] = value

    def _refuse(self, column: str, path: str, value: Any, reason: ValueReason) -> None:
        if self.paths.get(column) == path:
            reason = ValueReason.DUPLICATE_KEY
        if value is not None:
            self.errors.append(BadValue(_spelled(path), _spelled(value), reason))


@kept_of_short_texts(65_536)
def _column_of(prefix: str, path: str, key: str) -> tuple[str, str, ValueReason | None]:
    """The column and the path of a key inside an object, and why it can be no column, if so."""
    column = column_name(prefix, key) if prefix else row_column(key, "string")
    return column, pointer(path, key), refusal(column, _NOTHING)


def _spelled(value: Any) -> str:
    text = str(value) if isinstance(value, str) else json_text(value)
    return text if is_text(text) or isinstance(value, Json) else json_text(text)
