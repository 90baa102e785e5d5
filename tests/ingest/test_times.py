"""Times read by columns are what `event_time` reads one by one, and typed columns what `values` converts."""

from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.convert.times import read_moments
from ingest.convert.typed_values import typed_values
from ingest.convert.values import to_column
from ingest.decode.event_time import parse_instant, zone
from lake.log_schema import ValueReason, arrow_type

NEAR_US = 1_795_210_000_000_000
DIGITS = st.text("0123456789", max_size=20)
DATES = st.sampled_from(
    ["2026-11-20", "0000-01-01", "0001-01-01", "9999-12-31", "2026-02-29", "2024-02-29", "1969-12-31"]
)
CLOCKS = st.sampled_from(
    ["21:14:19", "00:00:00", "23:59:59", "23:59:60", "24:00:00", "21:14", "21", "25:00:00"]
)
FRACTIONS = st.one_of(st.just(""), st.tuples(st.sampled_from(".,"), DIGITS).map("".join))
ZONES = st.sampled_from(
    ["", "Z", "z", " Z", "+01:00", "-23:59", "+23:59", "+24:00", "+01:60", "+0130", "-05", " +0100", "+1"]
)
ISO = st.tuples(DATES, st.sampled_from("Tt _"), CLOCKS, FRACTIONS, ZONES).map("".join)
EPOCHS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-(10**12), 10**12).map(str),
    st.tuples(st.sampled_from(["", "-", "+"]), DIGITS, st.just("."), DIGITS).map("".join),
    st.sampled_from(
        ["1.5e9", "1e3", "0x10", "007", " 5", "1_0", "99999999999", "100000000000", "99999999999.5"]
    ),
)
CLF = st.tuples(
    st.sampled_from(
        ["17/May/2015", "31/Feb/2015", "17/Foo/2015", "01/Jan/0001", "31/Dec/9999", "00/May/2015"]
    ),
    st.just(":"),
    CLOCKS,
    st.sampled_from([" +0000", " -2359", " +2359", " +2400", " +0060", "+0000", ""]),
).map("".join)
OTHERS = st.sampled_from(
    ["", "soon", "Nov 20 21:14:19", "Feb 30 21:14:19", "true", "\u0663", "2026-11-20", "12ms"]
)
TIMES = st.one_of(ISO, ISO, EPOCHS, EPOCHS, CLF, OTHERS, st.none())


@given(st.lists(TIMES, max_size=12), st.sampled_from(["UTC", "Europe/Berlin"]), st.booleans())
@example(["2026-11-20T21:14:19Z"] * 3, "UTC", False)
@example(["2026-11-20T21:14:19.1234567Z", "2026-11-20 21:14:19,5"], "UTC", False)
@example(["1795210000", "1795210000000", "1795210000000001", "1795210000000000001", "-1"], "UTC", False)
def test_times_by_columns_are_those_read_one_by_one(
    texts: list[str | None], name: str, has_near: bool
) -> None:
    """To the microsecond, whatever stands beside a time in its column."""
    local = zone(name)
    moments = read_moments(
        pa.array(texts, pa.string()), np.full(len(texts), NEAR_US) if has_near else None, local
    )
    for row, text in enumerate(texts):
        instant = None if text is None else parse_instant(text, NEAR_US if has_near else None, local)
        assert bool(moments.are_times[row]) == (instant is not None), text
        if instant is not None:
            assert (int(moments.us[row]), bool(moments.are_exact[row])) == instant, text


def test_times_without_a_zone_are_in_that_of_the_topic() -> None:
    """In winter and in summer, and in the hour that comes twice."""
    texts = ["2026-11-20 21:14:19", "2026-07-01 00:00:00", "2026-10-25 02:30:00"]
    berlin = zone("Europe/Berlin")
    moments = read_moments(pa.array(texts), None, berlin)
    assert moments.us.tolist() == [
        instant.us for text in texts if (instant := parse_instant(text, None, berlin))
    ]
    assert moments.us.tolist() != read_moments(pa.array(texts), None, UTC).us.tolist()


KINDS = ["int", "long", "double", "boolean", "timestamptz", "date", "float", {"type": "list"}]
NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(repr),
    st.tuples(
        st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", ".", "e", "E+", "e-"]), DIGITS
    ).map("".join),
    st.sampled_from(
        ["2147483647", "-2147483648", "2147483648", "1e400", "-0", "0x10", "1e-400", "4.0", "\u0663", "NaN"]
    ),
)
VALUES = st.one_of(
    NUMBERS, TIMES, st.sampled_from(["true", "false", "True", "1", "2026-11-20", "20261120", "2026-W01-1"])
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(texts=st.lists(VALUES, max_size=12))
def test_values_of_a_declared_type_are_those_converted_one_by_one(kind: Any, texts: list[str | None]) -> None:
    """The value to the last digit, or the reason why it is none."""
    values, bad = typed_values(kind, pa.array(texts, pa.string()))
    reasons = dict(bad)
    assert [row for row, _ in bad] == sorted(reasons)
    for row, text in enumerate(texts):
        expected = None if text is None else to_column(kind, text)
        if isinstance(expected, ValueReason):
            assert reasons.pop(row) is expected, text
            expected = None
        stored = pa.scalar(None) if values is None else values[row]
        if expected is None:
            assert not stored.is_valid, text
        else:
            assert stored.equals(pa.scalar(expected, arrow_type(kind))), text
            if kind == "double":
                assert repr(stored.as_py()) == repr(expected), text  # the sign of zero
    assert not reasons
