"""Token filters of many files in one file on this machine, laid out for being asked.

    "FIRNPACK", version u16, format and tokenizer version of the filters u16 u16, bytes of header u32,
    CRC-32 of the header u32, id 16 bytes, header, stripes

Filters of as many blocks stand together, block by block: a stripe is one block of each of them, which is all
that is read to ask them for one token. Each stripe has a checksum, so damage is noticed where it is read, and
nothing else has to be. The header is JSON: whose filters these are, files, row groups, and how many there are
of each size.

What a pack says of a file is what the file's block says; it can always be made anew.
"""

import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import orjson
from numpy.typing import NDArray

from lake.token_filter.alphabet import Alphabet, of_either
from lake.token_filter.block import FORMAT_VERSION, TokenFilter, alphabets_of
from lake.token_filter.bloom import BLOCK_BYTES, Blocks, block_of, masks
from lake.token_filter.tokens import TOKENIZER_VERSION, Hashes, in_field
from query.files.token_demand import Coverage, Demand, Word, covered, may_match

MAGIC = b"FIRNPACK"
VERSION = 2
_VERSIONS = (VERSION, FORMAT_VERSION, TOKENIZER_VERSION)
_LEAD = struct.Struct("<8sHHHxxII16s")
LEAD_BYTES = _LEAD.size
_CHECKSUM_BYTES = 4
# What is believed of a file's own words about its size.
HEADER_BYTES_MAX = 256 << 20

# Columns, times the different things that a pack says of them, which are looked at for one word.
TOLD_APART_MAX = 50_000

# Bytes of a pack from an offset on; fewer where it ends.
Read = Callable[[int, int], bytes]
_Numbers = NDArray[np.int64]
_Stripes = NDArray[np.uint32]  # (blocks, filters, 8)


class DamagedPackError(ValueError):
    """A pack is not what was written."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where rows of a file stand in it."""

    first_row: int
    rows: int

    @property
    def end(self) -> int:
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class PackedFile:
    """What a pack holds of one file. `groups` empty: it has no filter, and may match whatever is asked."""

    uri: str
    coverage: Coverage
    groups: tuple[RowGroup, ...]
    filters: tuple[Blocks, ...]
    alphabets: Mapping[int, Alphabet] = field(default_factory=dict)


def packed_file(uri: str, rows: int, token_filter: TokenFilter | None) -> PackedFile:
    """What a block says, in the form of packs. `rows`: what the manifest says of the file."""
    groups, first = list[RowGroup](), 0
    for group in token_filter.groups if token_filter is not None else ():
        groups.append(RowGroup(first, group.rows))
        first += group.rows
    if token_filter is None or first != rows:
        return PackedFile(uri, Coverage(frozenset(), frozenset()), (), ())
    coverage = Coverage(token_filter.words, token_filter.fields)
    filters = tuple(group.blocks for group in token_filter.groups)
    return PackedFile(uri, coverage, tuple(groups), filters, token_filter.alphabets)


@dataclass(frozen=True)
class PackHeader:
    """What stands before the stripes. Row groups are numbered in the order of the filters: by size, then as
    files came. `sizes`: blocks of a filter, and how many filters have so many; `start`: of the stripes."""

    id: bytes
    table: str
    uris: tuple[str, ...]
    coverages: tuple[Coverage, ...]
    coverage_of: _Numbers  # by file
    alphabets: tuple[Mapping[int, Alphabet], ...]
    alphabets_of: _Numbers  # by file
    file_of: _Numbers  # by row group, and so on
    first_row: _Numbers
    rows: _Numbers
    sizes: tuple[tuple[int, int], ...]
    start: int

    @cached_property
    def known(self) -> frozenset[str]:
        """The files of this pack."""
        return frozenset(self.uris)

    @cached_property
    def filtered(self) -> frozenset[str]:
        """Those of them that have filters."""
        return frozenset(self.uris[at] for at in np.unique(self.file_of))

    def spells(self, column: int, word: Word) -> NDArray[np.bool_]:
        """By file, whether a column may have a word by its characters."""
        return np.array([word.may_be_of(each.get(column)) for each in self.alphabets])[self.alphabets_of]

    def alphabet_of(self, column: int, files: NDArray[np.bool_]) -> Alphabet | None:
        """The characters that a column has in some of the files; None where it may have any."""
        having = files & (self.is_word(column) | self.is_field(column))
        found: Alphabet | None = 0
        for each in np.unique(self.alphabets_of[having]).tolist():
            found = of_either(found, self.alphabets[each].get(column))
        return found

    def is_field(self, column: int) -> NDArray[np.bool_]:
        """By file, whether a column's tokens are there as those of their field."""
        return np.array([column in each.fields for each in self.coverages], bool)[self.coverage_of]

    def is_word(self, column: int) -> NDArray[np.bool_]:
        """By file, whether a column's tokens are there as they are."""
        return np.array([column in each.words for each in self.coverages], bool)[self.coverage_of]

    @property
    def size_bytes(self) -> int:
        """Of the whole pack."""
        return self.start + sum(blocks * _stripe_bytes(filters) for blocks, filters in self.sizes)

    def groups_of(self, numbers: _Numbers) -> dict[str, list[RowGroup]]:
        """Row groups by file."""
        found: dict[str, list[RowGroup]] = {}
        for number in numbers.tolist():
            group = RowGroup(int(self.first_row[number]), int(self.rows[number]))
            found.setdefault(self.uris[self.file_of[number]], []).append(group)
        return found


def parse_lead(lead: bytes) -> tuple[bytes, int]:
    """The id of a pack and the bytes of its header, by its first LEAD_BYTES. Raises DamagedPackError, for
    filters of another version too."""
    if len(lead) < LEAD_BYTES:
        raise DamagedPackError("cut")
    magic, *versions, header_bytes, _, pack_id = _LEAD.unpack_from(lead)
    if magic != MAGIC or tuple(versions) != _VERSIONS or header_bytes > HEADER_BYTES_MAX:
        raise DamagedPackError("of another version")
    return pack_id, int(header_bytes)


def parse_header(read: Read, table: str, size_bytes: int) -> PackHeader:
    """Reads the header of a pack of so many bytes. `table`: whose it has to be. Raises DamagedPackError."""
    lead = read(0, LEAD_BYTES)
    pack_id, header_bytes = parse_lead(lead)
    raw = read(LEAD_BYTES, header_bytes)
    if zlib.crc32(raw, zlib.crc32(pack_id)) != _LEAD.unpack_from(lead)[-2]:
        raise DamagedPackError("its header is damaged")
    said = orjson.loads(raw)
    if said["table"] != table:
        raise DamagedPackError("of another table")
    file_of, first_row, rows = np.array(said["groups"], np.int64).reshape(3, -1)
    header = PackHeader(
        pack_id,
        table,
        tuple(said["uris"]),
        tuple(Coverage(frozenset(words), frozenset(fields)) for words, fields in said["coverages"]),
        np.array(said["coverage_of"], np.int64),
        tuple(map(alphabets_of, said["alphabets"])),
        np.array(said["alphabets_of"], np.int64),
        file_of,
        first_row,
        rows,
        tuple((blocks, filters) for blocks, filters in said["sizes"]),
        LEAD_BYTES + header_bytes,
    )
    if header.size_bytes != size_bytes:
        raise DamagedPackError("cut")
    return header


def ask(header: PackHeader, read: Read, demand: Demand) -> NDArray[np.bool_]:
    """Which row groups may have what is demanded. Raises DamagedPackError."""
    asked = [covered(demand, coverage) for coverage in header.coverages]
    found, first, start = np.ones(len(header.file_of), bool), 0, header.start
    for number, (blocks, filters) in enumerate(header.sizes):
        end = first + filters
        has = _Filters(read, header.id, number, blocks, filters, start).have
        coverage_of = header.coverage_of[header.file_of[first:end]]
        for at, each in enumerate(asked):
            if blocks and each is not None and at in coverage_of:
                found[first:end] &= may_match(each, has) | (coverage_of != at)
        first, start = end, start + blocks * _stripe_bytes(filters)
    return found


def may_hold(
    header: PackHeader, read: Read, groups: NDArray[np.bool_], word: Word
) -> dict[int, Alphabet | None]:
    """The columns that may have a word in one of these row groups, each with the characters that it has in
    their files; all, where to tell them apart would take longer than it spares. Raises DamagedPackError."""
    said = len(header.alphabets) + len(header.coverages) + len(header.sizes)
    without_blocks = sum(filters for blocks, filters in header.sizes if not blocks)  # they come first
    if groups[:without_blocks].any() or len(word.columns) * said > TOLD_APART_MAX:
        return dict.fromkeys(word.columns)
    files = np.zeros(len(header.uris), bool)
    files[header.file_of[groups]] = True
    kept = word.columns - _cannot_hold(header, read, groups, word)
    return {column: header.alphabet_of(column, files) for column in kept}


def _cannot_hold(header: PackHeader, read: Read, groups: NDArray[np.bool_], word: Word) -> set[int]:
    left = set(word.columns)
    first, start = 0, header.start
    for number, (blocks, filters) in enumerate(header.sizes):
        end = first + filters
        asked, files = groups[first:end], header.file_of[first:end]
        has = _Filters(read, header.id, number, blocks, filters, start).have
        for column in list(left) if asked.any() else ():
            may_be = asked & header.spells(column, word)[files]
            as_field = header.is_field(column)[files]
            if (may_be & header.is_word(column)[files] & ~as_field).any() or (
                (may_be & as_field).any() and (may_be & as_field & has(in_field(word.tokens, column))).any()
            ):
                left.remove(column)
        first, start = end, start + blocks * _stripe_bytes(filters)
    return left


@dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of one size."""

    read: Read
    pack_id: bytes
    number: int
    blocks: int
    filters: int
    start: int

    def have(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of them may have all of these tokens."""
        found = np.ones(self.filters, bool)
        for block, mask in zip(block_of(hashes, self.blocks).tolist(), masks(hashes), strict=True):
            wide = mask.view("<u8")
            found &= ((self._stripe(block) & wide) == wide).all(axis=1)
            if not found.any():
                break
        return found

    def _stripe(self, block: int) -> NDArray[np.uint64]:
        size = _stripe_bytes(self.filters)
        raw = self.read(self.start + block * size, size)
        filled = memoryview(raw)[:-_CHECKSUM_BYTES]
        checksum = _checksum(self.pack_id, self.number, block, filled)
        if len(raw) != size or raw[-_CHECKSUM_BYTES:] != checksum:
            raise DamagedPackError("a stripe is damaged")
        return np.frombuffer(filled, "<u8").reshape(self.filters, 4)


def build(table: str, files: Sequence[PackedFile]) -> bytes:
    """A pack of these files."""
    pack_id = os.urandom(16)
    coverages = list(dict.fromkeys(file.coverage for file in files))
    alphabets = [tuple(sorted(file.alphabets.items())) for file in files]
    number_of = {each: number for number, each in enumerate(dict.fromkeys(alphabets))}
    groups = [
        (len(blocks), file_at, group, blocks)
        for file_at, file in enumerate(files)
        for group, blocks in zip(file.groups, file.filters, strict=True)
    ]
    groups.sort(key=lambda group: group[:2])
    sizes: dict[int, list[Blocks]] = {}
    for size, _, _, blocks in groups:
        sizes.setdefault(size, []).append(blocks)
    header = orjson.dumps(
        {
            "table": table,
            "uris": [file.uri for file in files],
            "coverages": [[sorted(each.words), sorted(each.fields)] for each in coverages],
            "coverage_of": [coverages.index(file.coverage) for file in files],
            "alphabets": [[(column, f"{found:x}") for column, found in each] for each in number_of],
            "alphabets_of": [number_of[each] for each in alphabets],
            "groups": [
                [file_at for _, file_at, _, _ in groups],
                [group.first_row for _, _, group, _ in groups],
                [group.rows for _, _, group, _ in groups],
            ],
            "sizes": [[size, len(filters)] for size, filters in sizes.items()],
        }
    )
    checksum = zlib.crc32(header, zlib.crc32(pack_id))
    parts = [_LEAD.pack(MAGIC, *_VERSIONS, len(header), checksum, pack_id), header]
    for number, (size, filters) in enumerate(sizes.items()):
        if size:
            stripes = np.stack(filters, axis=1)
            for block in range(size):
                filled = stripes[block].tobytes()
                parts += [filled, _checksum(pack_id, number, block, filled)]
    return b"".join(parts)


def unpack(header: PackHeader, read: Read) -> list[PackedFile]:
    """The files of a pack, to make another one of them. Raises DamagedPackError."""
    filters = list[Blocks]()
    start = header.start
    for number, (blocks, count) in enumerate(header.sizes):
        size = _stripe_bytes(count)
        each = _Filters(read, header.id, number, blocks, count, start)
        stripes = [each._stripe(block).view("<u4").reshape(count, 8) for block in range(blocks)]
        together = np.stack(stripes, axis=1) if stripes else np.zeros((count, 0, 8), "<u4")
        filters += list(together)
        start += blocks * size
    by_file: dict[int, list[tuple[RowGroup, Blocks]]] = {}
    for at, file_at in enumerate(header.file_of.tolist()):
        group = RowGroup(int(header.first_row[at]), int(header.rows[at]))
        by_file.setdefault(file_at, []).append((group, filters[at]))
    return [_unpacked(header, at, by_file.get(at, [])) for at in range(len(header.uris))]


def _unpacked(header: PackHeader, at: int, groups: list[tuple[RowGroup, Blocks]]) -> PackedFile:
    groups.sort(key=lambda group: group[0].first_row)
    return PackedFile(
        header.uris[at],
        header.coverages[header.coverage_of[at]],
        tuple(group for group, _ in groups),
        tuple(blocks for _, blocks in groups),
        header.alphabets[header.alphabets_of[at]],
    )


def _stripe_bytes(filters: int) -> int:
    return filters * BLOCK_BYTES + _CHECKSUM_BYTES


def _checksum(pack_id: bytes, number: int, block: int, filled: bytes | memoryview) -> bytes:
    """Of a stripe at its place: one that stands elsewhere is no right one."""
    place = zlib.crc32(pack_id + number.to_bytes(4, "little") + block.to_bytes(4, "little"))
    return zlib.crc32(filled, place).to_bytes(_CHECKSUM_BYTES, "little")
