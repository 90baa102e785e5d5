"""The hash of a row's key: 128 bits, from Arrow columns, the same on every machine and in every version.

The hash of one column's value is SipHash-2-4-128 of a word that says what kind of value follows, and of the
value. That of several columns is the same of a word with their number, and of their hashes. So NULL, an empty
string, the number 0 and the keys ("a", "bc") and ("ab", "c") all differ. Of a long text the value that is
hashed is its BLAKE2b digest: rows are hashed side by side, word by word, and one long text would hold up all.

A value keeps its hash when its column is widened as Iceberg allows it: all integers are hashed as 64 bits,
decimals as 128 bits, dates and timestamps as microseconds and nanoseconds.

A collision of two keys is not to be expected below 2^60 keys of a table. The key of the hash is no secret, so
whoever wants to be certain compares the values (`verified_rows`).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.keys.siphash import WORD_BYTES, SipHash, Words, last_word, siphash

# Stands in every index file: raise it with any change of what is hashed, and all indexes are built again.
HASH_VERSION = 2
_KEY = b"firn key index 1"
# So many rows' states stay in a core's second cache.
ROWS_AT_ONCE = 8_192
# Longer texts and bytes are hashed by their digest.
LONG_BYTES = 1_024
_LONG = 1
_US_PER_DAY, _NS_PER_US = 86_400_000_000, 1_000


class _Kind(IntEnum):
    """What a value is. Its number is hashed with the value: it never changes."""

    NULL = 0
    BOOLEAN = 1
    INTEGER = 2
    DECIMAL = 3
    LOCAL_TIME = 4  # date, timestamp, timestamp_ns
    INSTANT = 5  # timestamptz, timestamptz_ns
    TIME_OF_DAY = 6
    TEXT = 7
    BYTES = 8  # binary, fixed, uuid
    COLUMNS = 9


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """The hashes of `n` keys: two arrays of `n` 64-bit words, the more significant half first."""

    high: Words
    low: Words

    def __len__(self) -> int:
        return len(self.high)

    def taken(self, at: NDArray[np.integer]) -> "KeyHashes":
        """Those at these places."""
        return KeyHashes(self.high[at], self.low[at])


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> KeyHashes:
    """Hashes the keys of `n` rows from the key's columns, in the order of the key; each has `n` values.

    Raises TypeError for a type that cannot be (part of) a key, such as floating numbers, lists and structs;
    ValueError without a column; ArrowInvalid for a time that microseconds of 64 bits cannot hold.
    """
    if not columns:
        raise ValueError("a key has at least one column")
    rows = pa.table(list(columns), names=[str(at) for at in range(len(columns))])
    hashes = empty_hashes(rows.num_rows)
    start = 0
    for batch in filter(len, rows.to_batches(max_chunksize=ROWS_AT_ONCE)):
        end = start + batch.num_rows
        hashes.high[start:end], hashes.low[start:end] = _hash_rows(batch.columns)
        start = end
    return hashes


def empty_hashes(count: int) -> KeyHashes:
    """Room for so many hashes, to be filled in place."""
    return KeyHashes(np.empty(count, np.uint64), np.empty(count, np.uint64))


def _hash_rows(columns: Sequence[pa.Array]) -> tuple[Words, Words]:
    halves = [half for column in columns for half in _hash_column(column)]
    if len(columns) == 1:
        return halves[0], halves[1]
    return _hash_words(_Kind.COLUMNS, len(columns), halves)


def plain(column: pa.Array) -> pa.Array:
    """The values of a column without what only says how they are kept: a dictionary, an extension type, a
    view."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _hash_column(column: pa.Array) -> tuple[Words, Words]:
    column = plain(column)
    high, low = _encoder(column.type)(column)
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        high[missing], low[missing] = _hash_words(_Kind.NULL, 0, [])
    return high, low


def _encoder(kind: pa.DataType) -> Callable[[pa.Array], tuple[Words, Words]]:
    for is_kind, encoder in _ENCODERS:
        if is_kind(kind):
            return encoder
    raise TypeError(
        f"a column of type {kind} cannot be part of a key; use whole numbers, decimals, text, bytes, uuids, "
        "dates or times"
    )


def _nulls(column: pa.Array) -> tuple[Words, Words]:
    hashes = empty_hashes(len(column))
    return hashes.high, hashes.low


def _booleans(column: pa.Array) -> tuple[Words, Words]:
    return _hash_words(_Kind.BOOLEAN, 0, [_words(column.cast(pa.int64()))])


def _integers(column: pa.Array) -> tuple[Words, Words]:
    return _hash_words(_Kind.INTEGER, 0, [_words(column.cast(pa.int64()))])


def _decimals(column: pa.Array) -> tuple[Words, Words]:
    scale = column.type.scale
    wide = pc.fill_null(column.cast(pa.decimal128(38, scale)), pa.scalar(0, pa.decimal128(38, scale)))
    pairs = np.frombuffer(wide.buffers()[1], "<u8")[2 * wide.offset :][: 2 * len(wide)].reshape(-1, 2)
    return _hash_words(_Kind.DECIMAL, scale, [pairs[:, 0], pairs[:, 1]])


def _dates(column: pa.Array) -> tuple[Words, Words]:
    days = pc.fill_null(column.cast(pa.date32()).cast(pa.int32()), 0).to_numpy()
    microseconds = days.astype(np.int64) * _US_PER_DAY
    return _hash_words(_Kind.LOCAL_TIME, 0, [microseconds.view(np.uint64), np.zeros(len(days), np.uint64)])


def _timestamps(column: pa.Array) -> tuple[Words, Words]:
    kind = _Kind.LOCAL_TIME if column.type.tz is None else _Kind.INSTANT
    if column.type.unit != "ns":
        microseconds = _words(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))
        return _hash_words(kind, 0, [microseconds, np.zeros(len(column), np.uint64)])
    whole, rest = np.divmod(_words(column.cast(pa.int64())).view(np.int64), _NS_PER_US)
    return _hash_words(kind, 0, [whole.view(np.uint64), rest.view(np.uint64)])


def _times_of_day(column: pa.Array) -> tuple[Words, Words]:
    return _hash_words(_Kind.TIME_OF_DAY, 0, [_words(column.cast(pa.time64("us")).cast(pa.int64()))])


def _texts(column: pa.Array) -> tuple[Words, Words]:
    return _hash_bytes(_Kind.TEXT, column.cast(pa.large_string()).cast(pa.large_binary()))


def _blobs(column: pa.Array) -> tuple[Words, Words]:
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return _hash_bytes(_Kind.BYTES, column.cast(pa.large_binary()))


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.precision <= 38


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_blob(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], tuple[Words, Words]]], ...] = (
    (pa.types.is_null, _nulls),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (_is_decimal, _decimals),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_time, _times_of_day),
    (_is_text, _texts),
    (_is_blob, _blobs),
    (pa.types.is_fixed_size_binary, _blobs),
)


def _words(column: pa.Array) -> Words:
    """The values of an int64 column as words; a NULL is any number."""
    numbers: Words = pc.fill_null(column, 0).to_numpy().view(np.uint64)
    return numbers


def _begun(kind: _Kind, detail: int) -> SipHash:
    """The state of one message after its first word, which says what follows."""
    state = siphash(_KEY)
    state.take(np.uint64(kind | (detail & 0xFFFF) << 8))
    return state


def _hash_words(kind: _Kind, detail: int, words: Sequence[Words]) -> tuple[Words, Words]:
    """Hashes messages that all have the same number of words; without words, one message."""
    state = _begun(kind, detail).spread(len(words[0]) if words else 1)
    for word in words:
        state.take(word)
    state.take(last_word(WORD_BYTES * (1 + len(words))))
    return state.digests()


def _hash_bytes(kind: _Kind, values: pa.Array) -> tuple[Words, Words]:
    """Hashes texts of any length, from a large_binary column; a NULL counts as empty."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    is_long = lengths > LONG_BYTES
    if not is_long.any():
        return _hash_messages(_begun(kind, 0), values)
    hashes = empty_hashes(len(values))
    others, long = values.filter(pa.array(~is_long)), values.filter(pa.array(is_long))
    digests = [hashlib.blake2b(text.as_buffer()).digest() for text in long]
    hashes.high[~is_long], hashes.low[~is_long] = _hash_messages(_begun(kind, 0), others)
    hashes.high[is_long], hashes.low[is_long] = _hash_messages(
        _begun(kind, _LONG), pa.array(digests, pa.large_binary())
    )
    return hashes.high, hashes.low


def _hash_messages(begun: SipHash, values: pa.Array) -> tuple[Words, Words]:
    """Hashes what follows the beginning of a message.

    They are taken longest first, so that those which have a next word are always the first so many.
    """
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = (offsets[:-1] - offsets[0])[order], lengths[order]
    loaded = _any_word_of(values, int(offsets[0]), int(offsets[-1]))
    states = begun.spread(len(values))
    whole_words = lengths // WORD_BYTES
    descending = -whole_words
    taking = len(values)
    for at in range(int(whole_words[0]) + 1 if len(values) else 0):
        words = loaded[starts[:taking] + at * WORD_BYTES]
        going_on = int(np.searchsorted(descending, -at))  # those with another whole word
        _end(words[going_on:], lengths[going_on:taking])
        states.first(taking).take(words)
        taking = going_on
    first, second = states.digests()
    return _put_back(first, order), _put_back(second, order)


def _any_word_of(values: pa.Array, start: int, end: int) -> Words:
    """The eight bytes that begin at each byte of the values' text: a view that is not aligned, on a copy that
    is long enough for the last byte."""
    padded = np.zeros(end - start + WORD_BYTES, np.uint8)
    content = values.buffers()[2]
    if content is not None:
        padded[: end - start] = np.frombuffer(content, np.uint8)[start:end]
    return np.ndarray(end - start + 1, "<u8", padded.data, strides=(1,))


def _end(words: Words, lengths: NDArray[np.int64]) -> None:
    """Makes the last word of each message: the bytes that are left, and the length in the highest byte."""
    left_bits = (lengths % WORD_BYTES * 8).astype(np.uint64)
    words &= (np.uint64(1) << left_bits) - np.uint64(1)
    words |= (lengths + WORD_BYTES).astype(np.uint64) << np.uint64(56)


def _put_back(ordered: Words, order: NDArray[np.int64]) -> Words:
    words = np.empty_like(ordered)
    words[order] = ordered
    return words
