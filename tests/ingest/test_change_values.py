"""Values of a typed row: what goes in comes out of its Arrow column, typed and equal; what does not fit is an
error of the row, with the value kept."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.changes.change import Change
from ingest.changes.column_type import ColumnType, ListType, MapType, from_iceberg, to_arrow, to_iceberg
from ingest.changes.schema_change import type_suffix
from lake.log_schema import ValueReason
from tests.ingest.support.change_messages import TEXT, read_change, struct

EPOCH = datetime.fromisoformat("1970-01-01")
US = timedelta(microseconds=1)
MINUTE = datetime.fromisoformat("2026-11-23T10:20")
LAST_US = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
INT = {"type": "int32", "optional": False}
PRECISION = "connect.decimal.precision"
LONG_MAX = 2**63 - 1
CONNECT, TIME, DATA = "org.apache.kafka.connect.data", "io.debezium.time", "io.debezium.data"


class Case(NamedTuple):
    """A value as the converter spells it, its schema, its column's type, and what the column gives back."""

    schema: Mapping[str, Any]
    kind: ColumnType
    sent: Any
    stored: Any


def _schema(base: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": base, "optional": True, **({} if name is None else {"name": name}), **more}


def _decimal(**parameters: str) -> dict[str, Any]:
    return _schema("bytes", f"{CONNECT}.Decimal", parameters=parameters)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unscaled(number: int) -> str:
    """Two's complement of a number as Java's BigInteger gives it."""
    return _base64(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _us_of(moment: datetime) -> int:
    return (moment - EPOCH) // US


def _us_of_day(moment: time) -> int:
    return (datetime.combine(EPOCH, moment) - EPOCH) // US


def _floor_ms(moment: time) -> time:
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)


texts = st.text(st.characters(exclude_categories=["Cs"]))
# A logical type that nobody knows keeps its value as text, whatever is beneath it.
unknown = texts.map(lambda text: Case(_schema("string", "com.example.Ltree"), "string", text, text))


def _ints(bits: int, name: str, kind: str) -> st.SearchStrategy[Case]:
    bound = 2 ** (bits - 1)
    return st.integers(-bound, bound - 1).map(lambda value: Case(_schema(name), kind, value, value))


def _decimals(precision: int) -> st.SearchStrategy[Case]:
    def case(unscaled: int, scale: int) -> Case:
        parameters = {"scale": str(scale), PRECISION: str(precision)}
        schema = _schema("bytes", f"{CONNECT}.Decimal", parameters=parameters)
        stored = Decimal(f"{unscaled}E-{scale}")
        return Case(schema, f"decimal({precision},{scale})", _unscaled(unscaled), stored)

    bound = 10**precision - 1
    return st.builds(case, st.integers(-bound, bound), st.integers(0, precision))


def _timestamps(name: str, unit_us: int) -> st.SearchStrategy[Case]:
    def case(moment: datetime) -> Case:
        units = _us_of(moment) // unit_us
        return Case(_schema("int64", name), "timestamp", units, EPOCH + units * unit_us * US)

    return st.datetimes().map(case)


def _times(base: str, name: str, unit_us: int) -> st.SearchStrategy[Case]:
    def case(moment: time) -> Case:
        stored = moment if unit_us == 1 else _floor_ms(moment)
        return Case(_schema(base, name), "time", _us_of_day(stored) // unit_us, stored)

    return st.times().map(case)


def _dates(name: str) -> st.SearchStrategy[Case]:
    return st.dates().map(lambda day: Case(_schema("int32", name), "date", (day - EPOCH.date()).days, day))


scalars = st.one_of(
    st.booleans().map(lambda value: Case(_schema("boolean"), "boolean", value, value)),
    _ints(8, "int8", "int"),
    _ints(16, "int16", "int"),
    _ints(32, "int32", "int"),
    _ints(64, "int64", "long"),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda value: Case(_schema("float"), "float", value, value)
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(
        lambda value: Case(_schema("double"), "double", value, value)
    ),
    texts.map(lambda value: Case(_schema("string"), "string", value, value)),
    texts.map(lambda value: Case(_schema("string", f"{DATA}.Enum"), "string", value, value)),
    st.binary().map(lambda value: Case(_schema("bytes"), "binary", _base64(value), value)),
    st.uuids().map(lambda value: Case(_schema("string", f"{DATA}.Uuid"), "uuid", str(value), value.bytes)),
    _decimals(38),
    _decimals(18),
    _decimals(1),
    _dates(f"{CONNECT}.Date"),
    _dates(f"{TIME}.Date"),
    _times("int32", f"{CONNECT}.Time", 1_000),
    _times("int32", f"{TIME}.Time", 1_000),
    _times("int64", f"{TIME}.MicroTime", 1),
    _timestamps(f"{CONNECT}.Timestamp", 1_000),
    _timestamps(f"{TIME}.Timestamp", 1_000),
    _timestamps(f"{TIME}.MicroTimestamp", 1),
    st.datetimes().map(
        lambda value: Case(
            _schema("string", f"{TIME}.ZonedTimestamp"),
            "timestamptz",
            value.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z"),
            value.replace(tzinfo=UTC),
        )
    ),
    st.integers(-LONG_MAX, LONG_MAX).map(
        lambda value: Case(_schema("int64", f"{TIME}.MicroDuration"), "long", value, value)
    ),
    unknown,
)


def _listed(cases: list[Case | None], of: Case) -> Case:
    """A list of what the first case is, with NULLs."""
    kept = [None if case is None or case.schema != of.schema else case for case in [of, *cases]]
    return Case(
        _schema("array", items=of.schema),
        ListType(of.kind),
        [None if case is None else case.sent for case in kept],
        [None if case is None else case.stored for case in kept],
    )


def _mapped(keys: list[str], of: Case) -> Case:
    return Case(
        _schema("map", keys=TEXT, values=of.schema),
        MapType("string", of.kind),
        dict.fromkeys(keys, of.sent),
        [(key, of.stored) for key in dict.fromkeys(keys)],
    )


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(_listed, st.lists(st.none() | inner, max_size=3), inner),
        st.builds(_mapped, st.lists(texts, max_size=3), inner),
    ),
    max_leaves=4,
)


def _message(schema: Mapping[str, Any], value: Any) -> bytes:
    return json.dumps({"schema": struct({"v": schema}), "payload": {"v": value}}).encode()


def _read(schema: Mapping[str, Any], value: Any) -> Change:
    return read_change("keyed_json", b"1", _message(schema, value))


def _of_column(change: Change) -> Any:
    """What an Arrow column of the value's type gives back."""
    return pa.array([change.row.values["v"]], to_arrow(change.row.types["v"])).to_pylist()[0]


@given(values)
def test_a_value_comes_out_typed_and_equal(case: Case) -> None:
    """Whatever Debezium and Kafka Connect have a type for."""
    change = _read(case.schema, case.sent)
    assert change.errors == ()
    assert change.row.types == {"v": case.kind}
    assert _of_column(change) == case.stored


@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_of_all_digits_fits(sign: int) -> None:
    """Rounded to the digits of Python's default context it would have one more than its type."""
    digits = sign * (10**38 - 5 * 10**9)
    text = _base64(digits.to_bytes(17, "big", signed=True))
    schema = _schema("bytes", f"{CONNECT}.Decimal", parameters={"scale": "0", PRECISION: "38"})
    change = _read(schema, text)
    assert change.errors == ()
    assert _of_column(change) == Decimal(digits)


@given(values)
def test_null_is_null_of_every_type(case: Case) -> None:
    """A value that is not there is of its type all the same, and an error of none."""
    for payload in ({"v": None}, {}):
        message = orjson.dumps({"schema": struct({"v": case.schema}), "payload": payload})
        change = read_change("keyed_json", b"1", message)
        assert (change.row.values, change.row.types) == ({"v": None}, {"v": case.kind})
        assert change.errors == ()


@given(values, values)
def test_a_value_of_another_type_is_kept(one: Case, other: Case) -> None:
    """It is stored as what it is, or is NULL with the whole value in the errors; the row is kept."""
    change = _read(one.schema, other.sent)
    assert change.row.types == {"v": one.kind}
    if change.errors:
        (bad,) = change.errors
        assert (bad.field, change.row.values["v"]) == ("/v", None)
        sent = other.sent if isinstance(other.sent, str) else json.loads(bad.value or "")
        assert bad.value == other.sent if isinstance(other.sent, str) else sent == other.sent
    else:
        assert _of_column(change) is not None


@given(values)
def test_a_type_survives_the_table_that_has_it(case: Case) -> None:
    """As Iceberg's JSON it is the same type; as part of a name it is plain."""
    assert from_iceberg(to_iceberg(case.kind, iter(range(1, 99)).__next__)) == case.kind
    assert type_suffix(case.kind).replace("_", "").isalnum()


@pytest.mark.parametrize("base", ["float", "double"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_told_by_text(base: str, text: str) -> None:
    """NaN and the infinities are values of a floating type."""
    found = _of_column(_read(_schema(base), text))
    assert str(found) == {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[text]


@pytest.mark.parametrize(
    ("schema", "sent", "reason"),
    [
        (_schema("int32"), 2**31, ValueReason.OUT_OF_RANGE),
        (_schema("int32"), -(2**31) - 1, ValueReason.OUT_OF_RANGE),
        (_schema("int64"), 2**63, ValueReason.OUT_OF_RANGE),
        (_schema("int64"), "5", ValueReason.WRONG_TYPE),
        (_schema("int64"), 5.0, ValueReason.WRONG_TYPE),
        (_schema("int64"), True, ValueReason.WRONG_TYPE),
        (_schema("boolean"), 1, ValueReason.WRONG_TYPE),
        (_schema("boolean"), "true", ValueReason.WRONG_TYPE),
        (_schema("double"), 2**53 + 1, ValueReason.OUT_OF_RANGE),
        (_schema("double"), 10**400, ValueReason.OUT_OF_RANGE),
        (_schema("double"), "1.5", ValueReason.WRONG_TYPE),
        (_schema("float"), 1e39, ValueReason.OUT_OF_RANGE),
        (_schema("string"), 5, ValueReason.WRONG_TYPE),
        (_schema("bytes"), "%%", ValueReason.WRONG_TYPE),
        (_schema("bytes"), 5, ValueReason.WRONG_TYPE),
        (_schema("string", f"{DATA}.Uuid"), "6f1e5a3e", ValueReason.WRONG_TYPE),
        (_schema("int32", f"{TIME}.Date"), 2**31 - 1, ValueReason.OUT_OF_RANGE),
        (_schema("int32", f"{TIME}.Date"), "2026-11-23", ValueReason.WRONG_TYPE),
        (_schema("int64", f"{TIME}.MicroTime"), 86_400_000_000, ValueReason.OUT_OF_RANGE),
        (_schema("int64", f"{TIME}.MicroTime"), -1, ValueReason.OUT_OF_RANGE),
        (_schema("int64", f"{TIME}.MicroTimestamp"), 9_223_371_331_200_000_000, ValueReason.OUT_OF_RANGE),
        (_schema("string", f"{TIME}.ZonedTimestamp"), "infinity", ValueReason.OUT_OF_RANGE),
        (_schema("string", f"{TIME}.ZonedTimestamp"), "+12026-01-01T00:00:00Z", ValueReason.OUT_OF_RANGE),
        (_schema("string", f"{TIME}.ZonedTimestamp"), "-0043-03-15T12:00:00Z", ValueReason.OUT_OF_RANGE),
        (_schema("string", f"{TIME}.ZonedTimestamp"), "yesterday", ValueReason.WRONG_TYPE),
        (_schema("string", f"{TIME}.ZonedTimestamp"), "1795425503", ValueReason.WRONG_TYPE),
        (_schema("array", items=_schema("int32")), [1, "x"], ValueReason.WRONG_TYPE),
        (_schema("array", items=_schema("int32")), [2**31], ValueReason.OUT_OF_RANGE),
        (_schema("array", items=_schema("int32")), {"a": 1}, ValueReason.WRONG_TYPE),
        (_schema("map", keys=TEXT, values=_schema("int32")), {"a": "b"}, ValueReason.WRONG_TYPE),
        (_schema("map", keys=TEXT, values=_schema("int32")), [["a", 1, 2]], ValueReason.WRONG_TYPE),
        (_schema("map", keys=TEXT, values=_schema("int32")), 5, ValueReason.WRONG_TYPE),
    ],
)
def test_a_value_that_does_not_fit_its_type_says_why(
    schema: Mapping[str, Any], sent: Any, reason: ValueReason
) -> None:
    """NULL in its column, and whole in the errors."""
    change = _read(schema, sent)
    assert change.row.values == {"v": None}
    ((field, text, found),) = change.errors
    assert (field, found) == ("/v", reason)
    assert text == sent if isinstance(sent, str) else json.loads(text or "") == sent


@pytest.mark.parametrize("unscaled", [0, 1, -1, 10**12 - 1, -(10**12) + 1, 10**12, -(10**12)])
@pytest.mark.parametrize("scale", [0, 2, 12])
def test_decimals_fit_to_their_last_digit(unscaled: int, scale: int) -> None:
    """Of twelve digits, all twelve may be nines; one more is an error of the row."""
    digits = {"scale": str(scale), "connect.decimal.precision": "12"}
    sent = base64.b64encode(unscaled.to_bytes(6, "big", signed=True)).decode()
    change = _read(_schema("bytes", "org.apache.kafka.connect.data.Decimal", parameters=digits), sent)
    if abs(unscaled) < 10**12:
        assert (_of_column(change), change.errors) == (Decimal(unscaled).scaleb(-scale), ())
    else:
        assert (change.row.values["v"], change.errors[0].reason) == (None, ValueReason.OUT_OF_RANGE)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2026-11-23T09:17:01.358584Z", "2026-11-23T09:17:01.358584"),
        ("0001-01-01T00:00:00.000000Z", "0001-01-01T00:00:00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999"),
        ("2026-11-23T09:17:01.358584+02:00", "2026-11-23T07:17:01.358584"),
        ("2026-11-23T09:17:01Z", "2026-11-23T09:17:01"),
        ("2026-11-23T09:17:01.5Z", "2026-11-23T09:17:01.500000"),
    ],
)
def test_moments_mean_the_same_however_they_are_spelled(sent: str, stored: str) -> None:
    """With six digits and a `Z`, as most connectors do, or otherwise."""
    change = _read(_schema("string", f"{TIME}.ZonedTimestamp"), sent)
    assert (_of_column(change), change.errors) == (_at(stored).replace(tzinfo=UTC), ())


@pytest.mark.parametrize(
    "sent",
    ["2026-02-30T09:17:01.358584Z", "2026-11-23T25:17:01.358584Z", "2026-11-23T09:17:01.35858\u0664Z"],
)
def test_moments_that_no_calendar_has_are_errors(sent: str) -> None:
    """Though they are spelled as most connectors do."""
    (bad,) = _read(_schema("string", f"{TIME}.ZonedTimestamp"), sent).errors
    assert (bad.value, bad.reason) == (sent, ValueReason.WRONG_TYPE)


@pytest.mark.parametrize(
    ("name", "base", "sent", "stored"),
    [
        (
            f"{TIME}.NanoTimestamp",
            "int64",
            1_795_425_421_358_584_432,
            _at("2026-11-23T09:17:01.358584"),
        ),
        (f"{TIME}.NanoTime", "int64", 86_399_999_999_999, time(23, 59, 59, 999_999)),
        (f"{TIME}.ZonedTimestamp", "string", "1969-12-31T23:59:59.999999999Z", LAST_US),
        (f"{TIME}.IsoTime", "string", "23:59:59.9999999Z", time(23, 59, 59, 999_999)),
    ],
)
def test_what_microseconds_cannot_hold_is_cut_and_kept(name: str, base: str, sent: Any, stored: Any) -> None:
    """The column has the moment to the microsecond, the errors have all of it."""
    change = _read(_schema(base, name), sent)
    assert [bad.reason for bad in change.errors] == [ValueReason.OUT_OF_RANGE]
    assert change.errors[0].value == str(sent)
    assert _of_column(change) == stored


@pytest.mark.parametrize(
    ("schema", "sent", "kind", "stored"),
    [
        (_schema("int64", f"{TIME}.NanoTimestamp"), 1_000, "timestamp", _at("1970-01-01T00:00:00.000001")),
        (_schema("int64", f"{TIME}.NanoTime"), 1_000, "time", time(0, 0, 0, 1)),
        (_schema("string", f"{TIME}.IsoDate"), "2026-11-23Z", "date", date(2026, 11, 23)),
        (_schema("string", f"{TIME}.IsoTime"), "10:20:30.5Z", "time", time(10, 20, 30, 500_000)),
        (
            _schema("string", f"{TIME}.IsoTimestamp"),
            "2026-11-23T10:20Z",
            "timestamp",
            _at("2026-11-23T10:20"),
        ),
        (_schema("string", f"{TIME}.ZonedTime"), "10:20:30+02:00", "string", "10:20:30+02:00"),
        (_schema("string", f"{TIME}.Interval"), "P1Y2M", "string", "P1Y2M"),
        (_schema("int32", f"{TIME}.Year"), 2026, "int", 2026),
        (_schema("bytes", f"{DATA}.Bits", parameters={"length": "9"}), "AQE=", "binary", b"\x01\x01"),
        (_schema("array", f"{DATA}.DoubleVector", items=_schema("double")), [1.5], ListType("double"), [1.5]),
        (_schema("struct", f"{DATA}.VariableScaleDecimal"), {"scale": 3, "value": "A+g="}, "string", "1.000"),
        (_schema("struct", f"{DATA}.geometry.Point"), {"x": 1.0, "b": "A"}, "string", '{"x":1.0,"b":"A"}'),
        (_schema("int64", "com.example.Money"), 2**62, "string", str(2**62)),
        (_schema("array", "com.example.Set", items=TEXT), ["ä"], "string", '["ä"]'),
        (_schema("float", f"{TIME}.Date"), 1.50, "string", "1.5"),
        ({"optional": True}, 5, "string", "5"),
        (_schema("what"), {"a": 1.10}, "string", '{"a":1.1}'),
        (_schema("map", keys=INT, values=TEXT), [[1, "a"]], MapType("int", "string"), [(1, "a")]),
        (_decimal(scale="2"), "BBo=", "decimal(38,2)", Decimal("10.50")),
        (_decimal(scale="2"), 10.5, "decimal(38,2)", Decimal("10.50")),
        (_decimal(scale="-2", **{PRECISION: "3"}), "Cg==", "decimal(5,0)", Decimal(1000)),
        (_decimal(scale="40"), "AQ==", "string", "0." + "0" * 39 + "1"),
        (_decimal(), "AQ==", "string", "AQ=="),
    ],
)
def test_types_of_connectors(schema: Mapping[str, Any], sent: Any, kind: ColumnType, stored: Any) -> None:
    """Types that take more than a number, and those that nobody knows: text, with the value kept."""
    change = _read(schema, sent)
    assert (change.row.types["v"], change.errors) == (kind, ())
    assert _of_column(change) == stored


@pytest.mark.parametrize(
    "sent",
    [
        "__debezium_unavailable_value",
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        b"__debezium_unavailable_value".hex(),
        ["__debezium_unavailable_value"],
        list(b"__debezium_unavailable_value"),
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        {"__debezium_unavailable_value": "__debezium_unavailable_value"},
    ],
)
def test_a_placeholder_has_a_form_for_each_type(sent: Any) -> None:
    """Text, bytes, arrays, maps: whatever the column is, nothing of it becomes a value."""
    change = _read(_schema("string"), sent)
    assert change.unavailable == {"v"}
    assert (change.row.values, change.errors) == ({}, ())
    bare = read_change("keyed_json", b"1", orjson.dumps({"v": sent}))
    assert bare.unavailable == {"v"}
    assert bare.row.values == {}
