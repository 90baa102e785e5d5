"""Names that people take for other names: look-alike letters of other scripts, characters that nobody sees,
text that runs from right to left.

Nothing is refused for it: names of tenants are their owners' affair, and two that differ in a byte are two
tenants. It is warned of. The rule is a small part of Unicode's own (UTS #39, "Unicode Security Mechanisms"):
the letters by which Latin, Cyrillic and Greek are mistaken for each other.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

# Lower-case letters of Cyrillic and Greek, each beside the Latin one that it looks like.
_LOOKS_LIKE = {
    **dict(zip("авеікморсѕтухјһԁԛԝցпг", "abeikmopcstyxjhdqwgnr", strict=True)),
    **dict(zip("αβγεηικνορτυχω", "abyenikvoptuxw", strict=True)),
    "ı": "i",
    "ł": "l",
    "ø": "o",
    "đ": "d",
}
_TABLE = str.maketrans(_LOOKS_LIKE)
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "GEORGIAN")
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


@lru_cache(maxsize=65_536)
def peculiarities(name: str) -> tuple[str, ...]:
    """What is peculiar about a name by itself, in words that do not repeat it; none for most names."""
    if name.isascii():
        return ("begins or ends with a blank",) if name != name.strip() else ()
    found = []
    if any(unicodedata.bidirectional(each) in _RIGHT_TO_LEFT for each in name):
        found.append("runs from right to left, or turns the direction of text")
    if any(map(_is_unseen, name)):
        found.append("holds characters that are not seen")
    if len(scripts := _scripts(name)) > 1:
        found.append(f"mixes letters of {' and '.join(sorted(script.capitalize() for script in scripts))}")
    if name != name.strip():
        found.append("begins or ends with a blank")
    return tuple(found)


@lru_cache(maxsize=65_536)
def skeleton(name: str) -> str:
    """The same for two names that look alike. For comparing only; it is no name."""
    if name.isascii():
        return name.casefold().strip()
    seen = "".join(each for each in unicodedata.normalize("NFKC", name) if not _is_unseen(each))
    return " ".join(unicodedata.normalize("NFKC", seen.casefold()).translate(_TABLE).split())


def warnings_of(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The warnings about each of these names that has any: what is peculiar about it, and which others of
    them it looks like."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[skeleton(name)].append(name)
    told = {
        name: (*peculiarities(name), *likenesses(name, group)) for group in alike.values() for name in group
    }
    return {name: warnings for name, warnings in told.items() if warnings}


def likenesses(name: str, others: Iterable[str]) -> tuple[str, ...]:
    """The warning about the other names with the same skeleton; none where there are none."""
    alike = sorted(f'"{visible(other)}"' for other in others if other != name)
    return (f"looks like {', '.join(alike)}",) if alike else ()


def visible(name: str) -> str:
    """A name in characters that cannot be mistaken: all but printable ASCII is spelled out, so `аcme` with a
    Cyrillic а is `\\u0430cme`."""
    return name if name.isascii() and name.isprintable() else name.encode("unicode_escape").decode()


def _is_unseen(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category in ("Cf", "Cc", "Zl", "Zp")
        or (category == "Zs" and character != " ")
        or character in _FILLERS
        or "\ufe00" <= character <= "\ufe0f"
    )


def _scripts(name: str) -> set[str]:
    """The scripts of its letters that are mistaken for each other; Japanese beside Latin is not."""
    first_words = (
        unicodedata.name(each, "").split(" ", 1)[0]
        for each in unicodedata.normalize("NFKC", name)
        if each.isalpha()
    )
    return {word for word in first_words if word in _SCRIPTS}
