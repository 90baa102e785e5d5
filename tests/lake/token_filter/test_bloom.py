"""The filter of one row group: what was put in is found, and little else."""

import random

import numpy as np
import pytest

from lake.token_filter.bloom import block_count, build, masks, may_have


@pytest.mark.parametrize("keys", [0, 1, 2, 17, 1_000, 100_000])
def test_every_key_is_found_and_nearly_no_other(keys: int) -> None:
    """Of those that are not in it at most one in 200."""
    draws = np.random.default_rng(keys)
    hashes = np.unique(draws.integers(0, 2**64 - 1, 2 * keys, np.uint64))
    inside = draws.permutation(hashes)[:keys]
    filled = build(np.sort(inside))
    assert filled.shape == (block_count(keys), 8)
    assert may_have(filled, inside).all()
    others = np.setdiff1d(hashes, inside)
    assert may_have(filled, others).sum() <= max(3, len(others) / 200)


def test_a_filter_without_blocks_may_have_anything() -> None:
    """As that of a row group with too many tokens."""
    assert may_have(np.zeros((0, 8), np.uint32), np.array([1, 2**63], np.uint64)).all()


def test_bits_are_those_of_parquet() -> None:
    """As its specification computes them, one key at a time: block, and one bit in each word."""
    salt = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    draw = random.Random(1)
    for _ in range(200):
        key = draw.getrandbits(64)
        filled = build(np.array([key], np.uint64))
        words = [1 << ((key & 0xFFFFFFFF) * one % 2**32 >> 27) for one in salt]
        assert filled[(key >> 32) * len(filled) >> 32].tolist() == words
        assert masks(np.array([key], np.uint64)).tolist() == [words]


def test_sizes_have_three_significant_bits() -> None:
    """So filters of like size are asked together; none is smaller than its keys need."""
    for keys in (1, 18, 19, 1_000, 54_321, 2_000_000):
        blocks = block_count(keys)
        assert blocks * 256 >= keys * 14
        assert blocks >> max(0, blocks.bit_length() - 3) << max(0, blocks.bit_length() - 3) == blocks
