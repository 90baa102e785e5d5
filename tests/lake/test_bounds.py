"""Bounds of every type, over row groups: no value lies beyond them, as another implementation of Iceberg
reads them."""

import io
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lake.data_file import DataFile, describe_parquet

LEAF = 5
Values = st.SearchStrategy[Any]


def _decimals(precision: int, scale: int) -> Values:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: Decimal(n).scaleb(-scale, Context(prec=60))
    )


_FF = st.binary(max_size=40).map(lambda b: b.replace(b"a", b"\xff"))
_FIXED = st.one_of(
    st.binary(min_size=20, max_size=20),
    st.just(b"\xff" * 20),
    st.integers(0, 20).map(lambda n: b"\xff" * n + b"\x00" * (20 - n)),
)
_TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(tzinfo=None))
_ZEROS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])

# Iceberg's type, Arrow's, values, and how pyarrow may write them.
TYPES: dict[str, tuple[PrimitiveType, pa.DataType, Values, dict[str, Any]]] = {
    "boolean": (BooleanType(), pa.bool_(), st.booleans(), {}),
    "int": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1), {}),
    "long": (LongType(), pa.int64(), st.integers(-(2**63), 2**63 - 1), {}),
    "float": (FloatType(), pa.float32(), st.one_of(st.floats(width=32), _ZEROS), {}),
    "double": (DoubleType(), pa.float64(), st.one_of(st.floats(), _ZEROS), {}),
    "decimal(5,2)": (DecimalType(5, 2), pa.decimal128(5, 2), _decimals(5, 2), {}),
    "decimal(5,2) as int": (
        DecimalType(5, 2),
        pa.decimal128(5, 2),
        _decimals(5, 2),
        {"store_decimal_as_integer": True},
    ),
    "decimal(18,6) as long": (
        DecimalType(18, 6),
        pa.decimal128(18, 6),
        _decimals(18, 6),
        {"store_decimal_as_integer": True},
    ),
    "decimal(38,10)": (DecimalType(38, 10), pa.decimal128(38, 10), _decimals(38, 10), {}),
    "date": (DateType(), pa.date32(), st.dates(), {}),
    "time": (TimeType(), pa.time64("us"), st.times(), {}),
    "time of ms": (
        TimeType(),
        pa.time32("ms"),
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        {},
    ),
    "timestamp": (TimestampType(), pa.timestamp("us"), _TIMES, {}),
    "timestamptz": (
        TimestamptzType(),
        pa.timestamp("us", "Europe/Berlin"),
        _TIMES.map(lambda t: t.replace(tzinfo=UTC)),
        {},
    ),
    "timestamp of ms": (
        TimestampType(),
        pa.timestamp("ms"),
        _TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        {},
    ),
    "uuid": (UUIDType(), pa.binary(16), st.uuids().map(lambda u: u.bytes), {}),
    "fixed": (FixedType(20), pa.binary(20), _FIXED, {}),
    "binary": (BinaryType(), pa.binary(), st.one_of(st.binary(max_size=40), _FF), {}),
    "string": (
        StringType(),
        pa.string(),
        st.one_of(st.text(max_size=40), st.text("\U0010ffff\ud7ff\x7f", max_size=40)),
        {},
    ),
}


def described(values: list[Any], kind: pa.DataType, **options: Any) -> DataFile:
    """A column of row groups of two rows."""
    buffer, footers = io.BytesIO(), list[pq.FileMetaData]()
    pq.write_table(
        pa.table({"c": pa.array(values, kind)}),
        buffer,
        row_group_size=2,
        metadata_collector=footers,
        **options,
    )
    return describe_parquet("file:///f", 0, len(buffer.getvalue()), footers[0], [LEAF])


def _ordered(kind: PrimitiveType) -> Callable[[Any], Any]:
    """As Java compares them: -0.0 before 0.0, text and bytes by their bytes, numbers as numbers."""
    if isinstance(kind, FloatType | DoubleType):
        return lambda value: (value, math.copysign(1.0, value))
    if isinstance(kind, StringType):
        return lambda value: value.encode()
    if isinstance(kind, UUIDType):
        return lambda value: value.bytes if isinstance(value, UUID) else value
    if isinstance(kind, DateType):
        return lambda value: value if isinstance(value, int) else (value - date(1970, 1, 1)).days
    if isinstance(kind, TimeType):
        return lambda value: (
            value
            if isinstance(value, int)
            else ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        )
    if isinstance(kind, TimestampType | TimestamptzType):
        return lambda value: value if isinstance(value, int) else _micros(value)
    return lambda value: value


def _micros(moment: datetime) -> int:
    apart = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
@pytest.mark.long
def test_no_value_lies_beyond_the_bounds(name: str, data: st.DataObject) -> None:
    """NULLs and NaN aside; and equal numbers, of which there are two zeros, lie within as well."""
    iceberg, arrow, values, options = TYPES[name]
    column = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=9))
    file, ordered = described(column, arrow, **options), _ordered(iceberg)
    present = [
        value
        for value in column
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    ]
    if isinstance(iceberg, FloatType | DoubleType) and any(value == 0 for value in present):
        present += [0.0, -0.0]
    low, high = (
        None if raw is None else ordered(from_bytes(iceberg, raw))
        for raw in ((file.lower_bounds or {}).get(LEAF), (file.upper_bounds or {}).get(LEAF))
    )
    for value in present:
        assert low is None or low <= ordered(value)
        assert high is None or ordered(value) <= high
    if not present:
        assert (low, high) == (None, None)


def test_bounds_are_as_narrow_as_their_type_allows() -> None:
    """Over row groups in which the order of the bytes is not that of the numbers."""
    prices = [Decimal("-5.00"), Decimal("-1.00"), Decimal("1.00"), Decimal("300.00")]
    for options in ({}, {"store_decimal_as_integer": True}):
        file = described(prices, pa.decimal128(5, 2), **options)
        assert (file.lower_bounds, file.upper_bounds) == ({LEAF: b"\xfe\x0c"}, {LEAF: b"\x75\x30"})
    assert described([time(0, 0, 1)], pa.time32("ms")).lower_bounds == {LEAF: struct.pack("<q", 1_000_000)}
    assert described([0.0, math.nan, 1.5], pa.float64()).lower_bounds == {LEAF: struct.pack("<d", -0.0)}


def test_a_group_that_holds_only_nan_leaves_no_bounds() -> None:
    """Nobody counted the NaN, and an engine that puts them above all numbers must find them."""
    file = described([1.0, 2.0, math.nan, math.nan], pa.float64())
    assert (file.lower_bounds, file.upper_bounds) == ({}, {})


def test_unsigned_numbers_have_no_bounds() -> None:
    """Iceberg has no such type; another writer's file may hold them."""
    file = described([2**63, 1], pa.uint64())
    assert (file.lower_bounds, file.upper_bounds) == ({}, {})
