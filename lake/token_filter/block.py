"""The block of token filters as it stands in a data file, behind Parquet's magic `PAR1`:

    "FIRNTOKF", format version u16, tokenizer version u16, header bytes u32, CRC-32 u32, header, filters

All numbers are little-endian. The header is JSON: the row groups with their rows, the times of their first
and last row, and the blocks of their filters; which columns are covered; rows by minute and level. The
filters follow in the order of the row groups. The CRC-32 is of header and filters.

The block ends where the first row group begins, which the manifest's first split offset tells: see
`block_bytes`. All string columns of a file are covered, so a text column that a block does not name is one
that the file does not have.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from lake.token_filter.bloom import BLOCK_BYTES, Blocks
from lake.token_filter.tokens import TOKENIZER_VERSION

PARQUET_MAGIC_BYTES = 4
MAGIC = b"FIRNTOKF"
FORMAT_VERSION = 1
# What a reader takes in, whoever wrote the file.
BLOCK_BYTES_MAX = 64 << 20
_LEAD = struct.Struct("<8sHHII")


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filter of one row group. `first_us`, `last_us`: its times, µs since 1970, both included."""

    rows: int
    first_us: int
    last_us: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """What a block says of its file. `words`: ids of the columns whose tokens are in the filters as they
    are; `fields`: ids of those whose tokens are there as tokens of their field (`in_field`)."""

    groups: tuple[GroupFilter, ...]
    words: frozenset[int]
    fields: frozenset[int]
    counts: Sequence[Sequence[int]] = ()  # (minute since 1970, number of the level, rows)


def block_bytes(split_offsets: Sequence[int] | None) -> int:
    """How many bytes may be a block, by the manifest's split offsets; 0: there is none, or none that is
    read."""
    length = split_offsets[0] - PARQUET_MAGIC_BYTES if split_offsets else 0
    return length if _LEAD.size <= length <= BLOCK_BYTES_MAX else 0


def encode(token_filter: TokenFilter) -> bytes:
    """The block of a file."""
    header = orjson.dumps(
        {
            "groups": [
                [group.rows, group.first_us, group.last_us, len(group.blocks)]
                for group in token_filter.groups
            ],
            "words": sorted(token_filter.words),
            "fields": sorted(token_filter.fields),
            "counts": token_filter.counts,
        }
    )
    said = b"".join([header, *(group.blocks.astype("<u4").tobytes() for group in token_filter.groups)])
    return _LEAD.pack(MAGIC, FORMAT_VERSION, TOKENIZER_VERSION, len(header), zlib.crc32(said)) + said


def decode(block: bytes) -> TokenFilter | None:
    """What a block says; None where it is no block, or one that cannot be relied on: of another version,
    damaged, or cut."""
    if len(block) < _LEAD.size:
        return None
    magic, version, tokenizer, header_bytes, checksum = _LEAD.unpack_from(block)
    if (magic, version, tokenizer) != (MAGIC, FORMAT_VERSION, TOKENIZER_VERSION):
        return None
    said = memoryview(block)[_LEAD.size :]
    if zlib.crc32(said) != checksum:
        return None
    try:
        return _read(orjson.loads(said[:header_bytes]), said[header_bytes:])
    except (KeyError, TypeError, ValueError):  # as only somebody writes who has the checksum right
        return None


def _read(header: Mapping[str, Any], filters: memoryview) -> TokenFilter | None:
    at, groups = 0, []
    for rows, first_us, last_us, blocks in header["groups"]:
        end = at + blocks * BLOCK_BYTES
        if blocks < 1 or rows < 0 or end > len(filters):
            return None
        filled = np.frombuffer(filters[at:end], "<u4").reshape(blocks, 8)
        groups.append(GroupFilter(int(rows), int(first_us), int(last_us), filled))
        at = end
    if at != len(filters):
        return None
    return TokenFilter(
        tuple(groups), frozenset(header["words"]), frozenset(header["fields"]), header["counts"]
    )
