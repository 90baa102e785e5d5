"""What the tokens of a text are, and their hashes, in plain Python: one value at a time, by regular
expressions over text and integers without a width."""

import re
from collections.abc import Iterable
from itertools import pairwise

from lake.token_filter.letters import letters

_RUN = re.compile(r"[0-9A-Za-z_]+")
_64 = 2**64 - 1
_PAIR = 0xD6E8FEB86659FD93


def tokens_of(value: str) -> set[str | tuple[int, int]]:
    """Runs in lower case, and pairs of letters as code points."""
    folded = value.replace("\u0130", "i").replace("\u212a", "k")
    small = [int(letters()[ord(character)]) for character in folded]
    pairs = {(one, other) for one, other in pairwise(small) if one and other}
    return {run.lower() for run in _RUN.findall(folded)} | pairs


def hashes_of(tokens: Iterable[str | tuple[int, int]]) -> set[int]:
    return {_hash_of(token) for token in tokens}


def _hash_of(token: str | tuple[int, int]) -> int:
    if isinstance(token, tuple):
        return _mixed((token[0] << 32 | token[1]) ^ _PAIR)
    hashed = 0
    for at in range(0, min(len(token), 64), 8):
        hashed = _mixed(hashed ^ int.from_bytes(token[at : at + 8].encode(), "little"))
    return hashed


def _mixed(hashed: int) -> int:
    hashed ^= hashed >> 33
    hashed = hashed * 0xFF51AFD7ED558CCD & _64
    hashed ^= hashed >> 33
    hashed = hashed * 0xC4CEB9FE1A85EC53 & _64
    return hashed ^ hashed >> 33
