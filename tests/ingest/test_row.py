"""Fields of a record laid out as columns."""

from typing import Any

import orjson
import pytest

from ingest.convert.bad_values import entries
from ingest.convert.row import Row, row_of
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.decode.column_name import BadValue
from ingest.decode.decoder import decode
from lake.errors import Reason, Rejected
from lake.log_schema import NAME_BYTES_MAX, LogSchema, ValueReason, new_log_schema

KAFKA_MS = 1_763_726_400_000
KAFKA_US = KAFKA_MS * 1000
DAY_US = 86_400_000_000
LIMITS = TimeLimits(3 * DAY_US, DAY_US)
ANY_TIME = TimeLimits(None, None)
MISSING = BadValue("timestamp", None, ValueReason.MISSING_TIMESTAMP)
TIMED = {"ts": KAFKA_MS}


def _columns(*, columns_max: int = 1_000, **kinds: Any) -> Columns:
    fields = [
        {"id": 100 + at, "name": name, "required": False, "type": kind, "doc": f"/{name}"}
        for at, (name, kind) in enumerate(kinds.items())
    ]
    return Columns(LogSchema({"fields": [*new_log_schema().json["fields"], *fields]}), columns_max)


def _row(record: dict[str, Any] | bytes, columns: Columns | None = None, limits: TimeLimits = LIMITS) -> Row:
    row = _laid_out(record, columns, limits)
    assert isinstance(row, Row)
    return row


def _laid_out(
    record: dict[str, Any] | bytes, columns: Columns | None = None, limits: TimeLimits = LIMITS
) -> Row | Rejected:
    fields = decode(record if isinstance(record, bytes) else orjson.dumps(record), "auto", 100)
    assert not isinstance(fields, Rejected)
    return row_of(fields, KAFKA_MS, Terms(columns or _columns(), limits))


def _told(*bad: BadValue) -> list[dict[str, str | None]]:
    return entries(bad) or []


def test_nested_fields_are_joined_with_underscores_and_dots_become_underscores() -> None:
    """An object's fields become columns of their own; an array and an empty object stay JSON text; null is no
    value."""
    columns = _columns()
    row = _row(
        {**TIMED, "a": {"b.c": {"D": 1}, "list": [1, {"x": 2}], "empty": {}, "none": None}, "k8s.pod": "p"},
        columns,
    )
    assert row.values == {"a_b_c_d": "1", "a_list": '[1,{"x":2}]', "a_empty": "{}", "k8s_pod": "p"}
    assert row.errors == []
    assert columns.new == {
        "a_b_c_d": "/a/b.c/D",
        "a_list": "/a/list",
        "a_empty": "/a/empty",
        "k8s_pod": "/k8s.pod",
    }


def test_path_is_a_json_pointer() -> None:
    """Slashes and tildes in names are escaped, so that the path leads back to the value."""
    columns = _columns()
    _row({**TIMED, "a/b": {"c~d": 1}}, columns)
    assert columns.new == {"a/b_c~d": "/a~1b/c~0d"}


@pytest.mark.parametrize(
    "name", ["time", "@timestamp", "ts", "timestamp", "eventTime", "event_time", "TIMESTAMP", "datetime"]
)
def test_time_is_found_under_its_usual_names(name: str) -> None:
    """The record's time becomes `timestamp` and is no column of its own."""
    row = _row({name: "2025-11-21T11:00:00Z"})
    assert (row.timestamp_us, row.values, row.errors) == (KAFKA_US - 3_600_000_000, {}, [])


def test_surest_name_of_the_time_wins_and_the_others_stay_columns() -> None:
    """`timestamp` goes before `time`, which then is a field like any other."""
    row = _row({"time": "2025-11-21T10:00:00Z", "timestamp": "2025-11-21T11:00:00Z"})
    assert row.timestamp_us == KAFKA_US - 3_600_000_000
    assert row.values == {"time": "2025-11-21T10:00:00Z"}


def test_time_finer_than_microseconds_is_kept_beside() -> None:
    """Nothing of a nanosecond is lost: the whole text stays in a column."""
    assert _row({"ts": "2025-11-21T12:00:00.000000001Z"}).values == {"ts": "2025-11-21T12:00:00.000000001Z"}
    assert _row({"timestamp": "2025-11-21T12:00:00.000000001Z"}).values == {
        "timestamp__string": "2025-11-21T12:00:00.000000001Z"
    }


def test_record_without_time_gets_that_of_kafka_and_says_so() -> None:
    """A missing time is an entry in `_errors`; a text line never has one, so it says nothing."""
    assert _row({"a": 1}) == Row(KAFKA_US, {"a": "1"}, _told(MISSING))
    assert _row(b"a line") == Row(KAFKA_US, {"message": "a line"}, [])


def test_time_that_cannot_be_read_is_kept_in_errors() -> None:
    """A name that says it is the time and holds none is worth an entry; `time: "12ms"` is only a field."""
    assert _row({"@timestamp": "soon"}) == Row(
        KAFKA_US, {}, _told(BadValue("/@timestamp", "soon", ValueReason.BAD_TIMESTAMP))
    )
    assert _row({"time": "12ms"}) == Row(KAFKA_US, {"time": "12ms"}, _told(MISSING))
    assert _row({"timestamp": {"nested": 1}, "ts": KAFKA_MS}).values == {"timestamp_nested": "1"}


def test_next_name_is_tried_where_the_surest_holds_no_time() -> None:
    """A bad `timestamp` does not hide a good `ts`."""
    row = _row({"timestamp": "soon", "ts": "2025-11-21T11:00:00Z"})
    assert row.timestamp_us == KAFKA_US - 3_600_000_000
    assert row.errors == _told(BadValue("/timestamp", "soon", ValueReason.BAD_TIMESTAMP))


@pytest.mark.parametrize(
    ("us", "limits", "reason"),
    [
        (KAFKA_US - 3 * DAY_US, LIMITS, None),
        (KAFKA_US - 3 * DAY_US - 1, LIMITS, Reason.TOO_LATE),
        (KAFKA_US + DAY_US, LIMITS, None),
        (KAFKA_US + DAY_US + 1, LIMITS, Reason.TOO_FAR_AHEAD),
        (KAFKA_US - 9_000 * DAY_US, ANY_TIME, None),
        (KAFKA_US + 9_000 * DAY_US, ANY_TIME, None),
    ],
)
def test_lateness_is_judged_against_kafkas_timestamp(
    us: int, limits: TimeLimits, reason: Reason | None
) -> None:
    """To the microsecond, and never against the wall clock, so that replay does not change the verdict."""
    laid_out = _laid_out({"ts": us}, limits=limits)
    if reason is None:
        assert isinstance(laid_out, Row)
        assert laid_out.timestamp_us == us
    else:
        assert isinstance(laid_out, Rejected)
        assert laid_out.reason is reason


@pytest.mark.parametrize(
    ("record", "values"),
    [
        ({"level": "warn", "msg": "m"}, {"severity": "warn", "message": "m"}),
        ({"log.level": "warn", "event": "m"}, {"severity": "warn", "message": "m"}),
        ({"LEVEL": "Warn", "log": "m"}, {"severity": "Warn", "message": "m"}),
        (
            {"severity": "a", "level": "b", "message": "c", "msg": "d"},
            {"severity": "a", "level": "b", "message": "c", "msg": "d"},
        ),
        ({"event": {"kind": "x"}, "body": "m"}, {"event_kind": "x", "message": "m"}),
    ],
)
def test_severity_and_message_are_found_under_their_usual_names(
    record: dict[str, Any], values: dict[str, str]
) -> None:
    """What shippers call level or msg goes into the columns every table has; a second such name stays a
    column."""
    assert _row({**TIMED, **record}).values == values


def test_two_spellings_in_one_record_keep_the_one_the_column_was_made_of() -> None:
    """The doc's spelling wins, whichever comes first; the other is kept whole in `_errors`."""
    columns = _columns()
    _row({**TIMED, "User": "first"}, columns)
    for record in (
        b'{"ts":1763726400000,"user":"b","User":"a"}',
        b'{"ts":1763726400000,"User":"a","user":"b"}',
    ):
        row = _row(record, columns)
        assert row.values == {"user": "a"}
        assert row.errors == _told(BadValue("/user", "b", ValueReason.NAME_COLLISION))


def test_different_paths_that_make_one_name_collide_too() -> None:
    """`a.b`, `a_b` and `a: {b}` are one column."""
    row = _row(b'{"ts":1763726400000,"a.b":1,"a":{"b":2},"a_b":3}')
    assert row.values == {"a_b": "1"}
    assert row.errors == _told(
        BadValue("/a/b", "2", ValueReason.NAME_COLLISION),
        BadValue("/a_b", "3", ValueReason.NAME_COLLISION),
    )


@pytest.mark.parametrize(
    "name",
    [
        "_offset",
        "_OFFSET",
        "_topic",
        "_errors",
        "_overflow",
        "_key",
        "_op",
        "_file",
        "_pos",
        "_partition",
        "observed_timestamp",
    ],
)
def test_reserved_names_go_to_errors(name: str) -> None:
    """No record can forge a system column, whatever its spelling."""
    row = _row({**TIMED, name: {"x": 1} if name == "never" else "v"})
    assert row.errors == _told(BadValue(f"/{name}", "v", ValueReason.RESERVED_NAME))
    assert row.values == {}


@pytest.mark.parametrize("name", ["", "a\nb", "\x7f", "x" * (NAME_BYTES_MAX + 1), "é" * 128])
def test_unusable_names_go_to_errors(name: str) -> None:
    """A name that no engine could spell is kept with its value in `_errors`."""
    row = _row({**TIMED, name: "v"})
    assert [(e["value"], e["reason"]) for e in row.errors] == [("v", ValueReason.UNUSABLE_NAME)]


def test_value_of_the_wrong_type_goes_to_errors_whole() -> None:
    """A declared column keeps its type; the row is kept too."""
    row = _row({**TIMED, "n": {"a": 1}, "m": "x" * 5_000, "ok": 5}, _columns(m="long", ok="long"))
    assert row.values == {"n_a": "1", "ok": 5}
    assert row.errors == _told(BadValue("/m", "x" * 5_000, ValueReason.WRONG_TYPE))


def test_fields_past_the_limit_of_columns_go_to_overflow() -> None:
    """Known columns are filled, new ones are admitted up to the limit, what is beyond stays readable as
    JSON."""
    columns = _columns(columns_max=14, known="string")
    row = _row({**TIMED, "a": 1, "b": 2, "c": [3], "known": "k", "d": {"e": "x"}}, columns)
    assert row.values == {"a": "1", "b": "2", "known": "k"}
    assert row.overflow is not None
    assert orjson.loads(row.overflow) == {"c": [3], "d_e": "x"}
    assert set(columns.new) == {"a", "b"}


def test_no_errors_are_null_never_an_empty_list() -> None:
    """The value of `_errors` is NULL where there are none."""
    assert entries([]) is None
    assert entries([BadValue("/a", None, ValueReason.WRONG_TYPE)]) == [
        {"field": "/a", "value": None, "reason": "wrong_type"}
    ]
