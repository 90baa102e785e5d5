"""The tree of a search as SQL, built by sqlglot: one expression, rendered in Trino's dialect or in DuckDB's.

No text of a query ever becomes SQL by pasting (`sql_parts.py`). A comparison with a missing value is NULL,
which is no match; under NOT it is turned into false first.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from types import MappingProxyType

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
from lake.token_filter.alphabet import Alphabet
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
from query.language.sql_parts import all_of, any_of, column, text_literal
from query.language.text_match import patterns_each, text_match
from query.language.typed_match import UnfitError, lies_between, matches
from query.model.instant import timestamp_literal
from query.model.problem import Problem, refuse

# What other rooms and parts make conditions of.
__all__ = [
    "Compiled",
    "all_of",
    "any_of",
    "column",
    "columns_of",
    "compile_search",
    "similar_field",
    "stepped_aside",
    "text_columns",
    "text_literal",
    "within",
    "within_offsets",
]

LEAVES_MAX = 10_000
# Types a column may have had before another one was declared for its field.
_OLDER_KINDS = ("string", "boolean", "int", "long", "float", "double", "timestamptz", "date")
_NO_WORDS = frozenset({TOPIC, TOPIC_ID})


@dataclass(frozen=True, slots=True)
class Compiled:
    """A search as a boolean expression; None where it is every row."""

    condition: exp.Expression | None
    warnings: tuple[Problem, ...]


def compile_search(
    node: Node,
    schema: LogSchema,
    *,
    everywhere: bool = False,
    columns_of_words: Mapping[Match, Mapping[int, Alphabet | None]] = MappingProxyType({}),
) -> Compiled:
    """The condition of a search on a table with this schema. Raises BadRequestError where a value does not
    fit its field's type.

    `everywhere`: words without a field are looked for in the values of `_errors` as well, and as JSON spells
    them. For erasures, which must leave no copy of a value; searches do without, for it costs them a pass
    over the lists of every row. `columns_of_words`: by word without a field the only columns that may have
    it where the condition is used, each with the characters of its values there; None: any.
    """
    if isinstance(node, Everything):
        return Compiled(None, ())
    compiler = _Compiler(schema, _words_without_field(node), columns_of_words, everywhere=everywhere)
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


def _words_without_field(node: Node) -> int:
    if isinstance(node, All | Either):
        return sum(map(_words_without_field, node.children))
    if isinstance(node, Not):
        return _words_without_field(node.child)
    return int(isinstance(node, Match) and node.field is None)


class _Compiler:
    def __init__(
        self,
        schema: LogSchema,
        words: int,
        columns_of_words: Mapping[Match, Mapping[int, Alphabet | None]],
        *,
        everywhere: bool,
    ) -> None:
        self._schema = schema
        self._columns_of_words = columns_of_words
        self._everywhere = everywhere
        self._patterns = patterns_each(words)
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
            return matches(node, target) if isinstance(node, Match) else lies_between(node, target)
        except UnfitError as unfit:
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
        targets, only = text_columns(self._schema), self._columns_of_words.get(node)
        if only is not None:
            targets = [each for each in targets if each.id in only]
            if not targets:
                return exp.false()
        alphabets = [None if only is None else only[each.id] for each in targets]
        self._count(len(targets), node.span)
        spellings = dict.fromkeys([node.pieces, *([in_json(node.pieces)] if self._everywhere else [])])
        conditions = [
            text_match([column(each.name) for each in targets], pieces, self._patterns, alphabets)
            for pieces in spellings
        ]
        if self._everywhere and ERRORS in self._schema.by_name:
            conditions += [_in_error_values(pieces) for pieces in spellings]
        return any_of(conditions)

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


def _in_error_values(pieces: Sequence[Piece]) -> exp.Expression:
    """A value among the entries of `_errors` matches."""
    entry = exp.to_identifier("entry")
    value = exp.Dot(this=entry.copy(), expression=exp.to_identifier("value", quoted=True))
    matches_value = exp.Lambda(this=text_match([value], pieces), expressions=[entry])
    found = exp.ArrayFilter(this=column(ERRORS), expression=matches_value)
    return exp.GT(this=exp.ArraySize(this=found), expression=exp.Literal.number(0))


def in_json(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """A text as it stands inside a JSON string: quotes, backslashes and control characters escaped."""
    return tuple(orjson.dumps(piece).decode()[1:-1] if isinstance(piece, str) else piece for piece in pieces)
