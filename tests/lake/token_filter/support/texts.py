"""Texts of many scripts, with what is odd about their cases, and questions cut out of them."""

import random
from collections.abc import Sequence

# Latin, Greek, Cyrillic, Han, Kana, Hangul, Thai, Hebrew, Arabic, Devanagari; U+0130 and U+212A, which have
# ASCII for their small letters; sharp and long s, both sigmas, titlecase digraphs, theta and ohm symbols,
# what Unicode 16 brought; combining marks, joiners, a letter beyond the basic plane, marks and blanks.
_ODD = [
    *"\u0130\u0131\u017f\u00df\u1e9eΣσς\u01c5\u01c6Θϴθ\u2126Ωω\u212bÅå\u212a\u212aKk",
    *"\ua7dc\ua7cb\u1c89\U00010d50\u0264\u019b\u0345\u1fbe",
    *"ÄäéÉñŁłŒœ",
    *"ЖжЁёЂђҐґѢѣ",
    *"ΆάΈΪϊΐΎύ",
    *"漢字東京語𠮷",
    *"ひらカタｶﾀー",
    *"한국어가각ㄱㅏ",
    *"ไทยกขעבאبתनमస",
    *"\u0301\u0308\u0327\u200d\u200c\ufe0f",
    *"😀💩🇩",
]
_PLAIN = [*"abcxyzABCXYZ0189__"]
_BETWEEN = [*" .,:;-/=()[]{}\"'\\\n\t%*?\x1f\u00a0\u3000\u2028"]
_WORDS = ["timeout", "Refused", "GET", "order_42", "10.0.0.1", "a1b2c3d4e5f60718293a4b5c6d7e8f90", "Straße"]
_WORDS += [
    "ΣΊΣΥΦΟΣ",
    "Москва",
    "東京都",
    "대한민국",
    "\u0130stanbul",
    "5\u212a",
    "x" * 63,
    "x" * 64,
    "y" * 65,
    "nai\u0308ve",
]


def text(draw: random.Random) -> str:
    """A text of up to some dozen characters or words; now and then a long one."""
    kind = draw.random()
    if kind < 0.15:
        return "".join(draw.choices(_PLAIN, k=draw.choice((0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 80))))
    if kind < 0.45:
        return draw.choice((" ", "_", "-", "")).join(draw.choices(_WORDS, k=draw.randint(1, 5)))
    pools = draw.choice(((_PLAIN, _BETWEEN), (_ODD,), (_ODD, _PLAIN), (_ODD, _PLAIN, _BETWEEN)))
    return "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randint(0, 24)))


def part_of(value: str, draw: random.Random) -> str:
    """A stretch of a value, in another case now and then; seldom with a character of its own."""
    if not value or draw.random() < 0.02:
        return text(draw)
    start = draw.randrange(len(value))
    part = value[start : start + draw.randint(1, 12)] if draw.random() < 0.8 else value
    changed = draw.choice((str, str, str, str.lower, str.upper, str.title, str.swapcase))(part)
    if draw.random() < 0.05:
        at = draw.randrange(len(changed) + 1)
        changed = changed[:at] + draw.choice((*_PLAIN, *_ODD, *_BETWEEN)) + changed[at:]
    return changed


def cased(value: str, draw: random.Random) -> str:
    return "".join(draw.choice((str, str.upper, str.lower))(character) for character in value)


def any_character(draw: random.Random, pools: Sequence[Sequence[str]] = (_PLAIN, _ODD, _BETWEEN)) -> str:
    return draw.choice(draw.choice(pools))
