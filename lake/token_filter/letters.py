"""Characters beyond ASCII that are found by pairs: scripts that are written without blanks, or in which words
have no ASCII letter.

A pair must be the same whatever case the text is in and whichever engine lowers it, for all time: so the
table is spelled out here instead of asking the Unicode data of this Python. It takes in scripts without case,
Cyrillic, and Greek; any other character ends a run of letters. A change of the table is a new version of the
tokenizer.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

# First and last code point of scripts without case, whatever is unassigned in them.
_CASELESS = (
    (0x0590, 0x109F),  # Hebrew, Arabic, the scripts of India, Thai, Lao, Tibetan, Myanmar
    (0x1100, 0x139F),  # Hangul Jamo, Ethiopic
    (0x1780, 0x18AF),  # Khmer, Mongolian
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x3130, 0x318F),  # Hangul, for compatibility
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xAC00, 0xD7A3),  # Hangul
    (0xF900, 0xFAFF),  # Han, for compatibility
    (0xFF66, 0xFFDC),  # Katakana and Hangul of half width
    (0x20000, 0x3134F),  # Han, further extensions
)
# First and last capital letter, and how far behind it the small one stands.
_CAPITALS = (
    (0x0410, 0x042F, 0x20),
    (0x0400, 0x040F, 0x50),
    (0x0391, 0x03A1, 0x20),
    (0x03A3, 0x03AB, 0x20),
    (0x0386, 0x0386, 0x26),
    (0x0388, 0x038A, 0x25),
    (0x038C, 0x038C, 0x40),
    (0x038E, 0x038F, 0x3F),
)
_SMALL = ((0x0430, 0x045F), (0x03AC, 0x03CE))
# Letters elsewhere whose small letter is one of these: the theta symbol and the ohm sign.
_STRANGERS = {0x03F4: 0x03B8, 0x2126: 0x03C9}
CODE_POINTS = 0x110000


@cache
def letters() -> NDArray[np.uint32]:
    """By code point: the small letter that stands for it, 0 where it makes no pairs. Shape (0x110000,)."""
    table = np.zeros(CODE_POINTS, np.uint32)
    for first, last in (*_CASELESS, *_SMALL):
        table[first : last + 1] = np.arange(first, last + 1)
    for first, last, distance in _CAPITALS:
        table[first : last + 1] = np.arange(first + distance, last + distance + 1)
    for capital, small in _STRANGERS.items():
        table[capital] = small
    return table
