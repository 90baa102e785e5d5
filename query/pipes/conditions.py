"""The condition of `where`: comparisons of columns with values, joined by AND, OR and NOT, as in SQL.

sqlglot reads it. The tree is built anew over the columns there are, and what is not listed here is refused,
so nothing that was written becomes a part of a statement but as a quoted name or an escaped literal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake.log_schema import LogSchema
from query.language.sql_parts import text_literal
from query.model.problem import Problem, refuse
from query.stats.values import Value, number_of, value_of

CHARACTERS_MAX = 2_000
NODES_MAX = 500
_HOW = "write where ms > 500 AND uri LIKE '/api/%'"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_TURNED: Mapping[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def parse_condition(text: str) -> exp.Expression:
    """Reads a condition; which columns there are is looked at later. Raises BadRequestError."""
    if not text or len(text) > CHARACTERS_MAX:
        raise refuse(f"a condition has 1 to {CHARACTERS_MAX:,} characters", suggestion=_HOW)
    try:
        parsed = sqlglot.parse_one(text, dialect="trino", into=exp.Condition)
    except (SqlglotError, RecursionError):
        raise refuse(f"{text[:80]!r} is no condition", suggestion=_HOW) from None
    if sum(1 for _ in parsed.walk()) > NODES_MAX:
        raise refuse("the condition is too large; ask for less at once")
    return parsed


def condition_over(parsed: exp.Expression, schema: LogSchema) -> Value:
    """The condition on rows with these columns. Raises BadRequestError for what is not known."""
    reader = _Reader(schema)
    made = reader.read(parsed)
    return Value(made, tuple(dict.fromkeys(reader.warnings)))


@dataclass
class _Reader:
    schema: LogSchema
    warnings: list[Problem] = field(default_factory=list)

    def read(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Paren):
            return exp.paren(self.read(node.this), copy=False)
        if isinstance(node, exp.And | exp.Or):
            return type(node)(this=self.read(node.this), expression=self.read(node.expression))
        if isinstance(node, exp.Not):
            return exp.Not(this=exp.Coalesce(this=self.read(node.this), expressions=[exp.false()]))
        if isinstance(node, _COMPARISONS):
            return self._comparison(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return exp.Is(this=self._taken(node.this, value_of), expression=exp.null())
        if isinstance(node, exp.Like | exp.ILike):
            return _like(self._text(node.this), node)
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            bounds = (exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this, expression=high))
            return exp.paren(exp.And(this=self.read(bounds[0]), expression=self.read(bounds[1])), copy=False)
        if isinstance(node, exp.In) and node.expressions:
            equal = [self.read(exp.EQ(this=node.this, expression=each)) for each in node.expressions]
            return exp.paren(exp.or_(*equal), copy=False)
        raise refuse(f"{_spelled(node)} is not known in a condition", suggestion=_HOW)

    def _comparison(self, node: exp.Expression) -> exp.Expression:
        left, right, kind = node.this, node.expression, type(node)
        if isinstance(left, exp.Literal | exp.Neg) and isinstance(right, exp.Column):
            left, right, kind = right, left, _TURNED[kind]
        if isinstance(right, exp.Column):
            return kind(this=self._taken(left, number_of), expression=self._taken(right, number_of))
        if isinstance(right, exp.Boolean):
            truth = text_literal("true" if right.this else "false")
            return kind(this=self._text(left), expression=truth)
        if isinstance(right, exp.Literal) and right.is_string:
            return kind(this=self._text(left), expression=text_literal(right.name))
        return kind(this=self._taken(left, number_of), expression=_number(right))

    def _text(self, node: exp.Expression) -> exp.Expression:
        return exp.cast(self._taken(node, value_of), exp.DataType.Type.VARCHAR)

    def _taken(self, node: exp.Expression, take: Callable[[str, LogSchema], Value]) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.table:
            raise refuse(
                f"{_spelled(node)} is no column",
                suggestion=f"values stand behind the comparison, texts in single quotes: {_HOW}",
            )
        found = take(node.name, self.schema)
        self.warnings += found.warnings
        return found.sql


def _number(node: exp.Expression) -> exp.Expression:
    is_negative = isinstance(node, exp.Neg)
    literal = node.this if is_negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string:
        raise refuse(f"{_spelled(node)} is no value to compare with", suggestion=_HOW)
    text = f"-{literal.name}" if is_negative else literal.name
    return exp.cast(text_literal(text), exp.DataType.Type.DOUBLE)


def _like(text: exp.Expression, node: exp.Like | exp.ILike) -> exp.Expression:
    """DuckDB matches a constant pattern of `%` in one pass, and ILIKE by going back at each `%`: four of them
    take minutes for a row of 400 characters, which nothing interrupts."""
    pattern = _pattern(node.expression)
    if isinstance(node, exp.ILike):
        return exp.Like(this=exp.Lower(this=text), expression=exp.Lower(this=pattern))
    return exp.Like(this=text, expression=pattern)


def _pattern(node: exp.Expression) -> exp.Expression:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise refuse("LIKE compares with a text in single quotes", suggestion=_HOW)
    if "%" in node.name and "_" in node.name:  # DuckDB goes back at each % here, too
        raise refuse(
            "a pattern of LIKE has % or _, not both",
            suggestion="write % for the _, or search for the word: field:a?c*",
        )
    return text_literal(node.name)


def _spelled(node: exp.Expression) -> str:
    return repr(node.sql(dialect="trino")[:60])
