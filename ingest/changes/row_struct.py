"""Rows all of whose values are as their schema says, decoded at once.

Each schema has a struct (msgspec) whose decoder takes nothing else: a value of another type, a field that the
schema does not name or a value that the source did not send leaves the row to be read value by value, which
says what is wrong with it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, astuple

from ingest.changes import column_value as values
from ingest.changes.column_value import Convert, Misfit
from ingest.changes.unavailable import Placeholder
from ingest.decode.formats.json_object import Json

# To make a struct takes as long as to read some fifty rows value by value.
READS_BEFORE = 64
# Values that a column holds as the decoder gives them; a number with a point or an exponent is no integer.
_AS_DECODED: dict[Convert, Any] = {
    values.to_boolean: bool,
    values.to_string: str,
    values.to_int: Annotated[int, Meta(ge=-values.INT_MAX - 1, le=values.INT_MAX)],
    values.to_long: Annotated[int, Meta(ge=-values.LONG_MAX - 1, le=values.LONG_MAX)],
    values.to_date: Annotated[int, Meta(ge=values.DAY_FIRST, le=values.DAY_LAST)],
    values.to_timestamp: Annotated[int, Meta(ge=values.US_FIRST, le=values.US_LAST)],
    values.to_time: Annotated[int, Meta(ge=0, le=values.DAY_US - 1)],
}


# What a decoder raises for JSON that it does not take.
NOT_DECODED = (msgspec.MsgspecError, RecursionError, ValueError)
Decode = Callable[[bytes], Any]


class Field(NamedTuple):
    """One field of a row and its column."""

    name: str
    column: str
    path: str
    convert: Convert


class RowStruct:
    """Decodes rows of some fields, whose names differ."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._columns = [field.column for field in fields]
        self._named = all(map(_can_be_attribute, self._columns))
        self._texts = [field.column for field in fields if field.convert is values.to_string]
        self._converted = [
            (field.column, field.convert) for field in fields if field.convert not in _AS_DECODED
        ]
        self._reads = 0
        self._decode: Decode | None = None
        self._decode_around: Decode | None = None

    def read(self, text: bytes, placeholder: Placeholder) -> dict[str, Any] | None:
        """The values by column; None where one is not as the schema says."""
        if self._decode is None:
            self._reads += 1
            if self._reads < READS_BEFORE:
                return None
            self._decode = decoder(self._struct)
        try:
            row = self._decode(text)
        except NOT_DECODED:
            return None
        return self.values(row, placeholder)

    def values(self, row: msgspec.Struct, placeholder: Placeholder) -> dict[str, Any] | None:
        """Those of a row that is decoded, by column; None where one is not as the schema says."""
        # The first takes a third of the time.
        found = asdict(row) if self._named else dict(zip(self._columns, astuple(row), strict=True))
        texts = placeholder.texts
        if not texts.isdisjoint(map(found.get, self._texts)):
            return None
        for column, convert in self._converted:
            value = found[column]
            if value is None:
                continue
            kind = type(value)
            if (value in texts) if kind is str else (kind is not int and placeholder.stands_for(value)):
                return None
            stored = convert(value)
            if type(stored) is Misfit:
                return None
            found[column] = stored
        return found

    def decode_around(self, envelope: Callable[[type[msgspec.Struct]], Decode]) -> Decode | None:
        """What decodes the messages that such rows are in together with them; None as long as rows are read
        value by value. `envelope` makes it of the rows' struct, once."""
        if self._decode_around is None and self._decode is not None:
            self._decode_around = envelope(self._struct)
        return self._decode_around

    @cached_property
    def _struct(self) -> type[msgspec.Struct]:
        # Fields may have any name, attributes may not.
        attributes = self._columns if self._named else [f"f{at}" for at in range(len(self._fields))]
        names = {attribute: field.name for attribute, field in zip(attributes, self._fields, strict=True)}
        return msgspec.defstruct(
            "Row",
            [
                (attribute, _decoded_type(field.convert), None)
                for attribute, field in zip(attributes, self._fields, strict=True)
            ],
            rename=names,
            forbid_unknown_fields=True,
            gc=False,
        )


def decoder(struct: type[msgspec.Struct]) -> Decode:
    """What decodes JSON to a struct; numbers with a fraction or an exponent are `Json`."""
    return msgspec.json.Decoder(struct, float_hook=Json).decode


def _can_be_attribute(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_")


def _decoded_type(convert: Convert) -> Any:
    kind = _AS_DECODED.get(convert)
    return Any if kind is None else kind | None
