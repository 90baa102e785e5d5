"""What a manifest says about a Parquet file: counts, and bounds that never exclude a value."""

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.bounds import BOUND_CHARACTERS
from lake.data_file import DataFile, describe_parquet

# Characters around every edge: end of ASCII, before and after the surrogates, the last of the plane and of
# Unicode.
EDGES = "a\x00\x7f\x80\uffff\ud7ff\ue000\U00010000\U0010ffff\U0010fffe"
TEXTS = st.one_of(st.text(max_size=40), st.text(EDGES, max_size=40), st.text("\U0010ffff", max_size=40))
BYTES = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda b: b.replace(b"a", b"\xff")),
    st.integers(0, 40).map(lambda n: b"\xff" * n),
)


def _describe(values: list[Any], kind: pa.DataType, *, rows_per_group: int = 3) -> DataFile:
    buffer, footers = io.BytesIO(), list[pq.FileMetaData]()
    pq.write_table(
        pa.table({"c": pa.array(values, kind)}),
        buffer,
        row_group_size=rows_per_group,
        metadata_collector=footers,
    )
    return describe_parquet("file:///f", 0, len(buffer.getvalue()), footers[0], [5])


@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=8))
def test_bounds_of_text_hold_every_value(values: list[str | None]) -> None:
    """Lower <= value <= upper in the order of UTF-8 bytes, also where bounds are cut; both stay valid
    UTF-8."""
    file = _describe(values, pa.string())
    _check_order(file, [v.encode() for v in values if v is not None])
    for bound in (*(file.lower_bounds or {}).values(), *(file.upper_bounds or {}).values()):
        assert len(bound.decode()) <= BOUND_CHARACTERS or bound in [
            v.encode() for v in values if v is not None
        ]
    assert file.null_counts == {5: values.count(None)}
    assert file.value_counts == {5: len(values)}


@given(st.lists(BYTES, min_size=1, max_size=8))
def test_bounds_of_bytes_hold_every_value(values: list[bytes]) -> None:
    """The same for bytes that are no text."""
    _check_order(_describe(values, pa.binary()), values)


def _check_order(file: DataFile, values: list[bytes]) -> None:
    lower, upper = (file.lower_bounds or {}).get(5), (file.upper_bounds or {}).get(5)
    for value in values:
        assert lower is None or lower <= value
        assert upper is None or value <= upper
    if not values:
        assert (lower, upper) == (None, None)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_bounds_of_longs_are_exact(values: list[int]) -> None:
    """Numbers are not cut: the bounds are the smallest and the largest, little-endian."""
    file = _describe(values, pa.int64())
    assert file.lower_bounds == {5: struct.pack("<q", min(values))}
    assert file.upper_bounds == {5: struct.pack("<q", max(values))}


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8))
def test_bounds_of_ints_are_exact(values: list[int]) -> None:
    """An int has four bytes."""
    file = _describe(values, pa.int32())
    assert (file.lower_bounds, file.upper_bounds) == (
        {5: struct.pack("<i", min(values))},
        {5: struct.pack("<i", max(values))},
    )


@given(st.lists(st.floats(), min_size=1, max_size=8))
def test_bounds_of_doubles_hold_every_number(values: list[float]) -> None:
    """NaN has no place in an order, so it bounds nothing; every other number lies between the bounds."""
    file = _describe(values, pa.float64())
    for value in values:
        if 5 in (file.lower_bounds or {}) and value == value:
            assert (
                struct.unpack("<d", (file.lower_bounds or {})[5])[0]
                <= value
                <= struct.unpack("<d", (file.upper_bounds or {})[5])[0]
            )


@pytest.mark.parametrize(
    ("values", "bounds"), [([True], (b"\x01", b"\x01")), ([False, True], (b"\x00", b"\x01"))]
)
def test_bounds_of_booleans_are_one_byte(values: list[bool], bounds: tuple[bytes, bytes]) -> None:
    """A boolean's single-value encoding is one byte."""
    file = _describe(values, pa.bool_())
    assert ((file.lower_bounds or {})[5], (file.upper_bounds or {})[5]) == bounds


@pytest.mark.parametrize(
    ("value", "upper"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "b"),
        ("a" * 15 + "\ud7ff" + "x", "a" * 15 + "\ue000"),
        ("a" * 15 + "\U0010ffff" + "x", "a" * 14 + "b"),
        ("é" * 17, "é" * 15 + "ê"),
    ],
)
def test_cut_upper_bound_is_raised_at_its_last_character_that_can(value: str, upper: str) -> None:
    """Iceberg cuts at 16 characters and adds one to the last; surrogates are stepped over."""
    assert _describe([value], pa.string()).upper_bounds == {5: upper.encode()}


def test_nothing_above_the_last_character_means_no_upper_bound() -> None:
    """Where no larger text of 16 characters exists, the file has no upper bound."""
    file = _describe(["\U0010ffff" * 17], pa.string())
    assert file.upper_bounds == {}
    assert file.lower_bounds == {5: ("\U0010ffff" * 16).encode()}


def test_all_null_column_has_counts_but_no_bounds() -> None:
    """A column of NULLs bounds nothing and keeps none of its rows out."""
    file = _describe([None, None], pa.string())
    assert (file.null_counts, file.value_counts, file.lower_bounds) == ({5: 2}, {5: 2}, {})
