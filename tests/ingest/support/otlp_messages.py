"""OTLP messages whose log records have any attributes: as JSON, and as protobuf."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

VARINT, LENGTH = 0, 2


def otlp_json(records: Sequence[Mapping[str, Any]]) -> bytes:
    """A message with a log record for each, as the JSON encoding spells it."""
    logs = [{"attributes": _attributes(record)} for record in records]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}).encode()


def _attributes(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in members.items()]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    return {"kvlistValue": {"values": _attributes(value)}}


def otlp_protobuf(records: Sequence[Mapping[str, Any]]) -> bytes:
    """The same as an ExportLogsServiceRequest."""
    logs = b"".join(_held(2, _encoded_attributes(6, record)) for record in records)
    return _held(1, _held(2, logs))


def _encoded_attributes(number: int, members: Mapping[str, Any]) -> bytes:
    return b"".join(
        _held(number, _held(1, key.encode()) + _held(2, _encoded(value))) for key, value in members.items()
    )


def _encoded(value: Any) -> bytes:
    match value:
        case None:
            return b""
        case bool():
            return _varint(2 << 3 | VARINT) + _varint(value)
        case int():
            return _varint(3 << 3 | VARINT) + _varint(value % (1 << 64))
        case str():
            return _held(1, value.encode())
        case list():
            return _held(5, b"".join(_held(1, _encoded(item)) for item in value))
    return _held(6, _encoded_attributes(1, value))


def _held(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | LENGTH) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
