"""A statement as sqlglot's words: how deep it is nested, counted before anything parses it, and what of it is
missing from another text."""

from collections import Counter
from collections.abc import Sequence

import sqlglot
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import Token, TokenType

from query.model.problem import refuse

# Parentheses cost the parser the same at every depth; people's SQL stays below ten. Above some sixty Python's
# own stack is too small.
PARENTHESES_MAX = 48
# Of these each further level doubles the time: after a type's name the parser tries a type first, then a
# call, and so does every level inside.
BRACKETS_MAX = 8
_TRINO = Dialect.get_or_raise("trino")
_TYPES = frozenset(_TRINO.parser_class.TYPE_TOKENS)
_OPEN, _CLOSED = (
    frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}),
    {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE},
)
# Spelled otherwise or left out by sqlglot where that changes nothing: `ORDER BY a NULLS LAST`, `x AT TIME
# ZONE 'UTC'`, `TRIM(LEADING FROM a)`.
_HARMLESS = frozenset(
    {
        "all",
        "any",
        "as",
        "asc",
        "at",
        "current_timestamp",
        "first",
        "from",
        "ilike",
        "in",
        "inner",
        "int",
        "integer",
        "json",
        "last",
        "leading",
    }
    | {
        "next",
        "now",
        "nulls",
        "only",
        "outer",
        "rlike",
        "row",
        "rows",
        "some",
        "time",
        "trailing",
        "value",
        "zone",
    }
)


def words_of(sql: str) -> list[Token]:
    """The words, names and literals of a text, comments left out. Raises sqlglot's TokenError."""
    return list(sqlglot.tokenize(sql, dialect="trino"))


def check_nesting(words: Sequence[Token]) -> None:
    """Counts brackets that are open at once, those that make parsing slow apart. Raises BadRequestError."""
    opened: list[bool] = []
    slow = 0
    before: TokenType | None = None
    for word in words:
        kind = word.token_type
        if kind in _OPEN:
            opened.append(kind is not TokenType.L_PAREN or before in _TYPES)
            slow += opened[-1]
        elif kind in _CLOSED and opened:
            slow -= opened.pop()
        if slow > BRACKETS_MAX:
            raise refuse(
                f"ARRAY[...], MAP(...), ROW(...) and types are nested more than {BRACKETS_MAX} levels deep; "
                "write it flatter"
            )
        if len(opened) > PARENTHESES_MAX:
            raise refuse(f"the statement is nested more than {PARENTHESES_MAX} levels deep; write it flatter")
        before = kind


def lost_words(before: Sequence[Token], after: Sequence[Token]) -> str:
    """The first name, literal or word of a text that another one, which should mean the same, holds less
    often; empty: none.

    Signs are not compared, nor are the names of functions, which have several spellings: what either of them
    says is said in words as well.
    """
    here, there = _counted(before), _counted(after)
    return next((word for word, times in here.items() if times > there[word]), "")


def _counted(words: Sequence[Token]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for at, word in enumerate(words):
        is_call = (
            word.token_type is not TokenType.IDENTIFIER
            and at + 1 < len(words)
            and words[at + 1].token_type is TokenType.L_PAREN
        )
        text = word.text.casefold()
        if word.token_type is TokenType.NUMBER:
            counted[_number("." + text if at and words[at - 1].token_type is TokenType.DOT else text)] += 1
        elif text and (
            word.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
            or (text[0].isalnum() and not is_call and text not in _HARMLESS)
        ):
            counted[text] += 1
    return counted


def _number(text: str) -> str:
    """`.5` and `0.5` are one number."""
    try:
        return repr(float(text))
    except ValueError:
        return text
