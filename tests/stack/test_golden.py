"""Messages with every kind of trouble, and the exact rows and dead letters that come of them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ingest.kafka.claim_check import read_aside
from lake.storage import open_storage
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


NOW = datetime.now(UTC).replace(microsecond=0)
KAFKA_MS = int(NOW.timestamp() * 1000)
ISO = (NOW - timedelta(seconds=90)).isoformat().replace("+00:00", "Z")
THEN = NOW - timedelta(seconds=90)
MISSING = ("timestamp", None, "missing_timestamp")

# Body, and what its row holds beside the system columns. Without "timestamp" the row has the message's.
JSON_CASES: list[tuple[str, dict[str, Any]]] = [
    (
        (
            f'{{"timestamp":"{ISO}","level":"WARN","msg":"snow ☃, nul \\u0000 '
            'end","t":true,"n":null,"spaces":"  '
            f'"}}'
        ),
        {
            "timestamp": THEN,
            "severity": "WARN",
            "message": "snow ☃, nul \x00 end",
            "t": "true",
            "spaces": "  ",
        },
    ),
    (
        (
            f'{{"time":"{ISO}","a":{{"B.c":1.10,"d":[1,{{"x":null, '
            f'"y":2.0}}],"e":{{}},"f":[]}},"big":123456789012345678901234567890,"exp":1E400,"neg":-0.0}}'
        ),
        {
            "timestamp": THEN,
            "a_b_c": "1.10",
            "a_d": '[1,{"x":null, "y":2.0}]',
            "a_e": "{}",
            "a_f": "[]",
            "big": "123456789012345678901234567890",
            "exp": "1E400",
            "neg": "-0.0",
        },
    ),
    ('{"case":"lower"}', {"case": "lower", "_errors": [MISSING]}),
    ('{"Case":1,"case":2}', {"case": "2", "_errors": [("/Case", "1", "name_collision"), MISSING]}),
    (
        f'{{"ts":"{ISO}","dup":1,"dup":{{"y":[2]}},"dup":"three"}}',
        {"timestamp": THEN, "dup": "1", "dup_y": "[2]", "_errors": [("/dup", "three", "duplicate_key")]},
    ),
    ('{"@timestamp":"yesterday"}', {"_errors": [("/@timestamp", "yesterday", "bad_timestamp")]}),
    (
        f'{{"time":"{ISO}","_offset":5,"_op":{{"z":1}},"_key":"k","observed_timestamp":"x","_file":[1]}}',
        {
            "timestamp": THEN,
            "_op_z": "1",
            "_errors": [
                ("/_offset", "5", "reserved_name"),
                ("/_key", "k", "reserved_name"),
                ("/observed_timestamp", "x", "reserved_name"),
                ("/_file", "[1]", "reserved_name"),
            ],
        },
    ),
    (
        f'{{"time":"{ISO}","s":"\\ud800x","ok":"\\ud83d\\ude00"}}',
        {"timestamp": THEN, "ok": "😀", "_errors": [("/s", '"\\ud800x"', "invalid_text")]},
    ),
    (f'{{"time":"{ISO}","nan":NaN,"inf":-Infinity}}', {"timestamp": THEN, "nan": "NaN", "inf": "-Infinity"}),
    (
        f'{{"time":"{ISO}","":1,"a\\u0001":2}}',
        {"timestamp": THEN, "_errors": [("/", "1", "unusable_name"), ("/a\x01", "2", "unusable_name")]},
    ),
    (
        f'{{"time":"{ISO[:-1]}.123456789Z","Straße":"ß","ŽLUŤ":1}}',
        {
            "timestamp": THEN + timedelta(microseconds=123456),
            "time": f"{ISO[:-1]}.123456789Z",
            "straße": "ß",
            "žluť": "1",
        },
    ),
    (f'\ufeff {{"time":{KAFKA_MS},"quote\\"d":"a"}}\r\n', {"timestamp": NOW, 'quote"d': "a"}),
    ("{}", {"_errors": [MISSING]}),
]
TEXT_CASES: list[tuple[str, dict[str, Any]]] = [
    ("plain é line\r\n", {"message": "plain é line"}),
    ("  {not json, but text\n", {"message": "  {not json, but text"}),
    ("one\ntwo\n\ttabs", {"message": "one\ntwo\n\ttabs"}),
    ("-", {"message": "-"}),
    ('{"time":1}', {"message": '{"time":1}'}),
]


def _rows(line: Line, tenant: str, stream: str = "logs") -> dict[int, dict[str, Any]]:
    """Rows of a table by offset, without what is NULL."""
    table = line.table(tenant, stream)
    names = [row[0] for row in line.sql(f"SHOW COLUMNS FROM {table}")]
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    found = [dict(zip(names, row, strict=True)) for row in line.sql(f"SELECT {quoted} FROM {table}")]
    return {
        row["_offset"]: {name: value for name, value in row.items() if value is not None} for row in found
    }


def _expected(case: dict[str, Any], topic: str, topic_id: str, offset: int) -> dict[str, Any]:
    system = {
        "timestamp": NOW,
        "observed_timestamp": NOW,
        "_topic": topic,
        "_topic_id": topic_id,
        "_topic_partition": 0,
        "_offset": offset,
        "_index": 0,
    }
    return system | case


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Rows inside `_errors` as plain tuples."""
    return {
        name: [tuple(entry) for entry in value] if name == "_errors" else value for name, value in row.items()
    }


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.prove)])
def test_json_and_text_become_exactly_these_rows(
    line: Line, ingester: Callable[..., Ingester], engine: str
) -> None:
    """Every value comes out of Trino exactly as it went into Kafka, and what has no column stands in
    `_errors`."""
    tenant = fresh("Golden ☃ ")
    json_topic, text_topic = line.kafka.topic(), line.kafka.topic()
    header = (("tenant", tenant.encode()),)
    line.kafka.produce(
        json_topic, [Record(body.encode(), headers=header, timestamp_ms=KAFKA_MS) for body, _ in JSON_CASES]
    )
    in_stream = (*header, ("stream", b"Text_Lines"))
    line.kafka.produce(
        text_topic,
        [Record(body.encode(), headers=in_stream, timestamp_ms=KAFKA_MS) for body, _ in TEXT_CASES],
    )
    running = ingester(
        [{"name": json_topic, "format": "auto"}, {"name": text_topic, "format": "text"}], engine=engine
    )
    line.wait_for_rows(running, tenant, len(JSON_CASES))
    line.wait_for_rows(running, tenant, len(TEXT_CASES), stream="Text_Lines")
    for topic, stream, cases in ((json_topic, "logs", JSON_CASES), (text_topic, "Text_Lines", TEXT_CASES)):
        rows, topic_id = _rows(line, tenant, stream), line.kafka.topic_id(topic)
        assert len(rows) == len(cases)
        for offset, (body, case) in enumerate(cases):
            assert _plain(rows[offset]) == _expected(case, topic, topic_id, offset), body
    assert line.kafka.dead_letters(running.dead_letter_topic) == {}
    with_errors = sum("_errors" in case for _, case in JSON_CASES)
    (counted,) = line.sql(
        "SELECT count(*), count(_errors), count_if(_errors IS NOT NULL AND cardinality(_errors) = 0) FROM "
        f"{line.table(tenant)}"
    )
    assert counted == (len(JSON_CASES), with_errors, 0), (
        "_errors is NULL, never an empty list, where a row has none"
    )
    assert running.stop() == 0


def _bad_messages(tenant: bytes) -> list[tuple[Record, str]]:
    """Messages that cannot be stored, each with its reason."""
    to = (("tenant", tenant),)
    late, ahead = (NOW - timedelta(days=4)).isoformat(), (NOW + timedelta(days=2)).isoformat()
    odd_headers = (
        ("tenant", b"other"),
        ("empty", b""),
        ("null", None),
        ("twice", b"1"),
        ("twice", b"\xff"),
        ("tenant", tenant),
    )
    bodies: list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...], str]] = [
        (b'{"half":', to, "undecodable"),
        (b"\xff\xfe not utf-8", odd_headers, "undecodable"),
        (b'{"a":"\xc3"}', to, "undecodable"),
        (b'{"a":1} {"b":2}', to, "undecodable"),
        (None, to, "empty"),
        (b"", to, "empty"),
        (b" \r\n", to, "empty"),
        (b'{"no":"tenant"}', (), "tenant_missing"),
        (b"text", (("tenant", b"\xff"),), "tenant_invalid"),
        (b'{"tenant":"' + b"x" * 101 + b'"}', (), "tenant_invalid"),
        (b"text", (("tenant", b"new\nline"),), "tenant_invalid"),
        (b"text", (*to, ("stream", b"\x00")), "stream_invalid"),
        (orjson.dumps({"time": late}), to, "too_late"),
        (orjson.dumps({"time": ahead}), to, "too_far_ahead"),
        (b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", to, "too_deep"),
        (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", to, "too_deep"),
        (b"x" * 200_001, to, "too_large"),
    ]
    return [
        (Record(body, b"\x00key\xff" if at % 2 else None, headers, KAFKA_MS), reason)
        for at, (body, headers, reason) in enumerate(bodies)
    ]


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.prove)])
def test_messages_that_cannot_be_stored_are_dead_letters_with_all_they_had(
    line: Line, ingester: Callable[..., Ingester], engine: str
) -> None:
    """A dead letter has the message's bytes, key and headers, its coordinates and a reason; its neighbours
    become rows, and no table is made for it."""
    tenant = fresh("dead-")
    topic = line.kafka.topic()
    bad = _bad_messages(tenant.encode())
    places = line.kafka.produce(topic, [record for record, _ in bad])
    running = ingester(topic, limits__record_bytes_max=200_000, engine=engine)
    line.wait_for_dead_letters(running, len(bad))
    assert not line.exists(tenant), "a table came of dead letters alone"
    line.kafka.produce(topic, [Record(b"good", headers=(("tenant", tenant.encode()),))])
    line.wait_for_rows(running, tenant, 1)
    letters = line.kafka.dead_letters(running.dead_letter_topic)
    topic_id = line.kafka.topic_id(topic)
    assert len(letters) == len(bad)
    for (record, reason), place in zip(bad, places, strict=True):
        letter = letters[topic_id, place.partition, place.offset]
        told = f"{reason} at offset {place.offset}"
        assert letter.facts["firn.reason"] == reason, told
        assert letter.facts["firn.detail"], told
        assert (letter.value, letter.key) == (record.value, record.key), told
        assert [h for h in letter.headers if not h[0].startswith("firn.")] == list(record.headers), told
        assert (letter.facts["firn.topic"], letter.facts["firn.timestamp_ms"]) == (topic, str(KAFKA_MS)), told
    assert line.sql(f"SELECT message FROM {line.table(tenant)}") == [("good",)]


def test_body_too_large_for_the_dead_letter_topic_is_kept_in_the_warehouse(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """A body that no topic would take lies in the warehouse, compressed, and its dead letter says where."""
    topic = line.kafka.topic(max_message_bytes=str(24 * 2**20))
    body = b"0123456789abcdef" * (2**16) * 17
    line.kafka.produce(topic, [Record(body, b"k", (("tenant", b"t"),))])
    running = ingester(topic)
    line.wait_for_dead_letters(running, 1)
    (letter,) = line.kafka.dead_letters(running.dead_letter_topic).values()
    assert letter.value is None
    assert letter.facts["firn.reason"] == "too_large"
    assert read_aside(open_storage(), letter.facts["firn.body"]) == body
