"""The values of a field as SQL: as they are, as numbers, as times. A field that was declared anew has several
columns; the older ones fill in where they can be read as its type.

New fields become texts, so a text that spells a number is one here, as it is in ranges of a search.
"""

from dataclasses import dataclass

from sqlglot import exp

from lake.log_schema import ERRORS, Column, LogSchema
from query.language.search_sql import column, columns_of, similar_field
from query.language.typed_match import number_of_text
from query.model.problem import Problem, refuse

_WHOLE = frozenset({"int", "long"})
_NUMBERS = frozenset({*_WHOLE, "float", "double"})
_TYPES = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "int": "BIGINT",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "date": "DATE",
}


@dataclass(frozen=True, slots=True)
class Value:
    """An expression over a row, and what is to be said of it."""

    sql: exp.Expression
    warnings: tuple[Problem, ...] = ()


def value_of(field: str, schema: LogSchema) -> Value:
    """The field's value as its newest type has it; of a field that is not there no row has one. Raises
    BadRequestError for lists."""
    found = columns_of(field, schema)
    if not found:
        return _nothing(field, schema, "VARCHAR")
    _refuse_lists(found[0])
    kind = str(found[0].kind)
    older = [
        exp.TryCast(this=column(each.name), to=exp.DataType.build(_TYPES[kind]))
        for each in found[1:]
        if kind in _TYPES and isinstance(each.kind, str)
    ]
    return Value(_first([column(found[0].name), *older]))


def number_of(field: str, schema: LogSchema) -> Value:
    """The field's numbers as DOUBLE. Raises BadRequestError for types that have none."""
    found = columns_of(field, schema)
    if not found:
        return _nothing(field, schema, "DOUBLE")
    numbers = [number for each in found if (number := _number(each)) is not None]
    if not numbers:
        raise refuse(
            f"the field {found[0].name!r} holds no numbers", suggestion="its values can be counted instead"
        )
    return Value(_first(numbers))


def whole_number_of(field: str, schema: LogSchema) -> Value | None:
    """The field's numbers as they are, where all of its columns hold whole ones: their sum is exact."""
    found = columns_of(field, schema)
    if not found or not all(isinstance(each.kind, str) and each.kind in _WHOLE for each in found):
        return None
    return Value(_first([column(each.name) for each in found]))


def times_of(field: str, schema: LogSchema) -> Value:
    """The field's times. Raises BadRequestError for another type."""
    found = columns_of(field, schema)
    if not found:
        return _nothing(field, schema, "TIMESTAMPTZ")
    if found[0].kind != "timestamptz":
        raise refuse(
            f"the field {found[0].name!r} holds no times", suggestion="declare its type, or take timestamp"
        )
    return Value(column(found[0].name))


def _number(target: Column) -> exp.Expression | None:
    name, kind = column(target.name), target.kind
    if kind == "string":
        return number_of_text(name)
    if isinstance(kind, str) and (kind in _NUMBERS or kind.startswith("decimal")):
        return exp.cast(name, exp.DataType.Type.DOUBLE)
    return None


def _refuse_lists(target: Column) -> None:
    if target.name == ERRORS or not isinstance(target.kind, str):
        raise refuse(
            f"the field {target.name!r} holds lists, whose values are not counted",
            suggestion=f"{target.name}:* finds rows that have one",
        )


def _first(alternatives: list[exp.Expression]) -> exp.Expression:
    first, *others = alternatives
    return exp.Coalesce(this=first, expressions=others) if others else first


def _nothing(field: str, schema: LogSchema, kind: str) -> Value:
    near = similar_field(field, schema)
    said = Problem(
        f"there is no field {field[:100]!r} in this stream, so no row has a value of it",
        suggestion=f"did you mean {near}?" if near else "the list of fields shows what there is",
    )
    return Value(exp.cast(exp.null(), exp.DataType.build(kind)), (said,))
