"""Every message of every shipper of the data sets: time, severity and text, against simple rules per shipper
that share no code with the product."""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.support.conversion import converted, rows_of

pytestmark = pytest.mark.datasets

COUNTS = json.loads((Path(__file__).parent.parent / "golden" / "shippers" / "counts.json").read_text())
START = datetime(1970, 1, 1, tzinfo=UTC)
PINO = {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}
Told = tuple[datetime | None, str | None, str | None]  # None for the time: the Kafka timestamp


def _iso(text: str) -> datetime:
    """RFC 3339, cut to microseconds."""
    cut = re.sub(r"(\.\d{6})\d+", r"\1", text)
    whole, _, fraction = cut.rstrip("Z").partition(".")
    if cut.endswith("Z"):
        return datetime.fromisoformat(whole).replace(tzinfo=UTC) + timedelta(
            microseconds=int(fraction.ljust(6, "0") or 0)
        )
    return datetime.fromisoformat(cut)


def _micros(us: int) -> datetime:
    return START + timedelta(microseconds=us)


def _rsyslog(value: str) -> Told:
    stamp, _, rest = value.removesuffix("\n").split(" ", 2)
    tag, text = rest.split(" ", 1)
    assert re.fullmatch(r"\S+\[\d+\]:?|kernel:", tag)
    return _iso(stamp), None, text


def _syslog_ng(value: str) -> Told:
    stamp, _, rest = value.split(" ", 2)
    return _iso(stamp), None, rest.split(": ", 1)[1]


def _syslog_ng_json(value: str) -> Told:
    document = json.loads(value)
    return (
        datetime.strptime(f"2026 {document['DATE']} +0000", "%Y %b %d %H:%M:%S %z"),
        document["PRIORITY"],
        document["MESSAGE"],
    )


def _pino(value: str) -> Told:
    document = json.loads(value)
    return _micros(document["time"] * 1000), PINO[document["level"]], document["msg"]


def _winston(value: str) -> Told:
    document = json.loads(value)
    return (
        _iso(document["timestamp"]) if "timestamp" in document else None,
        document["level"],
        document.get("message"),
    )


def _fluent_bit(value: str) -> Told:
    document = json.loads(value, parse_float=str)
    seconds, _, fraction = document["@timestamp"].partition(".")
    return _micros(int(seconds) * 1_000_000 + int(fraction.ljust(6, "0"))), None, document["log"]


def _docker(value: str) -> Told:
    document = json.loads(value)
    return _iso(document["time"]), None, document["log"].removesuffix("\n")


def _json(time: str, severity: str | None, text: str) -> Callable[[str], Told]:
    def rule(value: str) -> Told:
        document = json.loads(value)
        return _iso(document[time]), None if severity is None else document[severity], document[text]

    return rule


RULES: dict[str, Callable[[str], Told]] = {
    "rsyslog-omkafka": _rsyslog,
    "rsyslog-omkafka-json": _json("@timestamp", "severity", "message"),
    "syslog-ng-kafka-c": _syslog_ng,
    "syslog-ng-kafka-c-json": _syslog_ng_json,
    "pino": _pino,
    "winston": _winston,
    "structlog": _json("timestamp", "level", "event"),
    "log4j2-ecs": _json("@timestamp", "log.level", "message"),
    "logstash-logback-encoder": _json("@timestamp", "level", "message"),
    "fluent-bit-out_kafka": _fluent_bit,
    "vector": _json("timestamp", None, "message"),
    "filebeat": _json("@timestamp", None, "message"),
    "docker-json-file": _docker,
}
OTLP = ("otlp-json", "otlp-json-collector", "otlp-proto")


def _messages(datasets: Path, shipper: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (datasets / "shippers" / f"{shipper}.jsonl").read_text().splitlines()
    ]


def _body(message: dict[str, Any]) -> bytes:
    return message["value"].encode() if "value" in message else base64.b64decode(message["value_base64"])


def _plain_value(value: dict[str, Any]) -> Any:
    """An AnyValue of OTLP/JSON as plain JSON."""
    if not value:
        return None
    ((kind, held),) = value.items()
    if kind == "kvlistValue":
        return {item["key"]: _plain_value(item["value"]) for item in held["values"]}
    if kind == "arrayValue":
        return [_plain_value(item) for item in held["values"]]
    return int(held) if kind == "intValue" else held


def _otlp_records(datasets: Path) -> list[list[dict[str, Any]]]:
    """Per message its log records, from the JSON that the SDK sent; the other encodings hold the same."""
    return [
        [
            record
            for of in json.loads(message["value"])["resourceLogs"]
            for scope in of["scopeLogs"]
            for record in scope["logRecords"]
        ]
        for message in _messages(datasets, "otlp-json")
    ]


def test_no_shipper_is_left_out(datasets: Path) -> None:
    """Every file of shippers has a rule here and its counts in the golden table."""
    files = {path.stem for path in (datasets / "shippers").glob("*.jsonl")}
    assert files == {*RULES, *OTLP} == set(COUNTS)


@pytest.mark.parametrize("shipper", [*RULES, *OTLP])
def test_counts_of_a_shipper(datasets: Path, shipper: str) -> None:
    """Records, severities, missing texts and entries of `_errors` are those of the golden table; nothing is
    rejected."""
    messages = _messages(datasets, shipper)
    result = converted(
        [_body(message) for message in messages], times_ms=[message["timestamp_ms"] for message in messages]
    )
    rows = rows_of(result).values()
    assert list(result.rejected) == []
    assert {
        "messages": len(messages),
        "records": len(rows),
        "severities": dict(sorted(Counter(row["severity"] for row in rows if "severity" in row).items())),
        "without_severity": sum("severity" not in row for row in rows),
        "without_message": sum("message" not in row for row in rows),
        "errors": dict(
            sorted(Counter(reason for row in rows for _, _, reason in row.get("_errors", [])).items())
        ),
    } == COUNTS[shipper]


@pytest.mark.parametrize("shipper", RULES)
def test_every_record_of_a_shipper(datasets: Path, shipper: str) -> None:
    """Each record has the time, the severity and the text that its shipper wrote."""
    messages = _messages(datasets, shipper)
    rows = rows_of(
        converted(
            [_body(message) for message in messages],
            times_ms=[message["timestamp_ms"] for message in messages],
        )
    )
    assert len(rows) == len(messages)
    for offset, message in enumerate(messages):
        time, severity, text = RULES[shipper](message["value"])
        row = rows[offset, 0]
        expected = (_micros(message["timestamp_ms"] * 1000) if time is None else time, severity, text)
        assert (row["timestamp"], row.get("severity"), row.get("message")) == expected, message["value"][:200]


@pytest.mark.parametrize("shipper", OTLP)
def test_every_record_of_otlp(datasets: Path, shipper: str) -> None:
    """Each log record of a batch is a row of its own, with the ids as text, its attributes, and those of its
    resource, whatever the encoding."""
    messages = _messages(datasets, shipper)
    rows = rows_of(
        converted(
            [_body(message) for message in messages],
            times_ms=[message["timestamp_ms"] for message in messages],
        )
    )
    expected = _otlp_records(datasets)
    assert sorted(rows) == [
        (offset, index) for offset, records in enumerate(expected) for index in range(len(records))
    ]
    for offset, records in enumerate(expected):
        for index, record in enumerate(records):
            row = rows[offset, index]
            body = _plain_value(record["body"])
            message = json.loads(row["message"]) if isinstance(body, dict) else row["message"]
            assert (row["timestamp"], row["severity"], message) == (
                _micros(int(record["timeUnixNano"]) // 1000),
                record["severityText"],
                body,
            )
            assert row["timestamp__string"] == record["timeUnixNano"], "the nanoseconds are kept beside"
            assert (row.get("trace_id"), row.get("span_id"), row.get("event_name")) == (
                record.get("traceId"),
                record.get("spanId"),
                record.get("eventName"),
            )
            assert row["tenant"] == "shop"
            for attribute in record["attributes"]:
                value = _plain_value(attribute["value"])
                if not isinstance(value, dict):
                    stored = row[attribute["key"].replace(".", "_").lower()]
                    assert stored == value if isinstance(value, str) else json.loads(stored) == value


def test_docker_parts_stay_rows(datasets: Path) -> None:
    """A line that docker split at 16 KiB is one row per part, each with its own text."""
    messages = _messages(datasets, "docker-json-file")
    rows = rows_of(
        converted(
            [_body(message) for message in messages],
            times_ms=[message["timestamp_ms"] for message in messages],
        )
    )
    parts = [
        offset
        for offset, message in enumerate(messages)
        if not json.loads(message["value"])["log"].endswith("\n")
    ]
    assert len(parts) == 1
    assert len(rows[parts[0], 0]["message"]) == 16 * 1024


def test_pino_keeps_the_number_of_its_level(datasets: Path) -> None:
    """The name of a numeric level is the severity, the number stays in its own column."""
    messages = _messages(datasets, "pino")
    rows = rows_of(
        converted(
            [_body(message) for message in messages],
            times_ms=[message["timestamp_ms"] for message in messages],
        )
    )
    assert all(
        rows[offset, 0]["level"] == str(json.loads(message["value"])["level"])
        for offset, message in enumerate(messages)
    )
