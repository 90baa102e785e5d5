"""Every way in which the demo's records go wrong, each a pure function from a good record to a bad one with
its new verdict.

A record that is to become a dead letter comes here with its tenant in the header (see `DemoRecord`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from infra.demo.draws import Draws
from infra.demo.moments import rfc3339_millis
from infra.demo.record import (
    JSON_TOPIC,
    STREAM_HEADER,
    TENANT_FIELD,
    TENANT_HEADER,
    DemoRecord,
    Expected,
    Headers,
)

# Above what Firn takes (`limits.record_bytes_max`, 4 MiB unless set otherwise), below what the demo's topics
# take.
OVERSIZED_BYTES = 5 * 1024 * 1024
NESTING_LEVELS = 1_000
# The names under which the demo's shapes carry the moment of the event.
TIME_FIELDS = ("timestamp", "@timestamp", "time")

_DAY_MS = 86_400_000
_NOT_A_TIME = ("yesterday", "not a time", "2026-13-41T25:61:00Z", "")
_UNUSABLE_TENANTS = (
    b"acme\x00shop",
    b"acme\nshop",
    b"glo\x1b[31mbex",
    b"\xff\xfe",
    b"",
    "ü".encode() * 51,
    b"t" * 101,
)

Spoil = Callable[[DemoRecord, Draws], DemoRecord]


@dataclass(frozen=True, slots=True)
class Badness:
    """One way to go wrong: how many cards it has in a deck of a hundred, and what is expected of such a
    record."""

    kind: str
    cards: int
    expected: Expected
    errors_expected: bool
    json_only: bool
    spoil: Spoil


def spoil(record: DemoRecord, badness: Badness, draws: Draws) -> DemoRecord:
    """The record gone wrong in that way, with kind and verdict set."""
    spoilt = badness.spoil(record, draws)
    return replace(
        spoilt, kind=badness.kind, expected=badness.expected, errors_expected=badness.errors_expected
    )


def _truncated(record: DemoRecord, draws: Draws) -> DemoRecord:
    size = len(record.value.rstrip())
    return replace(record, value=record.value[: int(size * (0.3 + 0.6 * draws.uniform()))])


def _invalid_utf8(record: DemoRecord, draws: Draws) -> DemoRecord:
    """A byte of Latin-1 inside the text: in JSON inside the first string value, so that the JSON around it
    stays whole."""
    at = record.value.index(b':"') + 2 if record.topic == JSON_TOPIC else draws.below(len(record.value))
    return replace(record, value=record.value[:at] + b"M\xfcnchen" + record.value[at:])


def _empty(record: DemoRecord, _draws: Draws) -> DemoRecord:
    return replace(record, value=b"")


def _without_tenant(record: DemoRecord, _draws: Draws) -> DemoRecord:
    if record.topic == JSON_TOPIC:
        record = _edited(record, lambda event: event.pop(TENANT_FIELD, None))
    return replace(record, headers=_without(record.headers, TENANT_HEADER), tenant=None)


def _tenant_invalid(record: DemoRecord, draws: Draws) -> DemoRecord:
    """Control characters, too long, empty, not UTF-8: in the header, or for JSON as often in the field."""
    unusable = draws.pick(_UNUSABLE_TENANTS)
    record = _without_tenant(record, draws)
    if record.topic == JSON_TOPIC and draws.uniform() < 0.5:
        return _edited(
            record,
            lambda event: event.update(
                {TENANT_FIELD: unusable.decode("latin-1") if unusable != b"\xff\xfe" else "tab\there"}
            ),
        )
    return replace(record, headers=(*record.headers, (TENANT_HEADER, unusable)))


def _stream_invalid(record: DemoRecord, _draws: Draws) -> DemoRecord:
    return replace(
        record, headers=(*_without(record.headers, STREAM_HEADER), (STREAM_HEADER, b"access\x07log"))
    )


def _too_late(record: DemoRecord, draws: Draws) -> DemoRecord:
    """Between 3.5 and 30 days before its own Kafka timestamp."""
    return _at(record, record.timestamp_ms - int((3.5 + 26.5 * draws.uniform()) * _DAY_MS))


def _too_far_ahead(record: DemoRecord, draws: Draws) -> DemoRecord:
    """Between 2 and 400 days after its own Kafka timestamp, as a machine with a wrong clock sends it."""
    return _at(record, record.timestamp_ms + int((2.0 + 398.0 * draws.uniform()) * _DAY_MS))


def _too_deep(record: DemoRecord, _draws: Draws) -> DemoRecord:
    nested = b'{"a":' * NESTING_LEVELS + b"1" + b"}" * NESTING_LEVELS
    return replace(record, value=record.value.rstrip()[:-1] + b',"nested":' + nested + b"}")


def _oversized(record: DemoRecord, draws: Draws) -> DemoRecord:
    """Five mebibytes in one record: a dump that somebody logged."""
    dump = draws.hex(4_096) * (OVERSIZED_BYTES // 4_096)
    if record.topic == JSON_TOPIC:
        return _edited(record, lambda event: event.update({"dump": dump}))
    return replace(record, value=record.value + b" " + dump.encode())


def _timestamp_invalid(record: DemoRecord, draws: Draws) -> DemoRecord:
    return _edited(record, lambda event: event.update({_time_field(event): draws.pick(_NOT_A_TIME)}))


def _timestamp_missing(record: DemoRecord, _draws: Draws) -> DemoRecord:
    return _edited(record, lambda event: event.pop(_time_field(event)))


def _name_collision(record: DemoRecord, draws: Draws) -> DemoRecord:
    """Two spellings that fold to one column, in one record."""
    return _edited(
        record, lambda event: event.update({"sessionId": draws.hex(8), "sessionid": draws.below(1_000)})
    )


def _reserved_name(record: DemoRecord, draws: Draws) -> DemoRecord:
    return _edited(record, lambda event: event.update({"_offset": draws.below(10**6)}))


BADNESSES = (
    Badness("truncated_json", 14, "dead_letter", False, True, _truncated),
    Badness("invalid_utf8", 8, "dead_letter", False, False, _invalid_utf8),
    Badness("empty", 6, "dead_letter", False, False, _empty),
    Badness("tenant_missing", 10, "dead_letter", False, False, _without_tenant),
    Badness("tenant_invalid", 8, "dead_letter", False, False, _tenant_invalid),
    Badness("stream_invalid", 4, "dead_letter", False, False, _stream_invalid),
    Badness("too_late", 10, "dead_letter", False, True, _too_late),
    Badness("too_far_ahead", 4, "dead_letter", False, True, _too_far_ahead),
    Badness("too_deep", 4, "dead_letter", False, True, _too_deep),
    Badness("oversized", 1, "dead_letter", False, False, _oversized),
    Badness("timestamp_invalid", 12, "row", True, True, _timestamp_invalid),
    Badness("timestamp_missing", 9, "row", True, True, _timestamp_missing),
    Badness("name_collision", 6, "row", True, True, _name_collision),
    Badness("reserved_name", 4, "row", True, True, _reserved_name),
)


def _edited(record: DemoRecord, edit: Callable[[dict[str, Any]], object]) -> DemoRecord:
    event = orjson.loads(record.value)
    edit(event)
    return replace(record, value=orjson.dumps(event))


def _time_field(event: dict[str, Any]) -> str:
    return next(name for name in TIME_FIELDS if name in event)


def _at(record: DemoRecord, at_ms: int) -> DemoRecord:
    return _edited(record, lambda event: event.update({_time_field(event): rfc3339_millis(at_ms)}))


def _without(headers: Headers, name: str) -> Headers:
    return tuple(header for header in headers if header[0] != name)
