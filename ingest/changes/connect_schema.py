"""The rows that a Connect schema describes: which field is which column, of which type.

What a schema means is kept by its bytes: to parse it costs more than all else that is done to a message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

import orjson
from cachetools import LRUCache, cached
from msgspec import Struct

from ingest.changes.change import Cells, RowImage
from ingest.changes.column_type import ColumnType, Typed, typed
from ingest.changes.column_value import Misfit, value_text
from ingest.changes.connect_message import decode_json
from ingest.changes.row_struct import Field, RowStruct
from ingest.changes.schema_change import second_column
from ingest.changes.unavailable import Placeholder
from ingest.decode.column_name import BadValue, column_name, is_usable, pointer
from ingest.decode.formats.json_object import Json
from lake.errors import Reason, Rejected
from lake.log_schema import POSITION, RESERVED_NAMES, TIMESTAMP, ValueReason

# Bytes of the schemas in use at a time: two for each table, and those before the last changes of its columns.
# What a schema means takes ten times its bytes, and a producer may send one as long as a message.
SCHEMA_BYTES_MAX = 8 << 20
_NUMBERS = frozenset((int, bool))
_NONE_UNAVAILABLE = frozenset[str]()


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The fields of a row. `refused`: fields that can be no columns, with their path and the reason why.
    `is_open`: whether a row may have further fields; they have no types. `struct`: of rows that have nothing
    but these fields, with values of their types."""

    fields: tuple[Field, ...]
    names: frozenset[str]
    types: Mapping[str, ColumnType]
    paths: Mapping[str, str]
    refused: Mapping[str, tuple[str, ValueReason]]
    is_open: bool = False
    struct: RowStruct = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct", RowStruct(self.fields))

    def decode(self, text: bytes, placeholder: Placeholder) -> RowImage | Rejected:
        """Reads a row from its JSON, as `read` does."""
        values = self.struct.read(text, placeholder)
        if values is not None:
            return RowImage(Cells(values, self.types, self.paths))
        return self.decode_by_value(text, placeholder)

    def image(self, row: Struct, placeholder: Placeholder) -> RowImage | None:
        """A row that was decoded to the struct; None where a value is not as the schema says."""
        values = self.struct.values(row, placeholder)
        return None if values is None else RowImage(Cells(values, self.types, self.paths))

    def decode_by_value(self, text: bytes, placeholder: Placeholder) -> RowImage | Rejected:
        """Reads a row that is known not to be as the struct has it."""
        row = decode_json(text)
        return row if isinstance(row, Rejected) else self.read(row, placeholder)

    def read(self, row: Any, placeholder: Placeholder) -> RowImage | Rejected:
        """Reads a row (what a JSON decoder gives). A value that does not fit leaves NULL and an error."""
        if type(row) is not dict:
            return _not_of_schema(f"the row is no object: {value_text(row)[:40]!r}")
        more = () if row.keys() <= self.names else sorted(row.keys() - self.names)
        if more and not self.is_open:
            return _not_of_schema(f"the schema has no field {more[0]!r}")
        values: dict[str, Any] = {}
        unavailable: list[str] = []
        errors: list[BadValue] = []
        texts = placeholder.texts
        for name, column, path, convert in self.fields:
            value = row.get(name)
            kind = type(value)
            if value is None:
                values[column] = None
            elif (value in texts) if kind is str else kind not in _NUMBERS and placeholder.stands_for(value):
                unavailable.append(column)
            else:
                stored = convert(value)
                if type(stored) is Misfit:
                    errors.append(BadValue(path, _error_text(value), stored.reason))
                    stored = stored.nearest
                values[column] = stored
        if self.refused:
            errors.extend(self._refused_values(row))
        paths = self._add_further(row, more, values, errors) if more else self.paths
        missing = frozenset(unavailable) if unavailable else _NONE_UNAVAILABLE
        return RowImage(Cells(values, self.types, paths), missing, tuple(errors))

    def _add_further(
        self, row: Mapping[str, Any], more: Sequence[str], values: dict[str, Any], errors: list[BadValue]
    ) -> Mapping[str, str]:
        """Adds the fields that the schema does not name; returns the paths of all."""
        paths = dict(self.paths)
        for name in more:
            column, path, value = row_column(name, "string"), pointer("", name), row[name]
            if (reason := refusal(column, paths)) is None:
                values[column], paths[column] = _untyped(value), path
            elif value is not None:
                errors.append(BadValue(path, _error_text(value), reason))
        return paths

    def _refused_values(self, row: Mapping[str, Any]) -> list[BadValue]:
        found = []
        for name, (path, reason) in self.refused.items():
            if row.get(name) is not None:
                found.append(BadValue(path, _error_text(row[name]), reason))
        return found


class Scalar(NamedTuple):
    """A schema that is no row: the type of a single value."""

    typed: Typed


class _Kept(NamedTuple):
    """What a schema of so many bytes means."""

    size: int
    schema: RowSchema | Scalar | Rejected


def row_schema(
    schema: bytes, members: tuple[str, ...] = (), left_out: tuple[str, ...] = ()
) -> RowSchema | Scalar | Rejected:
    """What a schema says of the payload, or of the first of its members that is one of `members` (`after`,
    `before`). `left_out`: fields that are no columns. NOT_OF_SCHEMA where it is no schema."""
    return _kept_schema(schema, members, left_out).schema


@cached(LRUCache(maxsize=SCHEMA_BYTES_MAX, getsizeof=lambda kept: kept.size), lock=Lock())
def _kept_schema(schema: bytes, members: tuple[str, ...], left_out: tuple[str, ...]) -> _Kept:
    return _Kept(len(schema), _parsed_schema(schema, members, left_out))


def _parsed_schema(
    schema: bytes, members: tuple[str, ...], left_out: tuple[str, ...]
) -> RowSchema | Scalar | Rejected:
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError as error:
        return _not_of_schema(f"the schema is not JSON: {error}")
    if not isinstance(parsed, dict) or not isinstance(parsed.get("type"), str):
        return _not_of_schema("the schema names no type")
    found = _find_member(parsed, members) if members else parsed
    if found.get("type") != "struct":
        return Scalar(typed(found))
    read = _read_fields(found.get("fields"), left_out)
    return read if isinstance(read, Rejected) else replace(read, is_open=found.get("open") is True)


def _find_member(schema: Mapping[str, Any], members: tuple[str, ...]) -> Mapping[str, Any]:
    fields = schema.get("fields")
    for member in fields if isinstance(fields, list) else ():
        if isinstance(member, dict) and member.get("field") in members:
            return member
    return {}


def _read_fields(schemas: Any, left_out: tuple[str, ...]) -> RowSchema | Rejected:
    fields: list[Field] = []
    types: dict[str, ColumnType] = {}
    paths: dict[str, str] = {}
    refused: dict[str, tuple[str, ValueReason]] = {}
    for schema in schemas if isinstance(schemas, list) else ():
        name = schema.get("field") if isinstance(schema, dict) else None
        if not isinstance(name, str):
            return _not_of_schema("a field of the schema has no name")
        if name in left_out:
            continue
        kind, convert = typed(schema)
        column, path = row_column(name, kind), pointer("", name)
        if (reason := refusal(column, types)) is not None:
            refused[name] = path, reason
            continue
        fields.append(Field(name, column, path, convert))
        types[column], paths[column] = kind, path
    names = frozenset(field.name for field in fields).union(refused, left_out)
    return RowSchema(tuple(fields), names, types, paths, refused)


def row_column(name: str, kind: ColumnType) -> str:
    """The column of a row's field. `timestamp` is the time of the change, so a field of that name has the
    column that a value of another type would get."""
    column = column_name("", name)
    return second_column(column, kind) if column == TIMESTAMP else column


def refusal(column: str, taken: Mapping[str, Any]) -> ValueReason | None:
    """Why a field can have no column of that name; None where it can."""
    # What a change says of its place in the source must not be said by its row.
    if column in RESERVED_NAMES or column == POSITION:
        return ValueReason.RESERVED_NAME
    if not is_usable(column):
        return ValueReason.UNUSABLE_NAME
    return ValueReason.NAME_COLLISION if column in taken else None


def _untyped(value: Any) -> Any:
    """A value as columns without a type have it."""
    return value if value is None or type(value) is str else Json(value_text(value))


def _error_text(value: Any) -> str:
    text = value_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return orjson.dumps(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")).decode()
    return text


def _not_of_schema(detail: str) -> Rejected:
    return Rejected(Reason.NOT_OF_SCHEMA, detail)
