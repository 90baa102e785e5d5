"""The key of a changed row: the message key, or fields of the row that the settings name."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from msgspec import Struct

from ingest.changes.change import Cells, ReadOptions, RowImage
from ingest.changes.column_type import ColumnType
from ingest.changes.column_value import Misfit
from ingest.changes.connect_message import as_text, decode_json
from ingest.changes.connect_schema import RowSchema, Scalar, row_column
from ingest.changes.message_opener import MessageOpener
from ingest.changes.unavailable import placeholder
from ingest.changes.untyped_row import lay_out_untyped
from ingest.decode.column_name import pointer
from ingest.decode.formats.json_object import BLANK_BYTES, Pairs, parse_object
from lake.errors import Reason, Rejected

Value = TypeVar("Value")

# The column of a key that is one value without a name.
KEY_COLUMN = "_key"
# Every value of a key is there, whatever it looks like.
NEVER_UNAVAILABLE = placeholder("\0")
_opener = MessageOpener()


class MessageKey(Struct, frozen=True, gc=False):
    """A key as cells, and the schema that it came with."""

    cells: Cells
    schema: RowSchema | None = None


def find_key(message: bytes | None, image: RowImage, options: ReadOptions) -> MessageKey | Rejected:
    """The key of a changed row: by the settings from the row, else the message key.

    KEY_MISSING where there is none or a part is null, KEY_UNUSABLE where a part cannot be stored exactly.
    """
    if not options.key_fields:
        return read_key(message, options)
    found = key_of_row(image, options.key_fields)
    if not isinstance(found, Rejected):
        return MessageKey(found)
    key = read_key(message, options)
    named = found if isinstance(key, Rejected) else key_of_row(RowImage(key.cells), options.key_fields)
    return found if isinstance(named, Rejected) else MessageKey(named)


def read_key(message: bytes | None, options: ReadOptions) -> MessageKey | Rejected:
    """Reads a message key: an object, whose members are the key's columns, or one value; reasons as for
    `find_key`."""
    if not message:
        return Rejected(Reason.KEY_MISSING, "the message has no key")
    opened = _opener.open(message, options.depth_max)
    if isinstance(opened, Rejected):
        return _unusable(opened)
    schema, payload = opened.schema, opened.payload
    if schema is None:
        return _untyped_key(payload, options)
    if isinstance(schema, RowSchema):
        values = schema.struct.read(payload, NEVER_UNAVAILABLE)
        if values and None not in values.values():  # as good as always
            return MessageKey(Cells(values, schema.types, schema.paths), schema)
    return _typed_key(payload, schema, options)


def read_header_key(text: bytes, key: MessageKey, options: ReadOptions) -> Cells | Rejected:
    """Reads the key that a header names: it has the fields of the message's own, mostly without a schema."""
    opened = _opener.open(text, options.depth_max)
    if isinstance(opened, Rejected):
        return _unusable(opened)
    if opened.schema is None and key.schema is not None:
        other = _typed_key(opened.payload, key.schema, options)
    else:
        other = read_key(text, options)
    if isinstance(other, Rejected) or not options.key_fields:
        return other if isinstance(other, Rejected) else other.cells
    return key_of_row(RowImage(other.cells), options.key_fields)


def key_of_row(image: RowImage, fields: Sequence[str]) -> Cells | Rejected:
    """The key that is these fields of a row; reasons as for `find_key`."""
    paths = {pointer("", field) for field in fields}
    for bad in image.errors:
        if bad.field in paths:
            return Rejected(Reason.KEY_UNUSABLE, f"{bad.field} cannot be stored exactly: {bad.reason}")
    columns = []
    for field in fields:
        column = _column_of(field, image.cells.paths)
        if column is None or image.cells.values.get(column) is None:
            return Rejected(Reason.KEY_MISSING, f"the row has no {field}, which is to be its key")
        columns.append(column)
    return _narrowed(image.cells, tuple(columns))


def _column_of(field: str, paths: Mapping[str, str]) -> str | None:
    """The column that a row's field has; None where the row has no such field."""
    path, column = pointer("", field), row_column(field, "string")
    if paths.get(column) == path:
        return column
    # Its name says its type, too.
    return next((name for name, of in paths.items() if of == path), None)


def _narrowed(cells: Cells, columns: tuple[str, ...]) -> Cells:
    types, paths = _narrowed_types(cells, columns)
    return Cells({column: cells.values[column] for column in columns}, types, paths)


class _Narrowed(NamedTuple):
    """The types and paths of a key, and the types of the rows that it was made for."""

    of: Mapping[str, ColumnType]
    types: Mapping[str, ColumnType]
    paths: Mapping[str, str]


# Keys of one schema share their types as its rows do: who groups rows by them finds one group.
# As many columns as the types of the rows have that this holds.
NARROWED_COLUMNS_MAX = 65_536
_narrowed_by_types: dict[tuple[int, tuple[str, ...]], _Narrowed] = {}


def _narrowed_types(
    cells: Cells, columns: tuple[str, ...]
) -> tuple[Mapping[str, ColumnType], Mapping[str, str]]:
    if not cells.types:
        return {}, _selected(cells.paths, columns)
    at = id(cells.types), columns
    known = _narrowed_by_types.get(at)
    if known is None:
        if sum(len(each.of) for each in list(_narrowed_by_types.values())) >= NARROWED_COLUMNS_MAX:
            _narrowed_by_types.clear()
        # It holds the types of the rows, so that no others get their id.
        known = _Narrowed(cells.types, _selected(cells.types, columns), _selected(cells.paths, columns))
        _narrowed_by_types[at] = known
    return known.types, known.paths


def _selected(of: Mapping[str, Value], columns: Sequence[str]) -> dict[str, Value]:
    return {column: of[column] for column in columns if column in of}


def _typed_key(payload: bytes, schema: RowSchema | Scalar, options: ReadOptions) -> MessageKey | Rejected:
    if payload.strip(BLANK_BYTES) == b"null":
        return Rejected(Reason.KEY_MISSING, "the key is null")
    if isinstance(schema, RowSchema):
        cells = _complete(schema.decode(payload, NEVER_UNAVAILABLE))
        return cells if isinstance(cells, Rejected) else MessageKey(cells, schema)
    value = decode_json(payload)
    if isinstance(value, Rejected):
        return _unusable(value)
    stored = schema.typed.convert(value)
    if type(stored) is Misfit:
        return Rejected(Reason.KEY_UNUSABLE, f"the key cannot be stored exactly: {stored.reason}")
    types, paths = _single_column(options, schema.typed.kind)
    return MessageKey(Cells(dict.fromkeys(types, stored), types, paths))


def _untyped_key(key: bytes, options: ReadOptions) -> MessageKey | Rejected:
    text = as_text(key)
    if isinstance(text, Rejected):
        return _unusable(text)
    if text[:1] == "{":
        pairs = parse_object(text, options.depth_max)
        cells = _complete(pairs if isinstance(pairs, Rejected) else lay_out_untyped(pairs, NEVER_UNAVAILABLE))
        return cells if isinstance(cells, Rejected) else MessageKey(cells)
    value = _single_value(text, options.depth_max)
    if value is None:
        return Rejected(Reason.KEY_MISSING, "the key is null")
    columns, paths = _single_column(options, "string")
    return MessageKey(Cells(dict.fromkeys(columns, value), {}, paths))


def _single_value(text: str, depth_max: int) -> str | None:
    """A key that is no object: a value of JSON; text that is no JSON stands for itself."""
    pairs = parse_object('{"key":' + text + "}", depth_max)
    if not isinstance(pairs, Pairs) or len(pairs) != 1:
        return text
    value = pairs[0][1]
    return value if value is None or isinstance(value, str) else text


@lru_cache(maxsize=256)
def _single_column(
    options: ReadOptions, kind: ColumnType
) -> tuple[Mapping[str, ColumnType], Mapping[str, str]]:
    """The column of a key of one value, with its type and its path: that of the one field that the settings
    name, else `_key`."""
    if len(options.key_fields) != 1:
        return {KEY_COLUMN: kind}, {}
    field = options.key_fields[0]
    column = row_column(field, kind)
    return {column: kind}, {column: pointer("", field)}


def _complete(image: RowImage | Rejected) -> Cells | Rejected:
    """The cells of a key all of whose parts are there and fit."""
    if isinstance(image, Rejected):
        return _unusable(image)
    if image.errors:
        bad = image.errors[0]
        return Rejected(Reason.KEY_UNUSABLE, f"{bad.field} of the key cannot be stored exactly: {bad.reason}")
    values = image.cells.values
    if not values or None in values.values():
        named = ", ".join(column for column, value in values.items() if value is None)
        return Rejected(Reason.KEY_MISSING, f"the key has no {named}" if named else "the key has no fields")
    return image.cells


def _unusable(rejected: Rejected) -> Rejected:
    """A key that could not be read, whatever the reason."""
    return Rejected(Reason.KEY_UNUSABLE, f"the key cannot be read: {rejected.detail}")
