"""Severities as records spell them, sorted into the few levels a chart can show."""

from enum import StrEnum

from sqlglot import exp

from query.language.letter_case import simple_lower
from query.language.search_sql import text_literal


class Level(StrEnum):
    """From OpenTelemetry's severity ranges; `OTHER` is anything that is none of them, missing ones
    included."""

    FATAL = "fatal"
    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    OTHER = "other"


LEVELS = tuple(Level)
_SPELLINGS = {
    Level.FATAL: "fatal critical crit emerg emergency panic alert f 0 1 2",
    Level.ERROR: "error err severe failure e 3",
    Level.WARN: "warn warning w 4",
    Level.INFO: "info information informational notice i 5 6",
    Level.DEBUG: "debug trace verbose fine finer finest d t 7",
}
_LEVELS = {spelling: level for level, spellings in _SPELLINGS.items() for spelling in spellings.split()}


def level_of(severity: str | None) -> Level:
    """The level of a severity; numbers are syslog's. Blanks and quotes around it, as in `"INFO "`, do not
    matter."""
    return (
        _LEVELS.get(simple_lower(severity).replace(" ", "").replace('"', ""), Level.OTHER)
        if severity
        else Level.OTHER
    )


def level_number(severity: exp.Expression) -> exp.Expression:
    """The same in SQL: the place of the level in `LEVELS`. In the engine, because nobody knows how many
    spellings there are."""
    spelled: exp.Expression = exp.Lower(this=severity)
    for character in (" ", '"'):
        spelled = exp.Anonymous(
            this="REPLACE", expressions=[spelled, text_literal(character), text_literal("")]
        )
    by_level = exp.Case()
    for level, spellings in _SPELLINGS.items():
        words = [text_literal(word) for word in spellings.split()]
        by_level = by_level.when(
            exp.In(this=spelled.copy(), expressions=words), exp.Literal.number(LEVELS.index(level))
        )
    return by_level.else_(exp.Literal.number(LEVELS.index(Level.OTHER)))
