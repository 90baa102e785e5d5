"""Tokens of text as 64-bit hashes, many values at a time.

A token is a maximal run of ASCII letters, digits and underscores, in lower case, or a pair of neighbouring
letters beyond ASCII (`letters`). Two characters beyond ASCII have an ASCII letter for their lower case and
count as that: U+0130 as i, U+212A as k. No token reaches over the end of a value.

So whatever text a search finds in a value, in any case: the runs inside that text, and those at its ends
where the match ends with a word, are tokens of the value, and so are its pairs.
"""

import string
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.token_filter.letters import letters

# What is written into files: another rule of what a token is, or another hash, is another version.
TOKENIZER_VERSION = 1
# A run is told from others by so many of its first bytes: what hashing costs is bounded.
HASHED_BYTES_MAX = 64
# So many bytes of text are looked at together, which a processor's cache holds; numpy needs some thirty times
# as much for text of one letter a word.
CHUNK_BYTES = 256 << 10
# A longer value is looked at as a whole all the same, up to this.
VALUE_BYTES_MAX = 4 << 20

Hashes = NDArray[np.uint64]
_Bytes = NDArray[np.uint8]
_Offsets = NDArray[np.int64]
_AnyOffsets = NDArray[Any]  # int32 or int64
_ASCII_LOWER = {"\u0130": "i", "\u212a": "k"}
# What the UTF-8 of these begins with.
_ASCII_LOWER_BYTES = [tuple(character.encode()[:2]) for character in _ASCII_LOWER]
_RUN = f"{string.ascii_letters}{string.digits}_"
# Multipliers of MurmurHash3's finalizer (Appleby), and what tells pairs from runs.
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_PAIR = np.uint64(0xD6E8FEB86659FD93)
_33 = np.uint64(33)
# The bit that tells a small letter from a capital one, that which ASCII leaves free, and the others.
_CASE, _MARK, _ASCII = np.uint8(0x20), np.uint8(0x80), np.uint8(0x7F)
# The same of eight bytes, without the mark of the first one.
_MARKS, _ASCIIS = np.uint64(0x8080808080808000), np.uint64(0x7F7F7F7F7F7F7F7F)
_1, _7 = np.uint64(1), np.uint64(7)
# A column is asked for its distinct values if these are fewer than half of its first ones.
_SAMPLE_ROWS = 8_192


class ValueTooLongError(ValueError):
    """A value of a column is longer than VALUE_BYTES_MAX."""


def value_parts(values: pa.Array) -> Iterator[Hashes]:
    """The hashes of an array that is not dictionary-encoded in parts as they are found; a token may be in
    several. Raises ValueTooLongError."""
    raw, offsets = plain(values)
    offsets = offsets.astype(np.int64)
    for first, last in _cuts(offsets):
        yield distinct(text_hashes(*_folded(raw, offsets[first : last + 1])))


def in_field(hashes: Hashes, field_id: int) -> Hashes:
    """The hashes of tokens as those of one field."""
    return _mixed(hashes ^ np.uint64(field_id * int(_PAIR) % 2**64))


def demanded_hashes(text: str, *, open_start: bool = False, open_end: bool = False) -> Hashes:
    """The tokens that every value has in which a search finds this text. `open_start`, `open_end`: what is
    found may go on beyond that end of the text, as it does at a wildcard."""
    for character, lower in _ASCII_LOWER.items():
        text = text.replace(character, lower)
    text = text.lstrip(_RUN) if open_start else text
    text = text.rstrip(_RUN) if open_end else text
    raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    return distinct(text_hashes(raw, np.array([0, len(raw)], np.int64)))


def text_hashes(raw: _Bytes, offsets: _Offsets) -> Hashes:
    """The hashes of the tokens of values, some of them twice. `raw`: the values' UTF-8, one behind the other;
    `offsets`: where each begins, and the end of the last."""
    if not len(raw):
        return np.zeros(0, np.uint64)
    return np.concatenate([_run_hashes(raw, offsets), _pair_hashes(raw, offsets)])


def distinct(hashes: Hashes) -> Hashes:
    """Each hash once, in order: numpy sorts numbers faster than any hash table takes them."""
    hashes = np.sort(hashes)
    first = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    return hashes[first]


def few_values(chunk: pa.Array) -> pa.Array:
    """The values of a chunk, each once where many are alike."""
    sample = chunk.slice(0, _SAMPLE_ROWS)
    return pc.unique(chunk) if 2 * len(pc.unique(sample)) < len(sample) else chunk


def plain(values: pa.Array) -> tuple[_Bytes, _AnyOffsets]:
    """The bytes of text values, and where in them each value begins, and the last ends."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, starts, text = values.buffers()
    if text is None or not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    offsets = np.frombuffer(starts, np.int64 if is_large else np.int32)
    return np.frombuffer(text, np.uint8), offsets[values.offset : values.offset + len(values) + 1]


def _cuts(offsets: _Offsets) -> Iterator[tuple[int, int]]:
    """First value and end of parts of at most CHUNK_BYTES, or of one value. Raises ValueTooLongError."""
    first, values = 0, len(offsets) - 1
    while first < values:
        last = int(np.searchsorted(offsets, offsets[first] + CHUNK_BYTES, side="right")) - 1
        last = min(max(last, first + 1), values)
        if offsets[last] - offsets[first] > VALUE_BYTES_MAX:
            raise ValueTooLongError(f"a value has {offsets[last] - offsets[first]:,} bytes")
        yield first, last
        first = last


def _folded(raw: _Bytes, offsets: _Offsets) -> tuple[_Bytes, _Offsets]:
    """The bytes of some values alone, with the ASCII letters that count for others; nearly no text has one of
    these."""
    raw, offsets = raw[offsets[0] : offsets[-1]], offsets - offsets[0]
    at = np.flatnonzero(raw[:-1] >= 0xC0)
    if not any(((raw[at] == one) & (raw[at + 1] == two)).any() for one, two in _ASCII_LOWER_BYTES):
        return raw, offsets
    values = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(raw.tobytes())]
    )
    for character, lower in _ASCII_LOWER.items():
        values = pc.replace_substring(values, character.encode(), lower.encode())
    raw, offsets = plain(values)  # 64-bit ones
    return raw[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0]


def _run_hashes(raw: _Bytes, offsets: _Offsets) -> Hashes:
    """The hash of each run, of its first bytes, eight at a time; some of them twice.

    text     GET /a_1|400 µs
    starts   #    #   #
    marked    ##   ## ##        the high bit, which no ASCII letter has, where a run goes on
    """
    is_letter = (raw | _CASE) - ord("a") < 26
    in_run = np.zeros(len(raw) + 1, bool)
    in_run[1:] = is_letter | (raw - ord("0") < 10) | (raw == ord("_"))
    width = int(offsets[1])
    if width and in_run[1:].all() and (offsets == np.arange(len(offsets)) * width).all():
        return _hashes_of_ids((raw | is_letter * _CASE).reshape(-1, width))
    goes_on = in_run[1:] & in_run[:-1]
    goes_on[offsets[offsets < len(raw)]] = False
    marked = np.zeros(len(raw) + 16, np.uint8)
    np.bitwise_or((raw | is_letter * _CASE) & _ASCII, goes_on * _MARK, out=marked[: len(raw)])
    starts = np.flatnonzero(in_run[1:] > goes_on)
    first, longer = _bytes_of_run(marked, starts)
    hashes = _mixed(first[longer])
    first[longer] = 0
    at, which = starts[longer], np.arange(len(longer))
    for _ in range(8, HASHED_BYTES_MAX, 8):
        if not len(which):
            break
        at = at + 8
        more, longer = _bytes_of_run(marked, at)
        hashes[which] = _mixed(hashes[which] ^ more)
        at, which = at[longer], which[longer]
    short = distinct(first)
    return np.concatenate([_mixed(short[short != 0]), hashes])


def _hashes_of_ids(text: _Bytes) -> Hashes:
    """The hashes of runs that fill their values and are of one length, which is what ids are. In half of the
    time. Shape (runs, bytes)."""
    text = text[:, :HASHED_BYTES_MAX]
    missing = -text.shape[1] % 8
    words: Hashes = np.ascontiguousarray(np.pad(text, ((0, 0), (0, missing))) if missing else text).view(
        "<u8"
    )
    hashes = _mixed(words[:, 0])
    for at in range(1, words.shape[1]):
        hashes = _mixed(hashes ^ words[:, at])
    return hashes


def _bytes_of_run(marked: _Bytes, at: _Offsets) -> tuple[Hashes, _Offsets]:
    """What the runs have in the eight bytes from each place on, and which of them go on behind these."""
    words = np.ndarray((len(marked) - 7,), "<u8", marked, strides=(1,))[at]
    end = ~words & _MARKS  # the lowest bit that is left is in the first byte that is not the run's
    end &= -end
    has_all = np.flatnonzero(end == 0)
    words &= (end >> _7) - _1 & _ASCIIS
    return words, has_all[marked[at[has_all] + 8] >= _MARK]


def _pair_hashes(raw: _Bytes, offsets: _Offsets) -> Hashes:
    """One hash for each pair of neighbouring letters. What is no UTF-8 may give pairs that are not there, and
    takes none away: a character is known by its first byte."""
    at = np.flatnonzero(raw >= 0xC0)
    if len(at) < 2:
        return np.zeros(0, np.uint64)
    code_points, ends = _decoded(raw, at)
    small = letters()[code_points].astype(np.uint64)
    is_value = np.zeros(len(raw) + 1, bool)
    is_value[offsets] = True
    is_pair = (ends[:-1] == at[1:]) & (small[:-1] != 0) & (small[1:] != 0) & ~is_value[at[1:]]
    return _mixed((small[:-1] << np.uint64(32) | small[1:])[is_pair] ^ _PAIR)


def _decoded(raw: _Bytes, at: _Offsets) -> tuple[NDArray[np.int64], _Offsets]:
    """The code points of characters beyond ASCII by where they begin, and where they end (RFC 3629)."""
    padded = np.concatenate([raw, np.zeros(3, np.uint8)])
    first = padded[at].astype(np.int64)
    second, third, fourth = (padded[at + place].astype(np.int64) & 0x3F for place in (1, 2, 3))
    two = (first & 0x1F) << 6 | second
    three = (first & 0x0F) << 12 | second << 6 | third
    four = (first & 0x07) << 18 | second << 12 | third << 6 | fourth
    width = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    code_points = np.where(width == 2, two, np.where(width == 3, three, four))
    return np.where(code_points < len(letters()), code_points, 0), at + width


def _mixed(hashes: Hashes) -> Hashes:
    """Spreads every bit over all others."""
    hashes = hashes ^ hashes >> _33
    hashes *= _FIRST
    hashes ^= hashes >> _33
    hashes *= _SECOND
    hashes ^= hashes >> _33
    return hashes
