"""What comes as a batch, as OTLP, as a line of a known format, or as plain nonsense, and the rows and dead
letters that come of it."""

import json
import os
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.convert.terms import TimeLimits
from ingest.convert.work import ConverterLimits
from ingest.decode.formats.rejected_record import RejectedRecord
from tests.ingest.support.conversion import ANY_TIME, converted, fields_of, rows_of, without_core
from tests.ingest.support.definition import check

NOW = "2026-11-20T21:26:40+00:00"
AT = '"time":"2026-11-20T21:00:00Z"'
THEN = "2026-11-20T21:00:00+00:00"
TAIL = {"referer": "http://a/", "user_agent": 'Mozilla "5.0"'.replace('"', '\\"')}


def test_ndjson_gives_a_row_per_line_and_a_dead_letter_per_bad_line() -> None:
    """The lines of a batch are numbered; a bad one is rejected alone, with its number and its own bytes."""
    result = converted([b'{"a":1}\n\n{"a":2}\r\n{"a":\noops\n{"a":5}', b'{"a":"alone"}'])
    rows = rows_of(result)
    assert {at: row["a"] for at, row in rows.items()} == {
        (0, 0): "1",
        (0, 1): "2",
        (0, 4): "5",
        (1, 0): "alone",
    }
    bad = {(place, one.index): one.value for place, one in result.rejected if isinstance(one, RejectedRecord)}
    assert bad == {(0, 2): b'{"a":', (0, 3): b"oops"}
    assert len(result.rejected) == 2


@pytest.mark.parametrize("text", ['{\n"a":1,\n"b":{}\n}\n', '{\n  "a": 1,\n  "b": {}\n}'])
def test_one_object_over_several_lines_is_one_record(text: str) -> None:
    """Line breaks inside an object make no batch."""
    assert fields_of(text)["a"] == "1"


def test_a_broken_object_over_several_lines_is_one_dead_letter() -> None:
    """Where no line is an object by itself the message is rejected as a whole."""
    result = converted([b'{\n  "a": 1,\n  "b": \n}'])
    assert [(place, type(one).__name__, one.reason.value) for place, one in result.rejected] == [
        (0, "Rejected", "undecodable")
    ]


def test_an_array_of_objects_gives_a_row_each() -> None:
    """Items keep their spelling; one that is no object is rejected alone."""
    result = converted([b'[{"a":1.10}, 5,\n{"a":NaN}, null]'])
    assert {at: row["a"] for at, row in rows_of(result).items()} == {(0, 0): "1.10", (0, 2): "NaN"}
    assert [(one.index, one.value) for _, one in result.rejected if isinstance(one, RejectedRecord)] == [
        (1, b"5"),
        (3, b"null"),
    ]


@pytest.mark.parametrize("text", ["[INFO] started [ok]", "[1,2]", "[]", "[a]"])
def test_a_line_in_brackets_stays_a_line(text: str) -> None:
    """Only an array that holds an object is a batch, unless the topic holds nothing but JSON."""
    assert fields_of(text) == {"timestamp": NOW, "message": text}


def test_late_members_of_a_batch_are_rejected_alone() -> None:
    """Lateness is judged per record."""
    limits = ConverterLimits(100, 1_000, TimeLimits(3_600_000_000, 3_600_000_000))
    result = converted([f'{{{AT}}}\n{{"time":"2020-01-01T00:00:00Z"}}'.encode()], limits=limits)
    assert list(rows_of(result)) == [(0, 0)]
    assert [
        (one.reason.value, one.index) for _, one in result.rejected if isinstance(one, RejectedRecord)
    ] == [("too_late", 1)]


OTLP: dict[str, Any] = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": "service.name", "value": {"stringValue": "pay"}},
                    {"key": "zone", "value": {"stringValue": "r"}},
                ]
            },
            "scopeLogs": [
                {
                    "scope": {"name": "lib"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1795209600000000000",
                            "observedTimeUnixNano": "1795209601000000000",
                            "severityNumber": 10,
                            "body": {"kvlistValue": {"values": [{"key": "n", "value": {"intValue": "7"}}]}},
                            "attributes": [
                                {"key": "message", "value": {"stringValue": "m"}},
                                {"key": "zone", "value": {"boolValue": True}},
                                {
                                    "key": "list",
                                    "value": {"arrayValue": {"values": [{"doubleValue": 1.5}, {}]}},
                                },
                            ],
                            "traceId": "0af7651916cd43dd8448eb211c80319c",
                        },
                        {
                            "observedTimeUnixNano": "1795209601000000000",
                            "body": {"stringValue": "late"},
                            "severityText": "WARN",
                            "severityNumber": 9,
                        },
                        {"body": {"stringValue": 5}},
                    ],
                }
            ],
        }
    ]
}


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _held(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _request(*records: bytes) -> bytes:
    attribute = _held(1, _held(1, b"service.name") + _held(2, _held(1, b"pay")))
    return _held(
        1,
        _held(1, attribute)
        + _held(2, _held(1, _held(1, b"lib")) + b"".join(_held(2, record) for record in records)),
    )


def test_otlp_json_gives_a_flat_row_per_log_record() -> None:
    """Attributes keep their names; those that a record's own fields have, or that its resource shares with
    it, get a prefix."""
    result = converted([json.dumps(OTLP).encode()])
    rows = rows_of(result)
    first = rows[0, 0]
    assert first["timestamp"].isoformat() == THEN.replace("21:00", "21:20")
    expected = {
        "severity": "INFO2",
        "message": '{"n":7}',
        "attributes_message": "m",
        "zone": "true",
        "resource_zone": "r",
        "list": "[1.5,null]",
        "service_name": "pay",
        "scope_name": "lib",
        "severity_number": "10",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    assert {name: first.get(name) for name in expected} == expected
    assert (rows[0, 1]["timestamp"].isoformat(), rows[0, 1]["severity"], rows[0, 1]["message"]) == (
        "2026-11-20T21:20:01+00:00",
        "WARN",
        "late",
    )
    assert [one.index for _, one in result.rejected if isinstance(one, RejectedRecord)] == [2]


@pytest.mark.parametrize("form", ["auto", "otlp_proto"])
def test_otlp_protobuf_gives_a_row_per_log_record(form: Any) -> None:
    """Numbers, ids and negative integers come as they are; a broken record is rejected alone, with its
    bytes."""
    amount = _held(6, _held(1, b"amount") + _held(2, b"\x18" + _varint((1 << 64) - 5)))
    good = (
        b"\x09"
        + struct.pack("<Q", 1_795_208_400_000_000_000)
        + b"\x10\x09"
        + _held(5, _held(1, "köln".encode()))
        + amount
        + _held(9, bytes(range(16)))
    )
    bad = _held(3, b"\xff\xfe")
    result = converted([_request(good, bad)], form)
    row = rows_of(result)[0, 0]
    told = (
        row["timestamp"].isoformat(),
        row["severity"],
        row["message"],
        row["amount"],
        row["trace_id"],
        row["service_name"],
    )
    assert told == (THEN, "INFO", "köln", "-5", bytes(range(16)).hex(), "pay")
    assert [(one.index, one.value) for _, one in result.rejected if isinstance(one, RejectedRecord)] == [
        (1, bad)
    ]


def test_what_is_no_otlp_is_rejected_on_a_topic_of_otlp_only() -> None:
    """A topic that says it holds OTLP holds nothing else; elsewhere the same bytes are a line."""
    assert [one.reason.value for _, one in converted([b"\nhello"], "otlp_proto").rejected] == ["undecodable"]
    assert fields_of(b"\nhello")["message"] == "\nhello"


SYSLOG = {"host": "web", "app_name": "sshd", "proc_id": "12"}
LINES: list[tuple[str, dict[str, Any]]] = [
    (
        "<34>Nov 20 21:00:00 web sshd[12]: hi",
        {"timestamp": THEN, "severity": "crit", "facility": "auth", "message": "hi", **SYSLOG},
    ),
    ("Nov 20 21:00:00 web sshd[12]:  two blanks", {"timestamp": THEN, "message": " two blanks", **SYSLOG}),
    (
        "Jan  2 03:04:05 web sshd[12]: hi",
        {"timestamp": "2027-01-02T03:04:05+00:00", "message": "hi", **SYSLOG},
    ),
    ("2026-11-20T21:00:00.000Z web sshd[12] hi\n", {"timestamp": THEN, "message": "hi", **SYSLOG}),
    ("2026-11-20T22:00:00+01:00 web sshd[12]: a\nb", {"timestamp": THEN, "message": "a\nb", **SYSLOG}),
    (
        '<165>1 2026-11-20T21:00:00Z web sshd 12 ID7 [x@1 a="1" b="q\\"\\]"][alone] \ufeffhi',
        {
            "timestamp": THEN,
            "severity": "notice",
            "facility": "local4",
            "message": "hi",
            "msg_id": "ID7",
            "x@1_a": "1",
            "alone": "",
            **SYSLOG,
        },
    ),
    (
        '1.2.3.4 - bob [20/Nov/2026:22:00:00 +0100] "GET /x HTTP/1.1" 200 12',
        {
            "timestamp": THEN,
            "message": "GET /x HTTP/1.1",
            "client_ip": "1.2.3.4",
            "user": "bob",
            "method": "GET",
            "path": "/x",
            "protocol": "HTTP/1.1",
            "status": "200",
            "size": "12",
        },
    ),
    (
        '::1 - - [20/Nov/2026:21:00:00 +0000] "\\x16\\x03" 400 - "http://a/" "Mozilla \\"5.0\\""',
        {"timestamp": THEN, "message": "\\x16\\x03", "client_ip": "::1", "status": "400", **TAIL},
    ),
]
PLAIN = [
    "just text",
    "<34>Feb 30 21:00:00 web sshd[12]: no such day",
    "<192>Nov 20 21:00:00 web sshd: no such priority",
    "2026-13-20T21:00:00Z web sshd[12]: no such month",
    "2026-11-20T21:00:00Z INFO main: a level is no host",
    "May 12 10:00:00 something happened",
    '1.2.3.4 - - [31/Feb/2026:21:00:00 +0000] "GET / HTTP/1.1" 200 1',
    '1.2.3.4 - - [20/Nov/2026:21:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "unclosed',
    '<34>1 2026-11-20T21:00:00Z web a - - [broken x="1] hi',
    "  at com.example.Main",
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines_of_known_formats_become_fields(line: str, expected: dict[str, Any]) -> None:
    """Time, severity, text and fields of a line."""
    fields = fields_of(line)
    assert {name: fields.get(name) for name in expected} == expected
    check([line.encode()])


@pytest.mark.parametrize("line", PLAIN)
def test_other_lines_stay_one_message(line: str) -> None:
    """What does not match a format wholly is a message at its Kafka timestamp, without an entry in
    _errors."""
    assert fields_of(line) == {"timestamp": NOW, "message": line}
    check([line.encode()])


def test_times_without_a_zone_are_in_the_zone_of_the_topic() -> None:
    """Syslog and ISO times that name no zone are local to the topic."""
    for body in (
        "Nov 20 22:00:00 web sshd[12]: x",
        '{"DATE":"Nov 20 22:00:00"}',
        '{"time":"2026-11-20 22:00:00"}',
    ):
        assert fields_of(body, time_zone="Europe/Berlin")["timestamp"] == THEN


SHIPPERS: list[tuple[str, tuple[str, str | None, str | None]]] = [
    ('{"level":50,"time":1795208400000,"msg":"x"}', (THEN, "ERROR", "x")),
    ('{"level":"warn","message":"x","timestamp":"2026-11-20T21:00:00.000Z"}', (THEN, "warn", "x")),
    ('{"event": "x", "level": "info", "timestamp": "2026-11-20T21:00:00.000000Z"}', (THEN, "info", "x")),
    ('{"@timestamp":"2026-11-20T21:00:00.000Z","log.level":"INFO","message":"x"}', (THEN, "INFO", "x")),
    (
        '{"@timestamp":"2026-11-20T21:00:00.0Z","@version":"1","message":"x","level":"INFO","level_value":20000}',
        (THEN, "INFO", "x"),
    ),
    ('{"@timestamp":1795208400.000000,"log":"x","time":"2026-11-20T21:00:00.000000001Z"}', (THEN, None, "x")),
    ('{"message":"x","source_type":"file","timestamp":"2026-11-20T21:00:00.000000001Z"}', (THEN, None, "x")),
    ('{"@timestamp":"2026-11-20T21:00:00.000Z","log":{"offset":1},"message":"x"}', (THEN, None, "x")),
    ('{"log":"x\\n","stream":"stdout","time":"2026-11-20T21:00:00.000000001Z"}', (THEN, None, "x")),
    ('{"@timestamp":"2026-11-20T21:00:00+00:00", "severity":"err", "message":" x"}\n', (THEN, "err", " x")),
    ('{"PRIORITY":"crit","MESSAGE":"x","DATE":"Nov 20 21:00:00"}', (THEN, "crit", "x")),
]


@pytest.mark.parametrize(("body", "expected"), SHIPPERS)
def test_time_severity_and_text_under_the_names_of_shippers(
    body: str, expected: tuple[str, str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record in the shape of each shipper, with the core and without it."""
    stored = fields_of(body)
    assert (stored["timestamp"], stored.get("severity"), stored.get("message")) == expected
    without_core(monkeypatch)
    assert fields_of(body) == stored


def test_a_priority_that_is_no_word_of_syslog_is_a_field() -> None:
    """Tickets have priorities too."""
    bodies = [f'{{{AT},"priority":"{word}"}}'.encode() for word in ("high", "err", "high")]
    rows = rows_of(converted(bodies))
    assert [(row.get("priority"), row.get("severity")) for _, row in sorted(rows.items())] == [
        ("high", None),
        (None, "err"),
        ("high", None),
    ]


REJECTED = [
    (b"\xff\xfe", "undecodable"),
    (b'{"a":"\xc3"}', "undecodable"),
    (b'{"a":', "undecodable"),
    (b'[{"a":1},{"b":', "undecodable"),
    (b'{"a":1} {"b":2}', "undecodable"),
    (b" \r\n", "empty"),
    (b'{"a":' * 500 + b"1" + b"}" * 500, "too_deep"),
    (b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "too_deep"),
    (b'{"resourceLogs":[]}', "empty"),
]


@pytest.mark.parametrize(("body", "reason"), REJECTED)
def test_what_cannot_be_read_is_rejected_with_its_reason(body: bytes, reason: str) -> None:
    """A message that is nothing is rejected as a whole, and its neighbours are rows."""
    result = converted([b'{"ok":1}', body, b'{"ok":1}'])
    assert [(place, one.reason.value) for place, one in result.rejected] == [(1, reason)]
    assert sorted(rows_of(result)) == [(0, 0), (2, 0)]


NASTY: list[tuple[str, dict[str, Any]]] = [
    ('"a":1,"a":2', {"a": "1", "_errors": [("/a", "2", "duplicate_key")]}),
    ('"a":36893488147419103232', {"a": "36893488147419103232"}),
    ('"a":NaN,"b":-Infinity', {"a": "NaN", "b": "-Infinity"}),
    ('"a":"\\ud800"', {"_errors": [("/a", '"\\ud800"', "invalid_text")]}),
    ('"a":"x\\u0000y"', {"a": "x\0y"}),
    ('"":1', {"_errors": [("/", "1", "unusable_name")]}),
    ('"a.b":1,"ü":2,"_offset":3', {"a_b": "1", "ü": "2", "_errors": [("/_offset", "3", "reserved_name")]}),
    ('"Ab":1,"aB":2', {"ab": "1", "_errors": [("/aB", "2", "name_collision")]}),
    ('"a":null,"b":""', {"b": ""}),
]


@pytest.mark.parametrize(("members", "expected"), NASTY)
def test_nasty_members_are_kept_or_named(
    members: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost and nothing stops the line, by either path."""
    body = f"{{{AT},{members}}}"
    assert fields_of(body) == {"timestamp": THEN, **expected}
    without_core(monkeypatch)
    assert fields_of(body) == {"timestamp": THEN, **expected}


@pytest.mark.long
def test_ten_thousand_keys_fit_into_the_columns_and_the_overflow() -> None:
    """Past limits.columns_max fields go to _overflow, whole."""
    document = {f"k{n}": n for n in range(10_000)}
    row = fields_of(json.dumps(document), limits=ConverterLimits(100, 200, ANY_TIME))
    kept = {name: int(value) for name, value in row.items() if name.startswith("k")}
    assert kept | json.loads(row["_overflow"]) == document


@pytest.mark.parametrize(
    "body", ["0000-01-01T00:00:00Z", "2026-11-20T21Z", "9999-12-31T23:59:59.999999Z", "2026-11-20"]
)
def test_years_and_short_times_mean_the_same_on_both_paths(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time that one path reads the other reads too, as the same moment."""
    fast = fields_of(f'{{"@timestamp":"{body}"}}')
    without_core(monkeypatch)
    assert fields_of(f'{{"@timestamp":"{body}"}}') == fast
    assert ("_errors" in fast) == (body in ("0000-01-01T00:00:00Z", "2026-11-20"))


PIECES = st.sampled_from(
    [
        *(
            "<34>",
            "1 ",
            "Nov 20 21:00:00 ",
            "2026-11-20T21:00:00Z ",
            "2026-02-30T21:00:00.1234567Z ",
            "web ",
            "sshd",
            "[12]",
            ": ",
            " ",
            "- ",
            '[a b="1"] ',
        ),
        *(
            '1.2.3.4 - - [20/Nov/2026:21:00:00 +0000] "GET / HTTP/1.1" 200 1',
            ' "-" "x"',
            "é",
            "\x00",
            '"',
            '[app name="x"] ',
            "INFO ",
            "hi",
        ),
    ]
)
LINE_TEXTS = st.one_of(
    st.lists(PIECES, max_size=8).map("".join), st.sampled_from([line for line, _ in LINES] + PLAIN)
)


@pytest.mark.long
@given(st.lists(LINE_TEXTS, min_size=1, max_size=12), st.sampled_from(["UTC", "Asia/Kolkata"]))
@settings(max_examples=int(os.environ.get("FIRN_FUZZ_EXAMPLES", "80")), deadline=None)
@example(
    ["<34>", *["<34>Nov 20 21:00:00 web sshd[12]: hi"] * 2, "2026-13-20T21:00:00Z web sshd[12]: x", "<34>"],
    "UTC",
)
def test_lines_are_stored_as_defined(lines: list[str], time_zone: str) -> None:
    """Whole flushes of lines give, row by row, what the definition says."""
    limits = ConverterLimits(20, 24, TimeLimits(86_400_000_000, 86_400_000_000))
    check([line.encode() for line in lines if line], "text", time_zone=time_zone, limits=limits)


@pytest.mark.long
@given(st.binary(max_size=200))
@settings(max_examples=int(os.environ.get("FIRN_FUZZ_EXAMPLES", "80")), deadline=None)
def test_any_bytes_are_rows_or_rejected(body: bytes) -> None:
    """No bytes raise, in any form; each message ends as rows, dead letters, or both."""
    for form in ("auto", "json", "text", "otlp_proto"):
        for message in (b"\n" + body, b"[" + body, b"{" + body, body or b"x"):
            result = converted([message], form)
            assert len(rows_of(result)) + len(result.rejected) >= 1
