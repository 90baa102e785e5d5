"""The hash of a row's key."""

import datetime
import hashlib
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.keys.key_hash import LONG_BYTES, ROWS_AT_ONCE, hash_keys
from ingest.keys.siphash import last_word, siphash

MASK = 2**64 - 1
KEY = b"firn key index 1"


def digest(columns: Sequence[Any]) -> list[str]:
    """The hashes as text."""
    hashes = hash_keys(columns)
    halves = zip(hashes.high.tolist(), hashes.low.tolist(), strict=True)
    return [f"{high:016x}{low:016x}" for high, low in halves]


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def mixed(v: list[int], rounds: int) -> None:
    for _ in range(rounds):
        for a, b, bits in ((0, 1, 13), (2, 3, 16)):
            v[a] = (v[a] + v[b]) & MASK
            v[b] = rotated(v[b], bits) ^ v[a]
        v[0] = rotated(v[0], 32)
        for a, b, bits in ((0, 3, 21), (2, 1, 17)):
            v[a] = (v[a] + v[b]) & MASK
            v[b] = rotated(v[b], bits) ^ v[a]
        v[2] = rotated(v[2], 32)


def reference(message: bytes, key: bytes = KEY) -> str:
    """SipHash-2-4 of 128 bits, one message at a time, without numpy."""
    k = struct.unpack("<2Q", key)
    initial = (0x736F6D6570736575, 0x646F72616E646F6D ^ 0xEE, 0x6C7967656E657261, 0x7465646279746573)
    v = [k[at % 2] ^ word for at, word in enumerate(initial)]
    whole = len(message) // 8 * 8
    last = message[whole:].ljust(7, b"\0") + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", message[:whole] + last):
        v[3] ^= word
        mixed(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    mixed(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    mixed(v, 4)
    return f"{first:016x}{v[0] ^ v[1] ^ v[2] ^ v[3]:016x}"


def head(kind: int, detail: int = 0) -> bytes:
    return struct.pack("<Q", kind | (detail & 0xFFFF) << 8)


def test_the_hash_is_siphash_as_its_authors_define_it() -> None:
    """The first of the vectors that its authors publish."""
    state = siphash(bytes(range(16)))
    state.take(last_word(0))
    first, second = state.digests()
    assert (first.tobytes() + second.tobytes()).hex() == "a3817f04ba25a8e66df67214c7550293"


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=250, max_size=300))))
def test_bytes_of_any_length_are_hashed_as_one_message_at_a_time(values: list[bytes | None]) -> None:
    expected = [reference(head(0) if value is None else head(8) + value) for value in values]
    assert digest([pa.array(values, pa.binary())]) == expected
    assert digest([pa.array([b"before", *values], pa.large_binary())[1:]]) == expected


@pytest.mark.parametrize("length", [LONG_BYTES, LONG_BYTES + 1, 3_000_000])
def test_a_long_text_is_hashed_by_its_digest(length: int) -> None:
    """One that is a thousand times as long as all others takes no longer than its digest; texts of a digest's
    length and bytes are none."""
    text = b"x" * length
    sum_of_text = hashlib.blake2b(text).digest()
    expected = reference(head(8) + text if length <= LONG_BYTES else head(8, 1) + sum_of_text)
    values = [b"a", None, text, b""]
    one, missing, found, empty = digest([pa.array(values, pa.binary())])
    assert (one, missing, empty) == (reference(head(8) + b"a"), reference(head(0)), reference(head(8)))
    assert found == expected
    assert found != digest([pa.array([sum_of_text])])[0]
    if length > LONG_BYTES:
        assert digest([pa.array([text.decode()])]) == [reference(head(7, 1) + sum_of_text)]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_integers_are_hashed_as_64_bits(values: list[int | None]) -> None:
    expected = [reference(head(0) if v is None else head(2) + struct.pack("<q", v)) for v in values]
    assert digest([pa.array(values, pa.int64())]) == expected


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=9)), st.integers(-9, 9)), max_size=9))
def test_a_key_of_several_columns_is_hashed_from_the_hashes_of_its_columns(
    rows: list[tuple[str | None, int]],
) -> None:
    texts, numbers = (
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.int64()),
    )
    words = [
        bytes.fromhex(one) + bytes.fromhex(other)
        for one, other in zip(digest([texts]), digest([numbers]), strict=True)
    ]
    expected = [reference(head(9, 2) + struct.pack("<4Q", *struct.unpack(">4Q", word))) for word in words]
    assert digest([texts, numbers]) == expected


def test_hashes_stay_as_they_are() -> None:
    """They stand in files: another version of Python, numpy or Arrow gives the same ones."""
    assert digest([pa.array([1, -1, None], pa.int32())]) == [
        "8442d818b35c22c7d4b53bb986bb19e0",
        "e0e03fb24aa8bc780beb5d00c38eac66",
        "d9eb96120a8b2d613000ff05a976d11f",
    ]
    assert digest([pa.array(["a", "", "abcdefgh" * 2])]) == [
        "db92569eddc89ce0ae91b28b4394368d",
        "b749abc7631267ddf01c4a2c048501bb",
        "d2db11c4bd410b0e4c836d4bbddc1dc8",
    ]
    assert digest([pa.array([1]), pa.array(["x"])]) == ["fc88d32852a7e894b1110651ff13a542"]


ONE = Decimal("1.20")
DAY = datetime.date(2026, 1, 2)
MIDNIGHT = datetime.datetime(2026, 1, 2)  # noqa: DTZ001 - a local time has no zone
SOME_UUID = UUID(int=5)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([1, None, -7], [pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
        ([ONE, None], [pa.decimal32(5, 2), pa.decimal128(3, 2), pa.decimal128(38, 2)]),
        (
            ["ab", None, ""],
            [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        ),
        (
            [SOME_UUID.bytes, None],
            [pa.binary(16), pa.binary(), pa.large_binary(), pa.binary_view(), pa.uuid()],
        ),
        ([DAY, None], [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms")]),
        (
            [MIDNIGHT, None],
            [pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "+01:00")],
        ),
    ],
    ids=["integers", "decimals", "texts", "bytes", "dates", "instants"],
)
def test_a_widened_column_keeps_the_hashes_of_its_values(values: list[Any], types: list[pa.DataType]) -> None:
    if types[0] == pa.date32():
        arrays = [pa.array(values, pa.date32()).cast(kind) for kind in types]
    else:
        arrays = [pa.array(values, kind) for kind in types]
    assert len({tuple(digest([array])) for array in arrays}) == 1


def test_times_before_1970_have_their_nanoseconds() -> None:
    microseconds = pa.array([-1, -1_000_001], pa.timestamp("us"))
    nanoseconds = pa.array([-1_000, -1_000_001_000, -999], pa.timestamp("ns"))
    assert digest([nanoseconds])[:2] == digest([microseconds])
    assert len(set(digest([nanoseconds]))) == 3


def test_values_of_different_kinds_never_have_one_hash() -> None:
    """What looks alike as bytes or as text, and NULL in a key of any number of columns."""
    columns = [
        [pa.array([None], pa.string())],
        [pa.array([""])],
        [pa.array([b""])],
        [pa.array([0])],
        [pa.array([False])],
        [pa.array([0], pa.time64("us"))],
        [pa.array([0], pa.timestamp("us"))],
        [pa.array([0], pa.timestamp("us", "UTC"))],
        [pa.array([Decimal(0)])],
        [pa.array([Decimal("0.0")])],
        [pa.array(["0"])],
        [pa.array(["\0"])],
        [pa.array(["\0" * 8])],
        [pa.array([b"\0" * 16])],
        [pa.array(["a"]), pa.array(["bc"])],
        [pa.array(["ab"]), pa.array(["c"])],
        [pa.array(["abc"]), pa.array([""])],
        [pa.array(["abc"]), pa.array([None], pa.string())],
        [pa.array([None], pa.string()), pa.array(["abc"])],
        [pa.array(["abc"])],
        [pa.array(["abc"]), pa.array([None]), pa.array([None])],
    ]
    found = [digest(key)[0] for key in columns]
    assert len(set(found)) == len(columns)


def test_it_does_not_matter_where_a_row_stands() -> None:
    """Rows are hashed in batches, and columns come in chunks of their own."""
    texts = [f"key {at % 1_000} {'x' * (at % 37)}" for at in range(ROWS_AT_ONCE + 100)]
    whole = digest([pa.array(texts)])
    chunks = pa.chunked_array([texts[:5], [], texts[5 : ROWS_AT_ONCE + 3], texts[ROWS_AT_ONCE + 3 :]])
    assert digest([chunks]) == whole
    for at in (0, 5, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 99):
        assert whole[at] == reference(head(7) + texts[at].encode())


def test_half_of_the_bits_differ_between_neighbours() -> None:
    hashes = hash_keys([pa.array(range(4_000))])
    for half in (hashes.high, hashes.low):
        differing = np.bitwise_count(half[1:] ^ half[:-1])
        assert 31.5 < float(differing.mean()) < 32.5


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array([[1]]), pa.array([{"a": 1}]), pa.array([1], pa.duration("s"))]
)
def test_what_has_no_certain_equality_is_refused_as_a_key(column: pa.Array) -> None:
    with pytest.raises(TypeError, match="cannot be part of a key"):
        hash_keys([column])


def test_no_rows_have_no_hashes_and_no_columns_are_no_key() -> None:
    assert digest([pa.array([], pa.string())]) == []
    assert digest([pa.chunked_array([], pa.int64()), pa.chunked_array([], pa.string())]) == []
    with pytest.raises(ValueError, match="at least one column"):
        hash_keys([])
