"""The tree of a search as SQL, built by sqlglot: one expression, rendered in Trino's dialect or in DuckDB's.

No text of a query ever becomes SQL by pasting: names are quoted identifiers of columns that exist, values are
literals that sqlglot escapes. A comparison with a missing value is NULL, which is no match; under NOT it is
turned into false first.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce

import orjson
from sqlglot import exp

from lake.backfill_mark import CommittedRanges
from lake.log_schema import (
    ERRORS,
    OFFSET,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
    TOPIC_PARTITION,
    Column,
    LogSchema,
    fold,
)
from lake.marks import Range, TopicPartition
from query.language.letter_case import certain_part, simple_lower
from query.language.search_language import (
    All,
    Between,
    Either,
    Everything,
    Exists,
    Match,
    Node,
    Not,
    Piece,
    Span,
)
from query.language.word_pattern import plain_text, word_pattern
from query.model.instant import Period, parse_period, timestamp_literal
from query.model.problem import Problem, refuse

LEAVES_MAX = 10_000
# Types a column may have had before another one was declared for its field.
_OLDER_KINDS = ("string", "boolean", "int", "long", "float", "double", "timestamptz", "date")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
_NUMBER_SQL = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"
SEPARATOR = "\x1f"
# Trino's functions take 127 arguments.
CONCATENATED_MAX = 100
# Where a REGEXP_LIKE carries the pattern for libraries that go back (see `word_pattern`).
ONCE = "once"
_NUMBERS = frozenset({"int", "long", "float", "double"})
_NO_WORDS = frozenset({TOPIC, TOPIC_ID})


@dataclass(frozen=True, slots=True)
class Compiled:
    """A search as a boolean expression; None where it is every row."""

    condition: exp.Expression | None
    warnings: tuple[Problem, ...]


def compile_search(node: Node, schema: LogSchema, *, everywhere: bool = False) -> Compiled:
    """The condition of a search on a table with this schema. Raises BadQuestionError where a value does not
    fit its field's type.

    `everywhere`: words without a field are looked for in the values of `_errors` as well, and as JSON spells
    them. For erasures, which must leave no copy of a value; searches do without, for it costs them a pass
    over the lists of every row.
    """
    if isinstance(node, Everything):
        return Compiled(None, ())
    compiler = _Compiler(schema, everywhere=everywhere)
    return Compiled(compiler.condition(node), tuple(dict.fromkeys(compiler.warnings)))


def within_offsets(committed: CommittedRanges) -> exp.Expression:
    """Rows that a table had committed: by identity, so the same rows whatever was compacted or written
    since."""
    return any_of(
        [_of_partition(partition, ranges) for partition, ranges in sorted(committed.items()) if ranges]
    )


def _of_partition(partition: TopicPartition, ranges: Sequence[Range]) -> exp.Expression:
    """The partition is compared once for all of its ranges: a pin may have thousands. Built without
    `exp.and_`, which copies what it is given."""
    is_partition = (
        exp.EQ(this=column(TOPIC_ID), expression=text_literal(partition.topic_id)),
        exp.EQ(this=column(TOPIC_PARTITION), expression=exp.Literal.number(partition.partition)),
    )
    return reduce(
        lambda one, other: exp.And(this=one, expression=other),
        (*is_partition, any_of([_of_offsets(each) for each in ranges])),
    )


def _of_offsets(offsets: Range) -> exp.Expression:
    below = exp.LT(this=column(OFFSET), expression=exp.Literal.number(offsets.end))
    if not offsets.start:
        return below
    return exp.And(
        this=below, expression=exp.GTE(this=column(OFFSET), expression=exp.Literal.number(offsets.start))
    )


def within(start: datetime, end: datetime) -> exp.Expression:
    """Rows of `[start, end)`."""
    at = column(TIMESTAMP)
    return exp.and_(
        exp.GTE(this=at, expression=timestamp_literal(start)),
        exp.LT(this=at.copy(), expression=timestamp_literal(end)),
    )


def column(name: str) -> exp.Expression:
    """A column as a quoted identifier. Without a node of its own around it: wide tables have hundreds, and
    sqlglot takes its time for each."""
    return exp.Identifier(this=name, quoted=True)


def text_literal(text: str) -> exp.Expression:
    return exp.Literal.string(text)


def any_of(conditions: Sequence[exp.Expression]) -> exp.Expression:
    """A balanced OR: engines recurse into expressions, so a thousand alternatives must not be a thousand
    deep."""
    if not conditions:
        return exp.false()
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return exp.paren(exp.Or(this=any_of(conditions[:half]), expression=any_of(conditions[half:])), copy=False)


def all_of(conditions: Iterable[exp.Expression | None]) -> exp.Expression | None:
    """An AND of what is there; None where nothing is."""
    wanted = [condition for condition in conditions if condition is not None]
    return reduce(lambda one, other: exp.And(this=one, expression=other), wanted) if wanted else None


def columns_of(field: str, schema: LogSchema) -> list[Column]:
    """The columns a field's name means: its own and those that stepped aside when other types were declared
    for it."""
    name = (
        fold(field.strip()).lstrip("@") if fold(field.strip()) not in schema.by_name else fold(field.strip())
    )
    candidates = (name, name.replace(".", "_"))
    found = next((candidate for candidate in candidates if candidate in schema.by_name), None)
    if found is None:
        return []
    older = [
        each
        for kind in _OLDER_KINDS
        if (each := schema.by_name.get(stepped_aside(found, kind))) is not None and each.kind == kind
    ]
    return [schema.by_name[found], *older]


def stepped_aside(name: str, kind: str) -> str:
    """What a field's column of this type is called after another type was declared for the field."""
    return f"{name}__{kind}"


def similar_field(field: str, schema: LogSchema) -> str | None:
    """The existing field whose name comes nearest."""
    near = difflib.get_close_matches(fold(field).replace(".", "_"), list(schema.by_name), n=1, cutoff=0.7)
    return near[0] if near else None


def text_columns(schema: LogSchema) -> list[Column]:
    """The columns a word without a field is looked for in, `message` first."""
    return sorted(
        (c for c in schema.columns if c.kind == "string" and c.name not in _NO_WORDS),
        key=lambda c: c.name != "message",
    )


class _Compiler:
    def __init__(self, schema: LogSchema, *, everywhere: bool) -> None:
        self._schema = schema
        self._everywhere = everywhere
        self._leaves = 0
        self.warnings: list[Problem] = []

    def condition(self, node: Node) -> exp.Expression:
        if isinstance(node, Everything):
            return exp.true()
        if isinstance(node, All):
            return exp.paren(
                reduce(
                    lambda one, other: exp.And(this=one, expression=other), map(self.condition, node.children)
                ),
                copy=False,
            )
        if isinstance(node, Either):
            return any_of([self.condition(child) for child in node.children])
        if isinstance(node, Not):
            return exp.Not(this=exp.Coalesce(this=self.condition(node.child), expressions=[exp.false()]))
        if isinstance(node, Match) and node.field is None:
            return self._anywhere(node)
        field = node.field or ""
        found = columns_of(field, self._schema)
        if not found:
            self._warn_unknown(node, field)
            return exp.false()
        self._count(len(found), node.span)
        return any_of([self._leaf(node, each, is_older=at > 0) for at, each in enumerate(found)])

    def _leaf(self, node: Exists | Match | Between, target: Column, *, is_older: bool) -> exp.Expression:
        if isinstance(node, Exists):
            return exp.Not(this=exp.Is(this=column(target.name), expression=exp.null()))
        try:
            return _matches(node, target) if isinstance(node, Match) else _between(node, target)
        except _UnfitError as unfit:
            if is_older:
                return exp.false()
            raise refuse(
                str(unfit),
                position=node.span.position,
                length=node.span.length,
                suggestion=unfit.suggestion,
            ) from unfit

    def _anywhere(self, node: Match) -> exp.Expression:
        if not node.text:
            raise refuse(
                "empty quotes match nothing in particular",
                position=node.span.position,
                length=node.span.length,
                suggestion="write a word",
            )
        targets = text_columns(self._schema)
        self._count(len(targets), node.span)
        groups = [targets[at : at + CONCATENATED_MAX] for at in range(0, len(targets), CONCATENATED_MAX)]
        if not self._everywhere:
            return any_of([_text_matches(_side_by_side(group), node.pieces) for group in groups])
        texts = [*map(_side_by_side, groups), *([error_values()] if ERRORS in self._schema.by_name else [])]
        return any_of(
            [
                _text_matches(text, pieces)
                for pieces in dict.fromkeys((node.pieces, in_json(node.pieces)))
                for text in texts
            ]
        )

    def _warn_unknown(self, node: Exists | Match | Between, field: str) -> None:
        near = similar_field(field, self._schema)
        suggestion = f"did you mean {near}?" if near else "the list of fields shows what there is"
        if isinstance(node, Match) and near is None:
            suggestion += f'; to search for the text itself put it in double quotes: "{field}:{node.text}"'
        where = node.span.position
        self.warnings.append(
            Problem(
                f"there is no field {field!r} in this stream, so this part of the search matches no row",
                where,
                node.span.length,
                suggestion,
            )
        )

    def _count(self, leaves: int, span: Span) -> None:
        self._leaves += leaves
        if self._leaves > LEAVES_MAX:
            message = "too many words over too many fields; name the fields to look in, as in message:word"
            raise refuse(message, position=span.position, length=span.length)


class _UnfitError(Exception):
    """A value that its field's type cannot hold."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


def _matches(node: Match, target: Column) -> exp.Expression:
    name, kind = column(target.name), target.kind
    if kind == "string":
        return _text_matches(name, node.pieces)
    if target.name == ERRORS:
        return _text_matches(errors_text(), node.pieces)
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
    if not isinstance(kind, str) or kind in ("binary", "uuid") or kind.startswith("fixed"):
        raise _UnfitError(
            f"the field {target.name!r} is of type {_spelled(kind)}, whose values cannot be searched",
            f"{target.name}:* finds rows that have one",
        )
    return _text_matches(exp.cast(name, exp.DataType.Type.VARCHAR), node.pieces)


def _side_by_side(columns: Sequence[Column]) -> exp.Expression:
    """Several text columns as one text: one pattern then looks at all of them. No match reaches over the
    separator."""
    return exp.Anonymous(
        this="CONCAT_WS", expressions=[text_literal(SEPARATOR), *(column(each.name) for each in columns)]
    )


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


def error_values() -> exp.Expression:
    """The values of `_errors` as one text, without their fields and reasons. No match reaches over the
    separator."""
    entry = exp.to_identifier("entry")
    value = exp.Dot(this=entry.copy(), expression=exp.to_identifier("value", quoted=True))
    return exp.ArrayToString(
        this=exp.Transform(this=column(ERRORS), expression=exp.Lambda(this=value, expressions=[entry])),
        expression=text_literal(SEPARATOR),
    )


def in_json(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """A text as it stands inside a JSON string: quotes, backslashes and control characters escaped."""
    return tuple(orjson.dumps(piece).decode()[1:-1] if isinstance(piece, str) else piece for piece in pieces)


def _text_matches(value: exp.Expression, pieces: Sequence[Piece]) -> exp.Expression:
    """The text occurs in the value, in any case, and not inside a longer word."""
    lowered = [simple_lower(piece) if isinstance(piece, str) else piece for piece in pieces]
    if lowered == [""]:
        return exp.EQ(this=value, expression=text_literal(""))
    folded = exp.Lower(this=value)
    sure = max((certain_part(piece) for piece in lowered if isinstance(piece, str)), key=len, default="")
    holds = _contains(folded, sure) if sure else None
    pattern = word_pattern(lowered)
    if holds is not None and pattern.plain == plain_text(sure):
        return holds
    exactly = exp.RegexpLike(this=folded.copy(), expression=text_literal(pattern.plain))
    if pattern.once is not None:
        exactly.meta[ONCE] = pattern.once
    return exactly if holds is None else exp.and_(holds, exactly)


def _contains(value: exp.Expression, text: str) -> exp.Expression:
    if any(special in text for special in "%_\\"):
        return exp.GT(
            this=exp.StrPosition(this=value, substr=text_literal(text)), expression=exp.Literal.number(0)
        )
    return exp.Like(this=value, expression=text_literal(f"%{text}%"))


def _equals_number(name: exp.Expression, kind: str, text: str, field: str) -> exp.Expression:
    number = _number(text, field)
    if kind in ("int", "long"):
        if number != number.to_integral_value() or not _LONG_MIN <= number <= _LONG_MAX:
            return exp.false()
        return exp.EQ(this=name, expression=exp.Literal.number(int(number)))
    return exp.EQ(this=exp.cast(name, exp.DataType.Type.DOUBLE), expression=_double(text))


def _number(text: str, field: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise _UnfitError(
            f"the field {field!r} holds numbers, and {text[:40]!r} is none",
            f"{field}:500, {field}:[400 TO 499] or {field}:>=400",
        )
    return Decimal(text)


def _double(text: str) -> exp.Expression:
    return exp.cast(text_literal(text), exp.DataType.Type.DOUBLE)


def _boolean(text: str, field: str) -> exp.Expression:
    known: Mapping[str, exp.Expression] = {"true": exp.true(), "false": exp.false()}
    if text.lower() not in known:
        raise _UnfitError(f"the field {field!r} is true or false, not {text[:40]!r}", f"{field}:true")
    return known[text.lower()]


def _period(text: str, field: str) -> Period:
    period = parse_period(text)
    if period is None:
        raise _UnfitError(
            f"the field {field!r} holds times, and {text[:40]!r} is none",
            f'{field}:>="2026-11-21T10:30:00Z" or {field}:2026-11-21',
        )
    return period


def _between(node: Between, target: Column) -> exp.Expression:
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
        raise _UnfitError(
            f"the field {target.name!r} is of type {_spelled(kind)}, which has no ranges",
            f"{target.name}:* finds rows that have a value",
        )
    if all(_NUMBER.fullmatch(bound) for bound in bounds):
        is_number = exp.RegexpLike(this=name, expression=text_literal(_NUMBER_SQL))
        return exp.and_(
            is_number, *_limits(node, exp.TryCast(this=name.copy(), to=exp.DataType.build("double")), _double)
        )
    return exp.and_(*_limits(node, name, text_literal))


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
