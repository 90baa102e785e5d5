"""Letters in both cases, as every engine must see them: one rule for what is a word and for what is the same
word.

Engines lower text by the Unicode version that they were built with. Where these differ, a value may come in
either case after `LOWER`; such a letter is looked for in both, and belongs to words in both or in neither.
"""

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
WORD_RANGES = (
    ("0", "9"),
    ("_", "_"),
    ("a", "z"),
    ("\u00c0", "\u024f"),
    ("\u0370", "\u052f"),
    ("\ua7dc", "\ua7dc"),
)


def simple_lower(text: str) -> str:
    """Lower case character by character, as the engines do it: never more characters than before."""
    return "".join(LOWER_OF_NEWEST.get(character) or character.lower()[:1] for character in text)


def is_word_character(character: str) -> bool:
    """Whether a character (in lower case) is a part of words."""
    return any(low <= character <= high for low, high in WORD_RANGES)


def certain_part(text: str) -> str:
    """The longest part of a lowered text that every engine's `LOWER` leaves as it is here."""
    for small in CAPITAL_OF:
        text = text.replace(small, "\0")
    return max(text.split("\0"), key=len)
