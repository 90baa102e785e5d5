"""The characters that a text column is made of, where they are few: an id of hexadecimal digits holds no word
with an `r` in it, which a filter cannot say of a column with many tokens.

An alphabet is a number with one bit for each ASCII character, letters in lower case.
"""

import numpy as np
import pyarrow as pa

from lake.token_filter.tokens import plain

Alphabet = int
ALPHABET_END = 1 << 128
# A column with more of them, or with others, has none: it is read far enough to tell.
CHARACTERS_MAX = 48
# Columns of one file: beyond, the header of a small file would be larger than its filter.
ALPHABETS_MAX = 64
_LOOKED_AT_BYTES = 4_096
_CAPITALS = range(ord("A"), ord("Z") + 1)


def alphabet_of(text: str) -> Alphabet | None:
    """The characters of a text; None where it has others than those of ASCII."""
    if not text.isascii():
        return None
    return _bits(set(text.lower().encode()))


def of_either(one: Alphabet | None, other: Alphabet | None) -> Alphabet | None:
    """The characters of two texts together; None where those of one are not known."""
    return None if one is None or other is None else one | other


def few_of_either(one: Alphabet | None, other: Alphabet | None) -> Alphabet | None:
    """The same, and None where they are many."""
    both = of_either(one, other)
    return None if both is None or both.bit_count() > CHARACTERS_MAX else both


def array_alphabet(values: pa.Array) -> Alphabet | None:
    """The characters of an array of texts that is not dictionary-encoded; None where they are many, or not
    all of ASCII."""
    raw, offsets = plain(values)
    raw = raw[offsets[0] : offsets[-1]]
    alphabet = 0
    for some in (raw[:_LOOKED_AT_BYTES], raw) if len(raw) > _LOOKED_AT_BYTES else (raw,):
        alphabet = _bits(_characters(some))
        if alphabet >= ALPHABET_END or alphabet.bit_count() > CHARACTERS_MAX:
            return None
    return alphabet


def _characters(some: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> set[int]:
    # Two bytes at a time: numpy takes as long for each place as for one.
    pairs = np.zeros(1 << 16, bool)
    pairs[some[: len(some) // 2 * 2].view("<u2")] = True
    first, second = np.divmod(np.flatnonzero(pairs), 256)
    return {*first.tolist(), *second.tolist(), *some[-1:].tolist()}


def _bits(characters: set[int]) -> Alphabet:
    return sum(1 << each for each in {each + 32 if each in _CAPITALS else each for each in characters})
