"""The block as it stands in a file: read back whole, or not at all."""

import json
import random
import struct
import zlib
from dataclasses import replace

import numpy as np
import orjson
import pytest

from lake.token_filter import block as written
from lake.token_filter.block import (
    BLOCK_BYTES_MAX,
    LEAD_BYTES,
    GroupFilter,
    TokenFilter,
    block_bytes,
    decode,
    decode_counts,
    encode,
    head_bytes,
)
from lake.token_filter.bloom import build

COUNTS = np.array([[29_000_000 + minute, minute % 3, minute + 1] for minute in range(90)])


def a_filter() -> TokenFilter:
    draws = np.random.default_rng(5)
    groups = [
        GroupFilter(
            keys + 1, -5, 10**15 + keys, build(np.unique(draws.integers(0, 2**64 - 1, keys, np.uint64)))
        )
        for keys in (3, 40)
    ]
    without = replace(groups[0], blocks=np.zeros((0, 8), np.uint32))
    return TokenFilter((*groups, without), frozenset((4, 11)), frozenset((3, 5)), COUNTS, {4: 1 << 97 | 1})


def same(one: TokenFilter, other: TokenFilter) -> bool:
    def plain(each: TokenFilter) -> object:
        groups = [(group.rows, group.first_us, group.last_us, group.blocks.tolist()) for group in each.groups]
        counts = None if each.counts is None else each.counts.tolist()
        return groups, each.words, each.fields, each.alphabets, counts

    return plain(one) == plain(other)


@pytest.mark.parametrize("counts", [COUNTS, None])
def test_a_block_is_read_as_it_was_written(counts: np.ndarray | None) -> None:
    """All of it, and the counts alone from what stands before the filters."""
    wanted = replace(a_filter(), counts=counts)
    block = encode(wanted)
    found = decode(block)
    assert found is not None
    assert same(found, wanted)
    head = head_bytes(block[:LEAD_BYTES])
    assert LEAD_BYTES < head < len(block)
    alone = decode_counts(block[:head])
    assert (None if alone is None else alone.tolist()) == (None if counts is None else counts.tolist())


def test_a_damaged_block_is_none() -> None:
    """Each byte changed in turn, cut anywhere, longer than it was: never an error, never another answer."""
    block = encode(a_filter())
    draw = random.Random(1)
    for at in range(len(block)):
        damaged = bytearray(block)
        damaged[at] ^= 1 << draw.randrange(8)
        assert decode(bytes(damaged)) is None, at
        assert head_bytes(bytes(damaged[:LEAD_BYTES])) >= 0
        counts = decode_counts(bytes(damaged))
        assert counts is None or counts.tolist() == COUNTS.tolist(), at
    for end in range(len(block)):
        assert decode(block[:end]) is None
    assert decode(block + b"\0") is None
    assert decode(b"") is None


def test_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the format, or of the tokenizer."""
    for name in ("FORMAT_VERSION", "TOKENIZER_VERSION"):
        with monkeypatch.context() as patch:
            patch.setattr(written, name, 2)
            block = encode(a_filter())
        assert decode(block) is None
        assert decode_counts(block) is None
        assert head_bytes(block) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [[1, 0, 0, 10**9]]},
        {"groups": [[1, 0, 0, -1], [1, 0, 0, 10]]},
        {"groups": [[-1, 0, 0, 1]]},
        {"groups": [[1, 0, 0]]},
        {"groups": 5},
        {"groups": [["1", 0, 0, "x"]]},
        {"groups": []},
        {"words": None},
        {"fields": ["x"]},
        {"words": [10**25]},
        {"words": [1e30]},
        {"words": [0]},
        {"fields": [2**31]},
        {"fields": [True]},
        {"checksum": None},
        {"alphabets": None},
        {"alphabets": [[4, 7]]},
        {"alphabets": [[4, "x"]]},
        {"alphabets": [[4, "-1"]]},
        {"alphabets": [[4, "1" + "0" * 32]]},
        {"alphabets": [[0, "1"]]},
        {"alphabets": [[[], "1"]]},
        {"alphabets": [[column, "1"] for column in range(1, 1_000)]},
    ],
)
def test_a_block_with_right_checksums_and_a_wrong_header_is_none(change: dict[str, object]) -> None:
    """As somebody may write who can write files of the table."""
    block = encode(a_filter())
    _, _, _, header_bytes, counts_bytes, _ = struct.unpack_from("<8sHHIII", block)
    header = json.dumps(orjson.loads(block[LEAD_BYTES : LEAD_BYTES + header_bytes]) | change).encode()
    rest = block[LEAD_BYTES + header_bytes :]
    lead = struct.pack(
        "<8sHHIII",
        written.MAGIC,
        1,
        1,
        len(header),
        counts_bytes,
        zlib.crc32(header + rest[:counts_bytes]),
    )
    assert decode(lead + header + rest) is None


def test_the_first_split_offset_tells_how_long_a_block_may_be() -> None:
    """Nothing where a file begins with its first row group, is not described, or where it is too long to be
    read."""
    assert block_bytes(None) == block_bytes([]) == block_bytes([4]) == block_bytes([20]) == 0
    assert block_bytes([4 + 5_000, 9_000_000]) == 5_000
    assert block_bytes([4 + BLOCK_BYTES_MAX]) == BLOCK_BYTES_MAX
    assert block_bytes([5 + BLOCK_BYTES_MAX]) == 0
