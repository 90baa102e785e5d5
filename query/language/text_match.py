"""Where a text occurs as a word: one condition for all columns that it may stand in.

What a match is, a pattern over the values as they are says alone (`word_pattern`), the same on every engine.
What costs is how many values it is tried on.

DuckDB evaluates a function of one column once for each value of a dictionary (`regexp_extract` too,
`regexp_matches` not), so columns are asked one by one. A CASE tries the pattern on nothing but values that
hold the text, and not on those where it stands between marks, which GLOB sees in a fifth of the time. Each
pattern is compiled in each thread, so columns share one where there are many; a text of
several columns is no dictionary's. Where a column is known to be of ASCII, GLOB does without one.

Trino looks at dictionaries only in a filter of ORs and ANDs over functions of bare columns and constants:
there each column has its pattern. With NOT, `LOWER`, CASE or `concat_ws` in it a filter goes row by row, and
one pattern over the joined text is least. Figures: ARCHITECTURE.md, "Words are looked for column by column".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from lake.token_filter.alphabet import Alphabet, alphabet_of
from query.language.letter_case import certain_part, has_one_spelling, is_word_character, simple_lower
from query.language.search_language import Piece
from query.language.sql_parts import all_of, any_of, column, text_literal
from query.language.word_pattern import WordPattern, plain_text, word_pattern

# Patterns of a word, and of all words of a query, in DuckDB.
PATTERNS_MAX = 32
PATTERNS_OF_QUERY_MAX = 128
# Conditions of a filter of Trino's, each of which it compiles (840 in the probe, and not 1,200), and their
# characters: a statement has a million at most.
TRINO_CONDITIONS_MAX = 800
TRINO_CHARACTERS_MAX = 400_000
# Trino's functions take 127 arguments.
JOINED_MAX = 100
# What no wildcard stands for and no word contains.
_JOINTS = "\x1f\n\r\t "
# A part without a second case that is worth a look of its own.
_ALONE_MIN = 3
_TEXT_MATCH = "text_match"
# The marks of ASCII but the underscore and the brackets, as a class of DuckDB's GLOB, and what has a meaning
# in such patterns.
_MARK = "[ -/:-@{-~]"
_GLOB_SPECIAL = frozenset("*?[]\\")
# What is between words in texts of ASCII, as such a class; and what is not.
_NO_WORD = "[!0-9A-Z_a-z]"
_OF_WORDS = alphabet_of("0123456789_abcdefghijklmnopqrstuvwxyz") or 0


def text_match(
    values: Sequence[exp.Expression],
    pieces: Sequence[Piece],
    patterns: int = PATTERNS_MAX,
    alphabets: Sequence[Alphabet | None] = (),
) -> exp.Expression:
    """The text occurs in one of the values (columns, or expressions that give text), in any case, and not
    inside a longer word. In DuckDB there are as many patterns at most. `alphabets`: the characters of each
    value, where they are known. Raises BadRequestError."""
    lowered = tuple(simple_lower(piece) if isinstance(piece, str) else piece for piece in pieces)
    if lowered == ("",):
        return any_of([exp.EQ(this=value, expression=text_literal("")) for value in values])
    match = _TextMatch(tuple(values), lowered, patterns, tuple(alphabets) or (None,) * len(values))
    condition = match.in_sql()
    condition.meta[_TEXT_MATCH] = match
    return condition


def patterns_each(words: int) -> int:
    """How many patterns each of so many words may have."""
    return max(1, min(PATTERNS_MAX, PATTERNS_OF_QUERY_MAX // max(1, words)))


def as_duckdb_filters(select: exp.Select) -> exp.Select:
    """The SELECT with its text conditions as DuckDB evaluates them at least cost, in place."""
    for node, match in [(node, node.meta[_TEXT_MATCH]) for node in select.walk() if _TEXT_MATCH in node.meta]:
        node.replace(match.in_sql(by_marks=True))
    return select


def as_trino_filters(select: exp.Select, has_atomic_groups: Callable[[], bool]) -> exp.Select:
    """The SELECT with its text conditions as Trino evaluates them at least cost, in place.

    `has_atomic_groups`: whether Trino's regular expressions are Joni's, which go back; RE2J's need no help.
    """
    found = [(node, node.meta[_TEXT_MATCH]) for node in select.walk() if _TEXT_MATCH in node.meta]
    matches = [match for _, match in found]
    goes_back = any(match.pattern.once is not None for match in matches) and has_atomic_groups()
    patterns = [(goes_back and match.pattern.once) or match.pattern.plain for match in matches]
    one_by_one = not _goes_row_by_row(select, matches) and _is_compiled(matches, patterns)
    for (node, match), pattern in zip(found, patterns, strict=True):
        node.replace(match.in_trino(pattern, one_by_one=one_by_one))
    return select


def _goes_row_by_row(select: exp.Select, matches: Sequence["_TextMatch"]) -> bool:
    """Whether something in the filter keeps Trino from looking at dictionaries: NOT (which has a COALESCE),
    what is made of a column, as by a cast."""
    if not all(isinstance(value, exp.Identifier) for match in matches for value in match.values):
        return True
    conditions = select.args.get("where") or select  # of figures each may have conditions of its own
    made = conditions.find_all(exp.Coalesce, exp.Cast) if matches else ()
    return any(isinstance(each, exp.Coalesce) or isinstance(each.this, exp.Identifier) for each in made)


def _is_compiled(matches: Sequence["_TextMatch"], patterns: Sequence[str]) -> bool:
    """Whether the columns are few enough, for all words together, to be asked one by one."""
    columns = [len(match.values) for match in matches]
    characters = sum(count * len(pattern) for count, pattern in zip(columns, patterns, strict=True))
    return sum(columns) <= TRINO_CONDITIONS_MAX and characters <= TRINO_CHARACTERS_MAX


@dataclass(frozen=True)
class _TextMatch:
    """A lowered text, and where it is looked for."""

    values: tuple[exp.Expression, ...]
    pieces: tuple[Piece, ...]
    patterns: int
    alphabets: tuple[Alphabet | None, ...]

    def __deepcopy__(self, _: dict[int, object]) -> "_TextMatch":
        """Itself: nothing of it changes, and SELECTs are copied on their way."""
        return self

    @cached_property
    def pattern(self) -> WordPattern:
        return word_pattern(self.pieces)

    def in_sql(self, *, by_marks: bool = False) -> exp.Expression:
        """`by_marks`: with DuckDB's GLOB, which other engines do not know."""
        if self.pattern.plain == plain_text(self._sure):
            return any_of([self._holds(value) for value in self.values])
        known = self.alphabets if by_marks and self._is_glob_word else (None,) * len(self.values)
        told = list(zip(self.values, known, strict=True))
        left = [value for value, alphabet in told if alphabet is None]
        size = max(1, -(-len(left) // self.patterns))
        return any_of(
            [self._among(value, alphabet) for value, alphabet in told if alphabet is not None]
            + [self._in_group(group, by_marks=by_marks) for group in self._groups(left, size)]
        )

    def in_trino(self, pattern: str, *, one_by_one: bool) -> exp.Expression:
        groups = self._groups(self.values, 1 if one_by_one else JOINED_MAX)
        return any_of(
            [exp.RegexpLike(this=self._joined(group), expression=text_literal(pattern)) for group in groups]
        )

    def _in_group(self, values: Sequence[exp.Expression], *, by_marks: bool) -> exp.Expression:
        found = exp.RegexpExtract(this=self._joined(values), expression=text_literal(self.pattern.plain))
        matches: exp.Expression = exp.NEQ(this=found, expression=text_literal(""))
        if not self._sure:
            return matches
        holds = any_of([self._holds(value) for value in values])
        if not (by_marks and len(values) == 1 and self._is_glob):
            return exp.Case(ifs=[exp.If(this=holds, true=matches)], default=exp.false())
        # Most texts are found as they are written; only the others are lowered, and few need the pattern.
        (value,) = values
        as_it_is, lowered = self._between_marks(value), self._between_marks(exp.Lower(this=_copy(value)))
        if not has_one_spelling(self._sure):
            matches = exp.Case(ifs=[exp.If(this=lowered, true=exp.true())], default=matches)
        return exp.Case(
            ifs=[exp.If(this=as_it_is, true=exp.true()), exp.If(this=holds, true=matches)],
            default=exp.false(),
        )

    def _among(self, value: exp.Expression, alphabet: Alphabet) -> exp.Expression:
        """The same of a value of ASCII, without a pattern: it is the word, or has it beside other marks."""
        text = _copy(value) if has_one_spelling(self._sure) else exp.Lower(this=_copy(value))
        is_it: exp.Expression = exp.EQ(this=text, expression=text_literal(self._sure))
        if not alphabet & ~_OF_WORDS:
            return is_it
        places = (
            f"{self._sure}{_NO_WORD}*",
            f"*{_NO_WORD}{self._sure}",
            f"*{_NO_WORD}{self._sure}{_NO_WORD}*",
        )
        globs = [exp.Glob(this=text.copy(), expression=text_literal(place)) for place in places]
        return exp.Case(
            ifs=[exp.If(this=self._holds(value), true=any_of([is_it, *globs]))], default=exp.false()
        )

    @property
    def _is_glob_word(self) -> bool:
        """Whether the text begins and ends as words do, and the same."""
        return self._is_glob and is_word_character(self._sure[0]) and is_word_character(self._sure[-1])

    @property
    def _is_glob(self) -> bool:
        """Whether the text can stand in a pattern of GLOB as it is."""
        return self.pieces == (self._sure,) and _GLOB_SPECIAL.isdisjoint(self._sure)

    def _between_marks(self, value: exp.Expression) -> exp.Expression:
        """Whether the text surely is a word of the value: with a blank or another mark of ASCII on both
        sides."""
        return exp.Glob(this=_copy(value), expression=text_literal(f"*{_MARK}{self._sure}{_MARK}*"))

    def _holds(self, value: exp.Expression) -> exp.Expression:
        """The value contains the part of the text that is sure. `LOWER` costs more than all else: it is left
        out where it changes nothing, and not asked of values that lack the part it leaves as it is."""
        if has_one_spelling(self._sure):
            return _contains(_copy(value), self._sure)
        alone = _contains(_copy(value), self._alone) if len(self._alone) >= _ALONE_MIN else None
        condition = all_of([alone, _contains(exp.Lower(this=_copy(value)), self._sure)])
        assert condition is not None
        return condition

    @cached_property
    def _sure(self) -> str:
        """The longest part of the text that every engine's `LOWER` gives alike."""
        return _longest(certain_part(piece) for piece in self.pieces if isinstance(piece, str))

    @cached_property
    def _alone(self) -> str:
        """The longest part of that which is the same in any case."""
        return _longest("".join(c if has_one_spelling(c) else "\0" for c in self._sure).split("\0"))

    def _groups(self, values: Sequence[exp.Expression], size: int) -> list[Sequence[exp.Expression]]:
        """Values by so many, and one by one where the text holds all that could stand between them."""
        size = 1 if self._joint is None else min(size, JOINED_MAX)
        return [values[at : at + size] for at in range(0, len(values), size)]

    def _joined(self, values: Sequence[exp.Expression]) -> exp.Expression:
        """Several values as one text. No match reaches over a joint."""
        if len(values) == 1:
            return _copy(values[0])
        return exp.Anonymous(
            this="CONCAT_WS", expressions=[text_literal(self._joint or ""), *map(_copy, values)]
        )

    @cached_property
    def _joint(self) -> str | None:
        text = "".join(piece for piece in self.pieces if isinstance(piece, str))
        return next((joint for joint in _JOINTS if joint not in text), None)


def _copy(value: exp.Expression) -> exp.Expression:
    """Columns are made anew, which takes sqlglot less than a copy."""
    return column(value.name) if isinstance(value, exp.Identifier) else value.copy()


def _contains(value: exp.Expression, text: str) -> exp.Expression:
    if any(special in text for special in "%_\\"):
        return exp.GT(
            this=exp.StrPosition(this=value, substr=text_literal(text)), expression=exp.Literal.number(0)
        )
    return exp.Like(this=value, expression=text_literal(f"%{text}%"))


def _longest(parts: Iterable[str]) -> str:
    return max(parts, key=len, default="")
