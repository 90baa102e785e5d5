"""Decoded values to what their columns store: exactly, or not at all."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.convert.values import as_text, to_column
from ingest.decode.decoder import Json, Pairs
from lake.log_schema import ValueReason

WRONG, RANGE = ValueReason.WRONG_TYPE, ValueReason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("string", "x", "x"),
        ("string", Json("1.10"), "1.10"),
        ("string", Json("[1, 2]"), "[1, 2]"),
        ("string", Pairs([("a", Json("1"))]), '{"a":1}'),
        ("string", "\ud800", ValueReason.INVALID_TEXT),
        ("long", Json("1"), 1),
        ("long", "1", 1),
        ("long", Json("1.0"), 1),
        ("long", Json("1e3"), 1000),
        ("long", Json("1.5"), WRONG),
        ("long", Json("9223372036854775807"), 2**63 - 1),
        ("long", Json("9223372036854775808"), RANGE),
        ("long", Json("-9223372036854775808"), -(2**63)),
        ("long", Json("1e308"), RANGE),
        ("long", Json("1e999999999"), WRONG),
        ("long", "", WRONG),
        ("long", " 1", WRONG),
        ("long", "1_000", WRONG),
        ("long", Json("true"), WRONG),
        ("long", Json("NaN"), WRONG),
        ("long", Json("[1]"), WRONG),
        ("int", Json("2147483647"), 2**31 - 1),
        ("int", Json("2147483648"), RANGE),
        ("double", Json("0.1"), 0.1),
        ("double", Json("-0.0"), -0.0),
        ("double", Json("1e309"), RANGE),
        ("double", Json("1e-350"), RANGE),
        ("double", Json("0e-350"), 0.0),
        ("double", Json("1e-400"), WRONG),
        ("double", Json("Infinity"), WRONG),
        ("double", "abc", WRONG),
        ("boolean", Json("true"), True),
        ("boolean", "false", False),
        ("boolean", "True", WRONG),
        ("boolean", Json("1"), WRONG),
        ("timestamptz", "2025-11-21T12:00:00Z", 1_763_726_400_000_000),
        ("timestamptz", Json("1763726400"), 1_763_726_400_000_000),
        ("timestamptz", "2025-11-21T12:00:00.123456789Z", RANGE),
        ("timestamptz", "soon", WRONG),
        ("date", "2025-11-21", date(2025, 11, 21)),
        ("date", "2025-13-21", WRONG),
        ("date", Json("20251121"), date(2025, 11, 21)),
        ("decimal(9,2)", Json("1"), WRONG),
        ({"type": "list"}, Json("[]"), WRONG),
    ],
)
def test_value_is_stored_exactly_or_refused_with_a_reason(kind: Any, value: Any, stored: Any) -> None:
    """No column rounds, cuts or guesses: what it cannot hold as it is goes to `_errors`."""
    assert to_column(kind, value) == stored
    assert type(to_column(kind, value)) is type(stored)


@given(st.integers())
def test_long_is_exact_or_out_of_range(number: int) -> None:
    """Every integer that has 64 bits is stored, every other one is out of range."""
    assert to_column("long", Json(str(number))) == (number if -(2**63) <= number < 2**63 else RANGE)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_leads_back(number: float) -> None:
    """A double comes back as the number that was written."""
    assert to_column("double", Json(repr(number))) == number


@given(st.text(), st.sampled_from(["long", "int", "double", "boolean", "timestamptz", "date"]))
def test_any_text_is_stored_or_refused(text: str, kind: str) -> None:
    """No text makes a declared column fail."""
    stored = to_column(kind, text)
    assert isinstance(stored, ValueReason) or stored is not None


def test_text_of_a_value_is_its_json_but_for_text() -> None:
    """Text stands for itself, everything else for its JSON."""
    assert (as_text("a"), as_text(Json("null")), as_text(Pairs([("k", "v")]))) == ("a", "null", '{"k":"v"}')
