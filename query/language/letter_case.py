"""Letters in both cases, as every engine must see them: one rule for what is a word and for what is the same
word.

Two characters are the same if `simple_lower` makes one of them. A character belongs to words if what it is in
lower case lies in `WORD_RANGES`. Patterns name every spelling of each character and every character of words,
so an engine compares code points and decides nothing. `LOWER` of an engine follows the Unicode version that
it was built with: it only sorts out values beforehand, by letters of which all versions know the same
(`certain_part`).

What a token filter may rely on: lower the ASCII letters of query and value, take U+0130 for `i` and U+212A
for `k` (no other characters beyond ASCII are spellings of ASCII ones), and cut both into maximal runs of
`[0-9a-z_]`. Each run of a word or phrase that touches no wildcard is then a whole run of every value that
matches: inside the text its neighbours are the query's own, and at the ends `word_pattern` lets no character
of words stand beside it, which all of `[0-9a-z_]` are.
"""

from collections.abc import Iterator
from functools import cache
from itertools import groupby

# Capital letters that came with Unicode 16, and their small ones: Java 24 and later lower them, Python 3.11
# and DuckDB's utf8proc do not.
_NEWEST = {
    0x1C89: 0x1C8A,
    0xA7CB: 0x0264,
    0xA7CC: 0xA7CD,
    0xA7DA: 0xA7DB,
    0xA7DC: 0x019B,
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
}
LOWER_OF_NEWEST = {chr(capital): chr(small) for capital, small in _NEWEST.items()}
CAPITAL_OF = {small: capital for capital, small in LOWER_OF_NEWEST.items()}
# What makes words, in lower case: Latin, Greek and Cyrillic letters, digits, the underscore. Scripts without
# blanks are matched anywhere. Plain ranges, because a Unicode class costs RE2 milliseconds to compile, and
# DuckDB compiles it anew for every file.
WORD_RANGES = (("0", "9"), ("_", "_"), ("a", "z"), ("\u00c0", "\u024f"), ("\u0370", "\u052f"))
# Above these Unicode has no cases.
_CASED = range(0x20000)


def simple_lower(text: str) -> str:
    """Lower case character by character, as the engines do it: never more characters than before."""
    return "".join(LOWER_OF_NEWEST.get(character) or character.lower()[:1] for character in text)


def is_word_character(character: str) -> bool:
    """Whether a character (in lower case) is a part of words."""
    return any(low <= character <= high for low, high in WORD_RANGES)


@cache
def _spellings() -> dict[str, str]:
    """The other spellings of each character in lower case that has some."""
    found: dict[str, str] = {}
    cased = (letter for letter in map(chr, _CASED) if letter != letter.lower() or letter in LOWER_OF_NEWEST)
    for letter in cased:
        small = simple_lower(letter)
        found[small] = found.get(small, "") + letter
    return found


def spellings(small: str) -> str:
    """All characters that are this one in lower case, itself first."""
    return small + _spellings().get(small, "")


def has_one_spelling(text: str) -> bool:
    """Whether a lowered text is the same in any case."""
    return _spellings().keys().isdisjoint(text)


@cache
def word_class() -> str:
    """The characters of words in both cases, as they stand between the brackets of a regular expression."""
    points = {point for low, high in WORD_RANGES for point in range(ord(low), ord(high) + 1)}
    points |= {ord(letter) for others in _spellings().values() for letter in others}
    of_words = sorted(point for point in points if is_word_character(simple_lower(chr(point))))
    return "".join(map(_range, _runs(of_words)))


def _runs(points: list[int]) -> Iterator[list[int]]:
    """Rising numbers, cut where one is left out."""
    for _, run in groupby(enumerate(points), key=lambda each: each[1] - each[0]):
        yield [point for _, point in run]


def _range(run: list[int]) -> str:
    return chr(run[0]) if len(run) == 1 else f"{chr(run[0])}-{chr(run[-1])}"


def certain_part(text: str) -> str:
    """The longest part of a lowered text that every engine's `LOWER` leaves as it is here."""
    for small in CAPITAL_OF:
        text = text.replace(small, "\0")
    return max(text.split("\0"), key=len)
