"""Where a value goes whose type is not that of its column: the column is kept, it is widened, or the value
has a second column. Nothing stops, and nothing that is stored changes.

| the column | the value | what happens |
|---|---|---|
| holds every value of that type | | kept |
| int | long | widened |
| float | double | widened |
| decimal | decimal of more digits before the point, and none more after it | widened |
| list, map | of a type that widens by the same rules | widened |
| any other | | a second column, `amount__decimal_14_4` |

These are all the promotions that format version 2 of Iceberg knows (specification, "Schema Evolution").
"""

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from ingest.changes.column_type import (
    DECIMAL_PRECISION_MAX,
    ColumnType,
    ListType,
    MapType,
    decimal_type,
    parse_decimal,
)
from lake.log_schema import NAME_BYTES_MAX

_HASH_DIGITS = 16


class Fit(StrEnum):
    """What becomes of a column when a value of a type comes."""

    KEEP = "keep"
    WIDEN = "widen"
    SECOND_COLUMN = "second_column"


class KnownColumn(NamedTuple):
    """A column that the table has. `path`: the field that it is for."""

    kind: ColumnType
    path: str | None


class Placement(NamedTuple):
    """The column that takes the values of a field, and the type that it has then. `is_new`: the table has no
    such column yet; `is_widened`: it has, of a narrower type."""

    column: str
    kind: ColumnType
    is_new: bool = False
    is_widened: bool = False


def compare(existing: ColumnType, incoming: ColumnType | None) -> tuple[Fit, ColumnType]:
    """What becomes of a column of the type `existing`, and the type that it has then. `incoming`: None for a
    value without a type, which is converted to whatever its column is."""
    if incoming is None or existing == incoming:
        return Fit.KEEP, existing
    if isinstance(existing, ListType) and isinstance(incoming, ListType):
        fit, element = compare(existing.element, incoming.element)
        return fit, ListType(element)
    if isinstance(existing, MapType) and isinstance(incoming, MapType):
        # Iceberg lets nobody change the type of a map's key.
        if existing.key != incoming.key:
            return Fit.SECOND_COLUMN, incoming
        fit, value = compare(existing.value, incoming.value)
        return fit, MapType(existing.key, value)
    return _compare_primitives(existing, incoming)


def promotes(before: ColumnType, after: ColumnType) -> bool:
    """Whether a column of the type `after` can be read from a file that has it as `before`."""
    fit, kind = compare(before, after)
    return before == after or (fit is Fit.WIDEN and kind == after)


_WIDENED = {("int", "long"), ("float", "double")}


def _compare_primitives(existing: ColumnType, incoming: ColumnType) -> tuple[Fit, ColumnType]:
    if (existing, incoming) in _WIDENED:
        return Fit.WIDEN, incoming
    if (incoming, existing) in _WIDENED:
        return Fit.KEEP, existing
    before, after = parse_decimal(existing), parse_decimal(incoming)
    if before is None or after is None:
        return Fit.SECOND_COLUMN, incoming
    return _compare_decimals(before, after)


def _compare_decimals(existing: tuple[int, int], incoming: tuple[int, int]) -> tuple[Fit, ColumnType]:
    """A column's scale stays; digits before the point can be added."""
    precision, scale = existing
    needed = incoming[0] - incoming[1] + scale
    if incoming[1] > scale or needed > DECIMAL_PRECISION_MAX:
        return Fit.SECOND_COLUMN, decimal_type(*incoming)
    if needed <= precision:
        return Fit.KEEP, decimal_type(precision, scale)
    return Fit.WIDEN, decimal_type(needed, scale)


def place(
    column: str, path: str, incoming: ColumnType | None, columns: Mapping[str, KnownColumn]
) -> Placement:
    """Finds the column for a field's values of the type `incoming`.

    `column`, `path`: the field's column by its name, and the field. `columns`: those that the table has, by
    folded name. The same columns give the same answer, so all who write a table agree. A column of that name
    that is for another field is passed by.
    """
    for name in _candidates(column, incoming):
        known = columns.get(name)
        if known is None:
            return Placement(name, "string" if incoming is None else incoming, is_new=True)
        if known.path is not None and known.path != path:
            continue
        fit, kind = compare(known.kind, incoming)
        if fit is not Fit.SECOND_COLUMN:
            return Placement(name, kind, is_widened=fit is Fit.WIDEN)
    raise AssertionError("there is always a further name")


def _candidates(column: str, incoming: ColumnType | None) -> Iterator[str]:
    yield column
    second = second_column(column, "string" if incoming is None else incoming)
    yield second
    number = 2
    while True:
        yield _shortened(f"{second}_{number}")
        number += 1


def second_column(column: str, kind: ColumnType) -> str:
    """The name of the column for values whose type is not that of their column: `amount__decimal_14_4`,
    `tags__list_long`."""
    return _shortened(f"{column}__{type_suffix(kind)}")


def type_suffix(kind: ColumnType) -> str:
    """A type as part of a name."""
    if isinstance(kind, ListType):
        return f"list_{type_suffix(kind.element)}"
    if isinstance(kind, MapType):
        return f"map_{type_suffix(kind.key)}_{type_suffix(kind.value)}"
    return kind.replace("(", "_").replace(",", "_").replace("[", "_").rstrip(")]")


def _shortened(name: str) -> str:
    """A name that is not longer than a column's may be; a hash stands for what it lost."""
    encoded = name.encode()
    if len(encoded) <= NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]
    return encoded[: NAME_BYTES_MAX - _HASH_DIGITS - 2].decode(errors="ignore") + "__" + digest
