"""The parts that conditions are made of. Names are quoted identifiers, texts are literals that sqlglot
escapes: no text of a query ever becomes SQL by pasting.
"""

from collections.abc import Iterable, Sequence
from functools import reduce

from sqlglot import exp


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
