"""Input that breaks other sinks, all at once: every message is counted and can be found afterwards, and none
stops the line."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ingest.kafka.consumer import ANSWER_BYTES
from lake.catalog_client import TableName
from lake.tenant import to_identifier
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.raw_producer import produce_raw
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

BOTH_ENGINES = pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.prove)])

KAFKA_MS = int(datetime.now(UTC).timestamp()) * 1000
MANY_KEYS = 10_000
COLUMNS_MAX = 60
LARGE_BYTES = ANSWER_BYTES + 4 * 1024 * 1024  # of Kafka's answers more than is asked for
MANY = 1_000
Case = tuple[bytes | None, str | None, dict[str, Any]]  # body, reason of death, what the row holds


def _nested(levels: int, opening: bytes, closing: bytes) -> bytes:
    return b'{"a":' + opening * levels + b"1" * (opening != b"[") + closing * levels + b"}"


def _time(text: str) -> bytes:
    return orjson.dumps({"timestamp": text})


DEAD: list[Case] = [
    (None, "empty", {}),
    (b"", "empty", {}),
    (b"\r\n \t", "empty", {}),
    (b"\xff\xfeinvalid", "undecodable", {}),
    (b'{"a":"\xc3\x28"}', "undecodable", {}),
    (b"\xed\xa0\x80 a surrogate in UTF-8", "undecodable", {}),
    (b'{"broken":', "undecodable", {}),
    (b'{"a":1}}', "undecodable", {}),
    (b'[{"a":1},', "undecodable", {}),
    (_nested(500, b"[", b"]"), "too_deep", {}),
    (_nested(500, b'{"k":', b"}"), "too_deep", {}),
    (_nested(100_000, b"[", b"]"), "too_deep", {}),
    (b'{"blob":"' + b"x" * LARGE_BYTES + b'"}', "too_large", {}),
    (_time("9999-12-31T23:59:59Z"), "too_far_ahead", {}),
    (_time("0001-01-01T00:00:00Z"), "too_late", {}),
    (b'{"timestamp":-99999999999999}', "too_late", {}),
]
# Of messages of which not the body is nasty: key, headers, reason of death.
ENVELOPES: list[tuple[bytes, list[tuple[str, bytes]], str]] = [
    (b"k" * LARGE_BYTES, [("tenant", b"")], "tenant_missing"),
    (b"k", [("tenant", b"t" * LARGE_BYTES)], "tenant_invalid"),
    (b"k", [(f"h{n}", b"v" * (LARGE_BYTES // 64)) for n in range(64)], "tenant_missing"),
]
ROWS: list[Case] = [
    (b'{"dup":1,"dup":"two","dup":[3]}', None, {"dup": "1"}),
    (
        b'{"big":18446744073709551616,"small":-99999999999999999999,"exp":1e999}',
        None,
        {"big": "18446744073709551616", "exp": "1e999"},
    ),
    (b'{"digits":' + b"9" * 5_000 + b"}", None, {"digits": "9" * 5_000}),
    (b'{"n":NaN,"i":Infinity,"m":-Infinity}', None, {"n": "NaN", "i": "Infinity", "m": "-Infinity"}),
    (b'{"lone":"\\ud800","pair":"\\ud83d\\ude00"}', None, {"lone": None, "pair": "\U0001f600"}),
    (b'{"nul":"a\\u0000b","key\\u0000":1}', None, {"nul": "a\x00b"}),
    (b'{"":1,".":2,"_offset":3,"_file":4,"timestamp.":5}', None, {"_": "2"}),
    ('{"ключ":"значение","ＡＢ":"wide","e\u0301":1}'.encode(), None, {"ключ": "значение", "é": "1"}),
    (b'{"Case":"A","case":"B","CASE":"C"}', None, {}),
    (b'{"a.b":1,"a":{"b":2},"a_b":3}', None, {"a_b": "1"}),
    (_time("0000-00-00T00:00:00Z"), None, {}),
    (_time("0000-01-01T00:00:00Z"), None, {}),
    (_time("99999-01-01T00:00:00Z"), None, {}),
    (b'{"timestamp":1e400}', None, {}),
    (
        b"\x00\x01\x02 control characters in a line \x7f",
        None,
        {"message": "\x00\x01\x02 control characters in a line \x7f"},
    ),
    (b'"a string"', None, {"message": '"a string"'}),
    (b"null", None, {"message": "null"}),
    (b"[]", None, {"message": "[]"}),
    # The last, after the others are stored: it takes all columns that are left.
    (orjson.dumps({f"k{n}": n for n in range(MANY_KEYS)}), None, {"k0": "0"}),
]


@BOTH_ENGINES
def test_nasty_messages_become_rows_or_dead_letters_and_the_line_goes_on(line: Line, engine: str) -> None:
    """Each message is one row or one dead letter with the stated reason, sums and counters agree, the audit
    is clean, and what comes after is stored."""
    tenant, topic = fresh("nasty-"), line.kafka.topic(max_message_bytes=str(24 * 2**20))
    headers = (("tenant", tenant.encode()),)
    *records, wide = (Record(body, b"k", headers, KAFKA_MS) for body, _, _ in (*DEAD, *ROWS))
    line.kafka.produce(topic, records)
    ours = ToolLine(line, topic, limits__columns_max=COLUMNS_MAX, engine=engine)
    try:
        ours.ingester.start()
        ours.wait_until_stored(topic, {0: len(records)})
        line.kafka.produce(topic, [wide, Record(b'{"message":"after all that"}', None, headers, KAFKA_MS)])
        ours.wait_until_stored(topic, {0: len(records) + 2})
        letters = line.kafka.dead_letters(ours.ingester.dead_letter_topic)
        assert {offset: letter.facts["firn.reason"] for (_, _, offset), letter in letters.items()} == {
            at: reason for at, (_, reason, _) in enumerate(DEAD)
        }
        _check_rows(line, tenant)
        _check_counters(ours.ingester.metrics(), line, tenant)
        assert ours.audit() == {}
        assert (ours.audited["written"], ours.audited["dead_lettered"]) == (len(ROWS) + 1, len(DEAD))
    finally:
        ours.ingester.kill()


@BOTH_ENGINES
def test_messages_whose_keys_and_headers_are_nasty_become_dead_letters(line: Line, engine: str) -> None:
    """Names that are no UTF-8, keys and headers larger than any topic of ours takes: each is a letter that
    can be shown, and the line goes on."""
    tenant, topic = fresh("nasty-"), line.kafka.topic(max_message_bytes=str(24 * 2**20))
    good = Record(b'{"message":"after all that"}', b"k", (("tenant", tenant.encode()),), KAFKA_MS)
    line.kafka.produce(
        topic, [*(Record(b'{"a":1}', key, headers, KAFKA_MS) for key, headers, _ in ENVELOPES), good]
    )
    line.kafka.produce(topic, [good] * MANY)  # the interpreter treats what it has done often otherwise
    produce_raw(line.kafka.bootstrap_servers, topic, b'{"a":1}', (b"\xff\xfe", b"a header's name"))
    ours = ToolLine(line, topic, engine=engine)
    try:
        ours.ingester.start()
        ours.wait_until_stored(topic, {0: len(ENVELOPES) + MANY + 2})
        letters = [orjson.loads(text) for text in ours.run("dead-letters", "list", "--json").splitlines()]
        reasons = {at: reason for at, (_, _, reason) in enumerate(ENVELOPES)} | {
            len(ENVELOPES) + MANY + 1: "undecodable"
        }
        assert {letter["offset"]: letter["reason"] for letter in letters} == reasons
        shown = {letter["offset"]: ours.json("dead-letters", "show", letter["id"]) for letter in letters}
        for at, (key, headers, _) in enumerate(ENVELOPES):
            assert (shown[at]["value"], shown[at]["key"]) == ('{"a":1}', key.decode())
            assert [(each["name"], each["value"]) for each in shown[at]["headers"]] == [
                (name, value.decode()) for name, value in headers
            ]
        assert ours.audit() == {}
        assert (ours.audited["written"], ours.audited["dead_lettered"]) == (MANY + 1, len(ENVELOPES) + 1)
    finally:
        ours.ingester.kill()


def _check_rows(line: Line, tenant: str) -> None:
    table = line.table(tenant)
    names = [row[0] for row in line.sql(f"SHOW COLUMNS FROM {table}")]
    assert len(names) <= COLUMNS_MAX
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    rows = {
        row["_offset"] - len(DEAD): row
        for row in (dict(zip(names, row, strict=True)) for row in line.sql(f"SELECT {quoted} FROM {table}"))
    }
    assert sorted(rows) == list(range(len(ROWS) + 1))
    for at, (body, _, holds) in enumerate(ROWS):
        overflow = orjson.loads(rows[at]["_overflow"] or "{}")
        assert {name: rows[at].get(name, overflow.get(name)) for name in holds} == holds, (body or b"")[:80]
        assert rows[at]["timestamp"] == rows[at]["observed_timestamp"], "no usable time: the Kafka timestamp"
    wide = next(at for at, (body, _, _) in enumerate(ROWS) if b'"k9999"' in (body or b""))
    kept = {name: rows[wide][name] for name in names if re.fullmatch(r"k\d+", name)} | orjson.loads(
        rows[wide]["_overflow"]
    )
    assert {name: str(value) for name, value in kept.items()} == {f"k{n}": str(n) for n in range(MANY_KEYS)}


def _check_counters(metrics: str, line: Line, tenant: str) -> None:
    counted = {
        reason: float(value)
        for reason, value in re.findall(
            r'firn_ingest_records_dead_lettered_total\{reason="(\w+)"\} (\S+)', metrics
        )
    }
    assert {reason: count for reason, count in counted.items() if count} == dict(
        Counter(reason for _, reason, _ in DEAD)
    )
    ((with_errors,),) = line.sql(f"SELECT count(_errors) FROM {line.table(tenant)}")
    assert f"firn_ingest_rows_with_errors_total {float(with_errors)}" in metrics


def test_far_times_are_rows_where_they_are_accepted(line: Line, ingester: Callable[..., Any]) -> None:
    """From year 1 to year 9999 a time is stored to the microsecond and found again by it."""
    tenant, topic = fresh("far-"), line.kafka.topic()
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 14, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    times += [
        datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    texts = [f"{time.year:04}{time.strftime('-%m-%dT%H:%M:%S.%fZ')}" for time in times]
    line.kafka.produce(
        topic,
        [
            Record(orjson.dumps({"time": text, "n": at}), None, (("tenant", tenant.encode()),))
            for at, text in enumerate(texts)
        ],
    )
    running = ingester(topic, limits__late="accept")
    line.wait_for_rows(running, tenant, len(times))
    table = line.table(tenant)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    found: dict[str, int] = dict(
        line.sql(f"SELECT n, CAST(to_unixtime(date_trunc('second', timestamp)) AS bigint) FROM {table}")
    )
    assert found == {str(at): (time - epoch) // timedelta(seconds=1) for at, time in enumerate(times)}
    assert line.sql(f"SELECT n FROM {table} WHERE timestamp >= TIMESTAMP '9999-12-31 23:00:00 UTC'") == [
        ("4",)
    ]


def test_tenants_that_look_like_paths_or_are_too_long(line: Line, ingester: Callable[..., Any]) -> None:
    """`../x` is a tenant like any other, whose name never becomes a path; one of 300 characters is a dead
    letter."""
    topic, mark = line.kafka.topic(), fresh("")
    odd = [f"../{mark}", f"/{mark}/..", f"C:\\{mark}", f"{mark} or 1=1;--", f"{mark}%2e%2e", f"É{mark}☃"]
    tenants = [*odd, mark * 40, "a" * 300]
    line.kafka.produce(
        topic, [Record(b'{"message":"mine"}', None, (("tenant", tenant.encode()),)) for tenant in tenants]
    )
    running = ingester(topic)
    for tenant in odd:
        line.wait_for_rows(running, tenant, 1)
        assert line.sql(f"SELECT message, _offset FROM {line.table(tenant)}") == [("mine", odd.index(tenant))]
        location = line.catalog.load_table(TableName(to_identifier(tenant), "logs"))["metadata"]["location"]
        assert mark not in location
        assert ".." not in location
    line.wait_for_dead_letters(running, 2)
    letters = line.kafka.dead_letters(running.dead_letter_topic)
    assert {(offset, letter.facts["firn.reason"]) for (_, _, offset), letter in letters.items()} == {
        (6, "tenant_invalid"),
        (7, "tenant_invalid"),
    }
