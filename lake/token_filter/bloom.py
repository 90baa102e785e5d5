"""Split-block Bloom filters, as Parquet lays them out (Parquet format, "Bloom Filter"; Putze, Sanders and
Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): a key sets one bit in each of the eight
32-bit words of one block, so a question looks at 32 bytes.
"""

import numpy as np
from numpy.typing import NDArray

from lake.token_filter.tokens import Hashes

BITS_PER_KEY = 14  # about one word in 500 is found that is not there
BLOCK_BYTES = 32
_BLOCK_BITS = 8 * BLOCK_BYTES
# The eight odd constants of the specification.
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)
_32 = np.uint64(32)
# Little-endian words, shape (blocks, 8).
Blocks = NDArray[np.uint32]


def block_count(keys: int) -> int:
    """How many blocks a filter of so many keys has: rounded up to three significant bits, so that filters of
    like size have as many and can be asked together."""
    needed = max(1, -(-keys * BITS_PER_KEY // _BLOCK_BITS))
    step = 1 << max(0, needed.bit_length() - 3)
    return -(-needed // step) * step


def build(hashes: Hashes) -> Blocks:
    """The filter of distinct keys in order."""
    filled = np.zeros((block_count(len(hashes)), 8), "<u4")
    if not len(hashes):
        return filled
    block = block_of(hashes, len(filled))  # in order, as the keys are
    first = np.flatnonzero(np.concatenate([[True], block[1:] != block[:-1]]))
    low = hashes.astype(np.uint32)
    for word, salt in enumerate(_SALT):
        bits = np.uint32(1) << (low * salt >> np.uint32(27))
        filled[block[first], word] = np.bitwise_or.reduceat(bits, first)
    return filled


def block_of(hashes: Hashes, blocks: int) -> NDArray[np.int64]:
    """The block of each key in a filter of so many blocks."""
    return ((hashes >> _32) * np.uint64(blocks) >> _32).astype(np.int64)


def masks(hashes: Hashes) -> Blocks:
    """The bits of each key in its block, shape (keys, 8)."""
    shifts: Blocks = hashes.astype(np.uint32)[:, None] * _SALT >> np.uint32(27)
    return np.uint32(1) << shifts


def may_have(filled: Blocks, hashes: Hashes) -> NDArray[np.bool_]:
    """False for each key that was not put in. A filter without blocks may have any."""
    if not len(filled):
        return np.ones(len(hashes), bool)
    wanted = masks(hashes)
    there: NDArray[np.bool_] = ((filled[block_of(hashes, len(filled))] & wanted) == wanted).all(axis=1)
    return there
