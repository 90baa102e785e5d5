"""Searches in one column by its type: numbers, booleans, times and ids are compared as such, texts as words.

Equality and ranges are what engines look up in statistics and Bloom filters. A text has neither: `status:404`
is found in `404 Not Found` too, so only a type tells that a value is nothing else than the one that is
searched for.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, localcontext

from sqlglot import exp

from lake.log_schema import ERRORS, Column
from query.language.search_language import Between, Match
from query.language.sql_parts import column, text_literal
from query.language.text_match import text_match
from query.model.instant import Period, parse_period, timestamp_literal

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
_NUMBER_SQL = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"
_NUMBERS = frozenset({"int", "long", "float", "double"})
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
# A number has 60 digits at most and an exponent of two.
_DIGITS_MAX = 200
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DAYS = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


class UnfitError(Exception):
    """A value that its field's type cannot hold."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


def matches(node: Match, target: Column) -> exp.Expression:
    """The condition of `field:value`. Raises UnfitError, BadRequestError."""
    name, kind = column(target.name), target.kind
    if kind == "string":
        return text_match([name], node.pieces)
    if target.name == ERRORS:
        return text_match([errors_text()], node.pieces)
    if isinstance(kind, str) and (kind in _NUMBERS or kind.startswith("decimal")):
        return _equals_number(name, kind, node.text, target.name)
    if kind == "boolean":
        return exp.EQ(this=name, expression=_boolean(node.text, target.name))
    if kind == "timestamptz":
        period = _period(node.text, target.name)
        return exp.and_(
            exp.GTE(this=name, expression=timestamp_literal(period.start)),
            exp.LT(this=name, expression=timestamp_literal(period.end)),
        )
    if kind == "uuid":
        return exp.EQ(this=name, expression=_uuid(node.text, target.name))
    if not isinstance(kind, str) or kind == "binary" or kind.startswith("fixed"):
        raise UnfitError(
            f"the field {target.name!r} is of type {_spelled(kind)}, whose values cannot be searched",
            f"{target.name}:* finds rows that have one",
        )
    if kind == "date" and (days := _days(node.text)) is not None:
        return _within_days(name, *days)
    return text_match([exp.cast(name, exp.DataType.Type.VARCHAR)], node.pieces)


def errors_text() -> exp.Expression:
    """The entries of `_errors` as one text: field, value and reason of each."""
    entry = exp.to_identifier("entry")
    parts = [
        exp.Dot(this=entry.copy(), expression=exp.to_identifier(part, quoted=True))
        for part in ("field", "value", "reason")
    ]
    one = exp.Anonymous(this="CONCAT_WS", expressions=[text_literal("\n"), *parts])
    return exp.ArrayToString(
        this=exp.Transform(this=column(ERRORS), expression=exp.Lambda(this=one, expressions=[entry])),
        expression=text_literal("\n"),
    )


def _equals_number(name: exp.Expression, kind: str, text: str, field: str) -> exp.Expression:
    number = _number(text, field)
    if kind in ("int", "long"):
        if number != number.to_integral_value() or not _LONG_MIN <= number <= _LONG_MAX:
            return exp.false()
        return exp.EQ(this=name, expression=exp.Literal.number(int(number)))
    if size := _DECIMAL.fullmatch(kind):
        return _equals_decimal(name, number, int(size[1]), int(size[2]))
    return exp.EQ(this=exp.cast(name, exp.DataType.Type.DOUBLE), expression=_double(text))


def _equals_decimal(name: exp.Expression, number: Decimal, precision: int, scale: int) -> exp.Expression:
    """Compared digit by digit; a number that the type cannot hold is equal to none."""
    with localcontext(prec=_DIGITS_MAX):
        shifted = number.scaleb(scale)
        if shifted != shifted.to_integral_value() or abs(shifted) >= 10**precision:
            return exp.false()
    kind = exp.DataType.build(f"DECIMAL({precision}, {scale})")
    return exp.EQ(this=name, expression=exp.cast(text_literal(f"{number:f}"), kind))


def _number(text: str, field: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise UnfitError(
            f"the field {field!r} holds numbers, and {text[:40]!r} is none",
            f"{field}:500, {field}:[400 TO 499] or {field}:>=400",
        )
    return Decimal(text)


def _double(text: str) -> exp.Expression:
    return exp.cast(text_literal(text), exp.DataType.Type.DOUBLE)


def _boolean(text: str, field: str) -> exp.Expression:
    known: Mapping[str, exp.Expression] = {"true": exp.true(), "false": exp.false()}
    if text.lower() not in known:
        raise UnfitError(f"the field {field!r} is true or false, not {text[:40]!r}", f"{field}:true")
    return known[text.lower()]


def _period(text: str, field: str) -> Period:
    period = parse_period(text)
    if period is None:
        raise UnfitError(
            f"the field {field!r} holds times, and {text[:40]!r} is none",
            f'{field}:>="2026-11-21T10:30:00Z" or {field}:2026-11-21',
        )
    return period


def _uuid(text: str, field: str) -> exp.Expression:
    if not _UUID.fullmatch(text):
        raise UnfitError(
            f"the field {field!r} holds UUIDs, which are compared as a whole, and {text[:40]!r} is none",
            f"{field}:123e4567-e89b-12d3-a456-426614174000, or {field}:* for rows that have one",
        )
    return exp.cast(text_literal(text.lower()), exp.DataType.Type.UUID)


def _days(text: str) -> tuple[date, date] | None:
    """The first and the last day of what is written as a date begins: a day, a month, a year. None: as a text
    it may yet occur in dates."""
    found = _DAYS.fullmatch(text)
    if found is None:
        return None
    year, month, day = (None if part is None else int(part) for part in found.groups())
    try:
        if day is not None:
            first = last = date(year or 0, month or 0, day)
        else:
            first = date(year or 0, month or 1, 1)
            last = date(first.year, month or 12, monthrange(first.year, month or 12)[1])
    except ValueError:
        return None
    return first, last


def _within_days(name: exp.Expression, first: date, last: date) -> exp.Expression:
    if first == last:
        return exp.EQ(this=name, expression=_date(first))
    return exp.and_(
        exp.GTE(this=name, expression=_date(first)), exp.LTE(this=name.copy(), expression=_date(last))
    )


def _date(day: date) -> exp.Expression:
    return exp.cast(text_literal(day.isoformat()), exp.DataType.Type.DATE)


def lies_between(node: Between, target: Column) -> exp.Expression:
    """The condition of a range. Raises UnfitError."""
    name, kind = column(target.name), target.kind
    if kind == "timestamptz":
        return _time_between(node, name, target.name)
    bounds = [bound for bound in (node.low, node.high) if bound is not None]
    if isinstance(kind, str) and (kind in _NUMBERS or kind.startswith("decimal")):
        for bound in bounds:
            _number(bound, target.name)
        value = (
            name
            if kind in ("int", "long") and all(_is_long(bound) for bound in bounds)
            else exp.cast(name, exp.DataType.Type.DOUBLE)
        )
        return exp.and_(*_limits(node, value, _long if value is name else _double))
    if kind in ("date", "time"):
        return exp.and_(*_limits(node, exp.cast(name, exp.DataType.Type.VARCHAR), text_literal))
    if kind != "string":
        raise UnfitError(
            f"the field {target.name!r} is of type {_spelled(kind)}, which has no ranges",
            f"{target.name}:* finds rows that have a value",
        )
    if all(_NUMBER.fullmatch(bound) for bound in bounds):
        return exp.and_(_spells_number(name), *_limits(node, _as_double(name), _double))
    return exp.and_(*_limits(node, name, text_literal))


def number_of_text(name: exp.Expression) -> exp.Expression:
    """The number that a text spells, as DOUBLE, and NULL where it spells none."""
    return exp.Case().when(_spells_number(name), _as_double(name))


def _spells_number(name: exp.Expression) -> exp.Expression:
    return exp.RegexpLike(this=name.copy(), expression=text_literal(_NUMBER_SQL))


def _as_double(name: exp.Expression) -> exp.Expression:
    return exp.TryCast(this=name.copy(), to=exp.DataType.build("double"))


def _is_long(bound: str) -> bool:
    return bound.removeprefix("-").isdigit() and _LONG_MIN <= int(bound) <= _LONG_MAX


def _long(bound: str) -> exp.Expression:
    return exp.Literal.number(int(bound))


def _limits(
    node: Between, value: exp.Expression, make: Callable[[str], exp.Expression]
) -> list[exp.Expression]:
    limits: list[exp.Expression] = []
    if node.low is not None:
        limits.append(
            (exp.GTE if node.low_included else exp.GT)(this=value.copy(), expression=make(node.low))
        )
    if node.high is not None:
        limits.append(
            (exp.LTE if node.high_included else exp.LT)(this=value.copy(), expression=make(node.high))
        )
    return limits


def _time_between(node: Between, name: exp.Expression, field: str) -> exp.Expression:
    """A bound is a period (a day, an hour, ...): included, the range reaches over all of it."""
    limits: list[exp.Expression] = []
    if node.low is not None:
        low = _period(node.low, field)
        limits.append(
            exp.GTE(
                this=name.copy(), expression=timestamp_literal(low.start if node.low_included else low.end)
            )
        )
    if node.high is not None:
        high = _period(node.high, field)
        limits.append(
            exp.LT(
                this=name.copy(), expression=timestamp_literal(high.end if node.high_included else high.start)
            )
        )
    return exp.and_(*limits)


def _spelled(kind: object) -> str:
    return kind if isinstance(kind, str) else str(kind["type"]) if isinstance(kind, dict) else "unknown"
