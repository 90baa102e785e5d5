"""A word with wildcards as regular expressions: one that every library reads, and one that does not go back.

`*` stands for a run of characters without blanks. A library that tries alternatives one after the other
(Joni, Trino's default) takes for `a*a*a*b` the fourth power of the run's length. But each part between two
stars may be taken where it first occurs: whatever fits later parts after a later occurrence fits them after
the first one, because a star holds everything in between. So the second pattern begins at the run's first
character and takes each part in a group that is never tried again: it passes over the text once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from query.language.letter_case import is_word_character, spellings, word_class
from query.language.search_language import Piece, Wildcard
from query.model.problem import refuse

WILDCARDS_MAX = 32
PATTERNS_KEPT = 256  # a search asks for that of each word several times
_SPECIAL = frozenset(r"\.^$|()[]{}*+?")
_BLANKS = r" \t\n\r\x1f"
_NOT_BLANK = f"[^{_BLANKS}]"


@dataclass(frozen=True, slots=True)
class WordPattern:
    """`plain`: for libraries that need no help (RE2, RE2J). `once`: for those that go back; None where
    `plain` never goes back far."""

    plain: str
    once: str | None


@lru_cache(PATTERNS_KEPT)
def word_pattern(pieces: tuple[Piece, ...]) -> WordPattern:
    """The patterns of a lowered word, for texts in any case. A match is not inside a longer word, but where
    the word begins or ends with a wildcard. Raises BadRequestError."""
    first, last = pieces[0], pieces[-1]
    bound_before = isinstance(first, str) and is_word_character(first[0])
    bound_after = isinstance(last, str) and is_word_character(last[-1])
    parts, word = _parts(pieces), word_class()
    if sum(isinstance(piece, Wildcard) for piece in pieces) > WILDCARDS_MAX:
        raise refuse(f"a word has more than {WILDCARDS_MAX} wildcards; search for less of it")
    plain = (
        (f"(^|[^{word}])" if bound_before else "")
        + f"{_NOT_BLANK}*".join(parts)
        + (f"([^{word}]|$)" if bound_after else "")
    )
    if len(parts) == 1:
        return WordPattern(plain, None)
    parts[0] = (f"(?<![{word}])" if bound_before else "") + parts[0]
    parts[-1] += f"(?![{word}])" if bound_after else ""
    return WordPattern(plain, f"(?:^|[{_BLANKS}])" + "".join(f"(?>{_NOT_BLANK}*?{part})" for part in parts))


def plain_text(text: str) -> str:
    """The pattern of a lowered text that is found anywhere, whatever is beside it."""
    return "".join(map(_literal, text))


def _parts(pieces: Sequence[Piece]) -> list[str]:
    """What stands between the stars; those at the ends are left out, because a match may begin and end
    anywhere."""
    parts = [""]
    for at, piece in enumerate(pieces):
        if piece is not Wildcard.ANY:
            parts[-1] += _NOT_BLANK if piece is Wildcard.ONE else plain_text(piece)
        elif 0 < at < len(pieces) - 1:
            parts.append("")
    return parts


def _literal(character: str) -> str:
    if len(every := spellings(character)) > 1:
        return f"[{every}]"
    return f"\\{character}" if character in _SPECIAL else character
