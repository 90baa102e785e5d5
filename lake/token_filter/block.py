"""The block of token filters as it stands in a data file, behind Parquet's magic `PAR1`:

    "FIRNTOKF", format version u16, tokenizer version u16, bytes of header u32, bytes of counts u32,
    CRC-32 of header and counts u32, header, counts (`minute_counts`), filters

All numbers are little-endian. The header is JSON: the row groups with their rows, the times of their first
and last row, and the blocks of their filters; which columns are covered; the CRC-32 of the filters. These
follow in the order of the row groups.

The block ends where the first row group begins, which the manifest's first split offset tells: see
`block_bytes`. All text columns of a file are covered, so a text column that a block does not name is one
that the file does not have.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from lake.token_filter.alphabet import ALPHABET_END, ALPHABETS_MAX, Alphabet
from lake.token_filter.bloom import BLOCK_BYTES, Blocks
from lake.token_filter.minute_counts import MinuteCounts, pack, unpack
from lake.token_filter.tokens import TOKENIZER_VERSION

PARQUET_MAGIC_BYTES = 4
MAGIC = b"FIRNTOKF"
FORMAT_VERSION = 1
# What a reader takes in, whoever wrote the file.
BLOCK_BYTES_MAX = 64 << 20
HEADER_BYTES_MAX = 1 << 20
_FIELD_IDS_END = 1 << 31
_LEAD = struct.Struct("<8sHHIII")
LEAD_BYTES = _LEAD.size


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filter of one row group. `first_us`, `last_us`: its times, µs since 1970, both included. A filter
    without blocks may have any token."""

    rows: int
    first_us: int
    last_us: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """What a block says of its file. `words`: ids of the columns whose tokens are in the filters as they
    are; `fields`: ids of those whose tokens are there as tokens of their field (`in_field`); `alphabets`: by
    id the characters of columns that have few. `counts`: None where the file is not counted."""

    groups: tuple[GroupFilter, ...]
    words: frozenset[int]
    fields: frozenset[int]
    counts: MinuteCounts | None = None
    alphabets: Mapping[int, Alphabet] = field(default_factory=dict)


def block_bytes(split_offsets: Sequence[int] | None) -> int:
    """How many bytes may be a block, by the manifest's split offsets; 0: there is none, or none that is
    read."""
    length = split_offsets[0] - PARQUET_MAGIC_BYTES if split_offsets else 0
    return length if LEAD_BYTES <= length <= BLOCK_BYTES_MAX else 0


def encode(token_filter: TokenFilter) -> bytes:
    """The block of a file."""
    filters = b"".join(group.blocks.astype("<u4").tobytes() for group in token_filter.groups)
    header = orjson.dumps(
        {
            "groups": [
                [group.rows, group.first_us, group.last_us, len(group.blocks)]
                for group in token_filter.groups
            ],
            "words": sorted(token_filter.words),
            "fields": sorted(token_filter.fields),
            "alphabets": [[each, f"{found:x}"] for each, found in sorted(token_filter.alphabets.items())],
            "checksum": zlib.crc32(filters),
        }
    )
    counts = b"" if token_filter.counts is None else pack(token_filter.counts)
    checksum = zlib.crc32(header + counts)
    lead = _LEAD.pack(MAGIC, FORMAT_VERSION, TOKENIZER_VERSION, len(header), len(counts), checksum)
    return lead + header + counts + filters


def head_bytes(lead: bytes) -> int:
    """How many bytes of a block come before its filters, by its first LEAD_BYTES; 0 where it is none, or of
    another version."""
    if len(lead) < LEAD_BYTES:
        return 0
    magic, version, tokenizer, header_bytes, counts_bytes, _ = _LEAD.unpack_from(lead)
    if (magic, version, tokenizer) != (MAGIC, FORMAT_VERSION, TOKENIZER_VERSION):
        return 0
    return LEAD_BYTES + int(header_bytes) + int(counts_bytes)


def decode_counts(head: bytes) -> MinuteCounts | None:
    """The counts alone, by what comes before the filters; None where there are none, or none that can be
    relied on."""
    try:
        return unpack(_header_and_counts(head)[1])
    except (KeyError, TypeError, ValueError):
        return None


def decode(block: bytes) -> TokenFilter | None:
    """What a block says; None where it is no block, or one that cannot be relied on: of another version,
    damaged, or cut."""
    try:
        header, counts = _header_and_counts(block)
        filters = memoryview(block)[head_bytes(block) :]
        if zlib.crc32(filters) != header["checksum"]:
            return None
        return TokenFilter(
            _groups(header["groups"], filters),
            _field_ids(header["words"]),
            _field_ids(header["fields"]),
            unpack(counts),
            alphabets_of(header.get("alphabets", ())),
        )
    except (KeyError, TypeError, ValueError):  # what only somebody writes who has the checksums right, too
        return None


def _header_and_counts(block: bytes) -> tuple[Mapping[str, Any], bytes]:
    """Raises ValueError where they are not what was written."""
    end = head_bytes(block)
    if not LEAD_BYTES < end <= len(block):
        raise ValueError("no block")
    *_, header_bytes, _, checksum = _LEAD.unpack_from(block)
    if header_bytes > HEADER_BYTES_MAX:
        raise ValueError("too long a header")
    if zlib.crc32(memoryview(block)[LEAD_BYTES:end]) != checksum:
        raise ValueError("damaged")
    header_end = LEAD_BYTES + header_bytes
    header = orjson.loads(block[LEAD_BYTES:header_end])
    if not isinstance(header, dict):
        raise TypeError("no object")
    return header, bytes(block[header_end:end])


def _field_ids(listed: Sequence[int]) -> frozenset[int]:
    """Raises ValueError, TypeError where they are none that Iceberg gives."""
    found = frozenset(listed)
    if not all(type(each) is int and 0 < each < _FIELD_IDS_END for each in found):
        raise ValueError("no field ids")
    return found


def alphabets_of(listed: Sequence[Sequence[Any]]) -> dict[int, Alphabet]:
    """Alphabets by field id, as they are written. Raises ValueError, TypeError where they are none, or more
    than are written."""
    if len(listed) > ALPHABETS_MAX:
        raise ValueError("too many alphabets")
    found = {each: int(alphabet, 16) for each, alphabet in listed}
    _field_ids(list(found))
    if not all(0 <= alphabet < ALPHABET_END for alphabet in found.values()):
        raise ValueError("no alphabet")
    return found


def _groups(listed: Sequence[Sequence[int]], filters: memoryview) -> tuple[GroupFilter, ...]:
    """Raises ValueError, TypeError where the list does not fit the filters."""
    at, groups = 0, []
    for rows, first_us, last_us, blocks in listed:
        end = at + blocks * BLOCK_BYTES
        if blocks < 0 or rows < 0 or end > len(filters):
            raise ValueError("a filter that is not there")
        filled = np.frombuffer(filters[at:end], "<u4").reshape(blocks, 8)
        groups.append(GroupFilter(int(rows), int(first_us), int(last_us), filled))
        at = end
    if at != len(filters):
        raise ValueError("more than the filters")
    return tuple(groups)
