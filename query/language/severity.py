"""The levels of `lake.severity` in SQL."""

from sqlglot import exp

from lake.severity import IGNORED, LEVELS, SPELLINGS, Level
from query.language.search_sql import text_literal


def level_number(severity: exp.Expression) -> exp.Expression:
    """What `lake.severity.level_of` says, as the place of the level in `LEVELS`. In the engine, because
    nobody knows how many spellings there are."""
    spelled: exp.Expression = exp.Lower(this=severity)
    for character in IGNORED:
        spelled = exp.Anonymous(
            this="REPLACE", expressions=[spelled, text_literal(character), text_literal("")]
        )
    by_level = exp.Case()
    for level, spellings in SPELLINGS.items():
        words = [text_literal(word) for word in spellings.split()]
        by_level = by_level.when(
            exp.In(this=spelled.copy(), expressions=words), exp.Literal.number(LEVELS.index(level))
        )
    return by_level.else_(exp.Literal.number(LEVELS.index(Level.OTHER)))
