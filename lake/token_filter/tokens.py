"""Tokens of text as 64-bit hashes, many values at a time.

A token is a maximal run of ASCII letters, digits and underscores, in lower case, or a pair of neighbouring
letters beyond ASCII (`letters`). Two characters beyond ASCII have an ASCII letter for their lower case and
count as that: U+0130 as i, U+212A as k. No token reaches over the end of a value.

So whatever text a search finds in a value, in any case: the runs inside that text, and those at its ends
where the match ends with a word, are tokens of the value, and so are its pairs.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.token_filter.letters import letters

# What is written into files: another rule of what a token is, or another hash, is another version.
TOKENIZER_VERSION = 1
# A run is told from others by its length and so many of its first bytes: what hashing costs is bounded.
HASHED_BYTES_MAX = 64
# So many bytes of text are looked at together; numpy needs some ten times as much for it.
CHUNK_BYTES = 4 << 20

Hashes = NDArray[np.uint64]
_Bytes = NDArray[np.uint8]
_Offsets = NDArray[np.int64]
_ASCII_LOWER = {"\u0130": "i", "\u212a": "k"}
_LOWER = np.zeros(256, np.uint8)
for _character in b"0123456789_abcdefghijklmnopqrstuvwxyz":
    _LOWER[_character] = _character
for _character in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ":
    _LOWER[_character] = _character + 32
# The first n bytes of a little-endian word.
_FIRST_BYTES = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
# Multipliers of MurmurHash3's finalizer (Appleby), and of Fibonacci hashing (Knuth) for what is mixed in.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PAIR = np.uint64(0xD6E8FEB86659FD93)
_33 = np.uint64(33)


def column_hashes(column: pa.ChunkedArray | pa.Array) -> Hashes:
    """The hashes of all tokens of a text column, each once."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_distinct(text_hashes(*_plain(part))) for chunk in chunks for part in _parts(chunk)]
    return _distinct(np.concatenate(found)) if found else np.zeros(0, np.uint64)


def in_field(hashes: Hashes, field_id: int) -> Hashes:
    """The hashes of tokens as those of one field."""
    return _mixed(hashes ^ np.uint64(field_id) * _PAIR)


def demanded_hashes(text: str, *, open_start: bool = False, open_end: bool = False) -> Hashes:
    """The tokens that every value has in which a search finds this text. `open_start`, `open_end`: what is
    found may go on beyond that end of the text, as it does at a wildcard."""
    for character, lower in _ASCII_LOWER.items():
        text = text.replace(character, lower)
    raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    starts, ends, lowered = _runs(raw, np.array([0, len(raw)], np.int64))
    whole = np.ones(len(starts), bool)
    whole &= ~((starts == 0) & open_start)
    whole &= ~((ends == len(raw)) & open_end)
    runs = _run_hashes(lowered, starts[whole], ends[whole])
    return np.unique(np.concatenate([runs, _pair_hashes(raw, np.array([0, len(raw)], np.int64))]))


def text_hashes(raw: _Bytes, offsets: _Offsets) -> Hashes:
    """The hashes of the tokens of values, with repeats. `raw`: the values' UTF-8, one behind the other;
    `offsets`: where each begins, and the end of the last."""
    if not len(raw):
        return np.zeros(0, np.uint64)
    starts, ends, lowered = _runs(raw, offsets)
    return np.concatenate([_run_hashes(lowered, starts, ends), _pair_hashes(raw, offsets)])


def _parts(chunk: pa.Array) -> Iterator[pa.Array]:
    """The distinct values of a chunk, in parts of some bytes."""
    values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else pc.unique(chunk)
    values = values.drop_null()
    rows = max(1, len(values) * CHUNK_BYTES // max(1, values.nbytes))
    for at in range(0, len(values), rows):
        yield _folded(values.slice(at, rows))


def _folded(values: pa.Array) -> pa.Array:
    """The values with the ASCII letters that count for others; nearly no text has one of these."""
    for character, lower in _ASCII_LOWER.items():
        if pc.any(pc.match_substring(values, character)).as_py():
            values = pc.replace_substring(values, character, lower)
    return values


def _plain(values: pa.Array) -> tuple[_Bytes, _Offsets]:
    """The bytes of text values without gaps, and where each value begins."""
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    _, starts, text = values.buffers()
    if text is None or not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(starts, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(text, np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def _runs(raw: _Bytes, offsets: _Offsets) -> tuple[_Offsets, _Offsets, _Bytes]:
    """Where runs begin and end, and the lowered bytes, eight zeros behind them:

    value   GET /a_1|400 µs
    in run  ###_####_###____      an edge wherever this changes, and twice where a value ends inside a run
    """
    lowered = np.zeros(len(raw) + 8, np.uint8)
    np.take(_LOWER, raw, out=lowered[: len(raw)])
    in_run = np.zeros(len(raw) + 2, bool)
    np.not_equal(lowered[: len(raw)], 0, out=in_run[1:-1])
    edges = np.flatnonzero(in_run[1:] != in_run[:-1])
    cuts = np.unique(offsets[1:-1])
    cuts = cuts[in_run[cuts + 1] & in_run[cuts]]
    if len(cuts):
        edges = np.sort(np.concatenate([edges, cuts, cuts]))
    return edges[0::2], edges[1::2], lowered


def _run_hashes(lowered: _Bytes, starts: _Offsets, ends: _Offsets) -> Hashes:
    """One hash for each run, of its length and its first bytes, eight at a time."""
    words = np.ndarray((max(0, len(lowered) - 7),), "<u8", lowered, strides=(1,))
    lengths = ends - starts
    hashes = _mixed(
        words[starts] & _FIRST_BYTES[np.minimum(lengths, 8)] ^ lengths.astype(np.uint64) * _GOLDEN
    )
    longer = np.flatnonzero(lengths > 8)
    for done in range(8, HASHED_BYTES_MAX, 8):
        if not len(longer):
            break
        left = np.minimum(lengths[longer] - done, 8)
        hashes[longer] = _mixed(hashes[longer] ^ words[starts[longer] + done] & _FIRST_BYTES[left])
        longer = longer[lengths[longer] > done + 8]
    return hashes


def _pair_hashes(raw: _Bytes, offsets: _Offsets) -> Hashes:
    """One hash for each pair of neighbouring letters. Only values with a byte beyond ASCII are decoded."""
    beyond = np.flatnonzero(raw >= 0x80)
    if not len(beyond):
        return np.zeros(0, np.uint64)
    values = np.unique(np.searchsorted(offsets, beyond, side="right") - 1)
    chosen = np.zeros(len(raw) + 1, np.int8)
    np.add.at(chosen, offsets[values], 1)
    np.add.at(chosen, offsets[values + 1], -1)
    text = raw[np.cumsum(chosen[:-1], dtype=np.int8).astype(bool)]
    lengths = offsets[values + 1] - offsets[values]
    points = np.frombuffer(
        text.tobytes().decode("utf-8", "surrogatepass").encode("utf-32-le", "surrogatepass"), "<u4"
    )
    found = letters()[points].astype(np.uint64)
    is_pair = (found[:-1] != 0) & (found[1:] != 0)
    # The number of the first character of each value: characters begin with a byte that continues no other.
    begins = np.cumsum((text & 0xC0) != 0x80)[np.cumsum(lengths[:-1])] - 1
    is_pair[begins - 1] = False
    return _mixed((found[:-1] << np.uint64(32) | found[1:])[is_pair] ^ _PAIR)


def _mixed(hashes: Hashes) -> Hashes:
    """Spreads every bit over all others."""
    hashes = hashes ^ hashes >> _33
    hashes *= _FIRST
    hashes ^= hashes >> _33
    hashes *= _SECOND
    hashes ^= hashes >> _33
    return hashes


def _distinct(hashes: Hashes) -> Hashes:
    """Each hash once; Arrow's hash table is faster than sorting."""
    distinct: Hashes = pc.unique(pa.array(hashes)).to_numpy()
    return distinct
