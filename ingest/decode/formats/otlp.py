"""OpenTelemetry logs (OTLP): a message carries many records, each below a scope below a resource; every
record becomes one flat JSON object.

`timestamp` is `timeUnixNano`, else `observedTimeUnixNano`; `severity` is `severityText`, else the short name
of `severityNumber`; `message` is the body (its JSON text, where it is not text). Attributes of the record,
and those of its resource, keep their names; one called like a field of the record itself gets `attributes.`
or `resource.` in front, and so does one of the resource that the record has too. Ids stay text. What equals
the default of its type is absent. Sources: opentelemetry-proto, `logs/v1/logs.proto`; the OTLP specification,
"JSON Protobuf Encoding".
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ingest.decode.formats.batch_format import Batch, BatchFormat
from ingest.decode.formats.json_object import BLANKS, Json, is_text
from ingest.decode.formats.rejected_record import RejectedRecord
from lake.errors import Reason, Rejected
from lake.log_schema import fold
from lake.short_texts import kept_of_short_texts

ROOT = "resourceLogs"
ROOT_IN_PROTO = "resource_logs"
# Where the one key of a message has to stand, generously.
_ROOT_WITHIN = 256
_ROOT_BYTES, _ROOT_IN_PROTO_BYTES = ROOT.encode(), ROOT_IN_PROTO.encode()
_SNAKE = re.compile(r"_([a-z])")
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_OWN = frozenset(
    (
        *(
            "timestamp",
            "severity",
            "message",
            "trace_id",
            "span_id",
            "flags",
            "event_name",
            "severity_number",
            "observed_time_unix_nano",
        ),
        *("dropped_attributes_count", "scope_name", "scope_version"),
    )
)
_RECORD_FIELDS = frozenset(
    (
        *(
            "timeUnixNano",
            "observedTimeUnixNano",
            "severityNumber",
            "severityText",
            "body",
            "attributes",
            "droppedAttributesCount",
        ),
        *("flags", "traceId", "spanId", "eventName"),
    )
)
_number = re.compile(r"-?\d{1,20}", re.ASCII).fullmatch
_double = re.compile(r"-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,5})?", re.ASCII).fullmatch


class MalformedError(ValueError):
    """A part is not what OTLP says."""


class Encoding(NamedTuple):
    """What differs between JSON and protobuf: how a log record is read from what its scope holds, and the
    bytes it came in."""

    read: Callable[[Any], Mapping[str, Any]]
    own_bytes: Callable[[Any], bytes]


class Context(NamedTuple):
    """What all records of one scope share: members as (column, key, JSON text)."""

    resource: Sequence[tuple[str, str, str]]
    scope: Sequence[str]


def read_otlp_json(value: bytes, depth_max: int) -> Sequence[bytes | RejectedRecord] | Rejected | None:
    """The records of a message of OTLP/JSON, each as one flat JSON object; None where it is anything else."""
    head = value[:_ROOT_WITHIN]
    if _ROOT_BYTES not in head and _ROOT_IN_PROTO_BYTES not in head:
        return None
    try:
        text = value.decode().strip(BLANKS)
        document = json.loads(
            text, parse_int=Json, parse_float=Json, parse_constant=Json, object_pairs_hook=_object
        )
    except (ValueError, RecursionError):  # not UTF-8 is a ValueError, too
        return None
    if not isinstance(document, dict) or list(document) != [ROOT] or not isinstance(document[ROOT], list):
        return None
    return records(
        document,
        Encoding(_as_object, lambda record: plain_text(record).encode("utf-8", "backslashreplace")),
        depth_max,
    )


def records(
    document: Mapping[str, Any], encoding: Encoding, depth_max: int
) -> Sequence[bytes | RejectedRecord] | Rejected:
    """The records of an export request, given as its JSON mapping with all numbers as `Json`."""
    found: list[bytes | RejectedRecord] = []
    try:
        for context, record in _walk(document, depth_max):
            found.append(_one(len(found), context, record, encoding, depth_max))
    except (MalformedError, RecursionError) as error:
        return Rejected(Reason.UNDECODABLE, f"not OTLP: {error or 'nested too deep'}")
    return found or Rejected(Reason.EMPTY, "the OTLP message carries no log record")


def _walk(document: Mapping[str, Any], depth_max: int) -> Iterator[tuple[Context, Any]]:
    for of_resource in map(_as_object, _as_list(document[ROOT])):
        resource = _described(of_resource, "resource", "resource.", depth_max)
        for of_scope in map(_as_object, _as_list(of_resource.get("scopeLogs"))):
            described = _described(of_scope, "scope", "scope.", depth_max)
            context = Context(resource, [f"{_quoted(key)}:{text}" for _, key, text in described])
            for record in _as_list(of_scope.get("logRecords")):
                yield context, record


def _described(
    holder: Mapping[str, Any], name: str, prefix: str, depth_max: int
) -> list[tuple[str, str, str]]:
    """The members that a resource or a scope gives to each of its records. Those of a scope are prefixed."""
    of = _as_object(holder.get(name) or {})
    members = _plain_members(of, ("attributes",)) + _plain_members(holder, (name, "scopeLogs", "logRecords"))
    texts = [(f"{prefix}{key}", plain_text(value)) for key, value in members]
    inner = "" if name == "resource" else prefix
    for key, text in _attributes(of.get("attributes"), depth_max):
        own = inner + key
        texts.append((prefix + own if _column(own) in _OWN else own, text))
    return [(_column(key), key, text) for key, text in texts]


def _plain_members(holder: Mapping[str, Any], others: Sequence[str]) -> list[tuple[str, Any]]:
    """The members but for the named ones, and for those that equal the default of their type."""
    return [(key, value) for key, value in holder.items() if key not in others and _says(value)]


def _one(
    index: int, context: Context, record: Any, encoding: Encoding, depth_max: int
) -> bytes | RejectedRecord:
    try:
        return ("{" + ",".join(_members(encoding.read(record), context, depth_max)) + "}").encode()
    except RecursionError:
        reason, detail = Reason.TOO_DEEP, f"nested deeper than {depth_max} levels"
    except ValueError as error:  # MalformedError, WireError
        reason, detail = Reason.UNDECODABLE, f"not an OTLP log record: {error}"
    return RejectedRecord(reason, detail, index, encoding.own_bytes(record))


def _members(record: Mapping[str, Any], context: Context, depth_max: int) -> Iterator[str]:
    observed, number = _integer(record, "observedTimeUnixNano"), _integer(record, "severityNumber")
    if (time := _integer(record, "timeUnixNano") or observed) is not None:
        yield f'"timestamp":{time}'
    if severity := _string(record, "severityText") or _level(number):
        yield f'"severity":{_text(severity)}'
    if (message := _body(record.get("body"), depth_max)) is not None:
        yield f'"message":{_text(message)}'
    named = (("trace_id", "traceId"), ("span_id", "spanId"), ("event_name", "eventName"))
    yield from (f'"{column}":{_text(value)}' for column, key in named if (value := _string(record, key)))
    flags, dropped = _integer(record, "flags"), _integer(record, "droppedAttributesCount")
    counted = (
        ("flags", flags),
        ("severity_number", number),
        ("observed_time_unix_nano", observed),
        ("dropped_attributes_count", dropped),
    )
    yield from (f'"{column}":{value}' for column, value in counted if value is not None)
    attributes = _attributes(record.get("attributes"), depth_max)
    taken = {_column(key) for key, _ in attributes}
    yield from (
        f"{_quoted('attributes.' + key if _column(key) in _OWN else key)}:{text}" for key, text in attributes
    )
    yield from (
        f"{_quoted(key)}:{plain_text(value)}" for key, value in record.items() if key not in _RECORD_FIELDS
    )
    yield from (
        f"{_quoted('resource.' + key if column in taken else key)}:{text}"
        for column, key, text in context.resource
    )
    yield from context.scope


def _attributes(attributes: Any, depth_max: int) -> list[tuple[str, str]]:
    found = []
    for attribute in map(_as_object, _as_list(attributes)):
        key = attribute.get("key", "")
        if not isinstance(key, str) or isinstance(key, Json) or attribute.keys() - {"key", "value"}:
            raise MalformedError(f"an attribute is {plain_text(attribute)[:80]}")
        found.append((key, _value_text(attribute.get("value"), depth_max)))
    return found


def _body(body: Any, depth_max: int) -> str | None:
    """The text of a body: a string as it is, anything else as its JSON text."""
    if not body:
        return None
    if (
        isinstance(body, dict)
        and isinstance(text := body.get("stringValue"), str)
        and len(body) == 1
        and not isinstance(text, Json)
    ):
        return text
    return _value_text(body, depth_max)


def _value_text(value: Any, levels: int) -> str:
    """The JSON text of an AnyValue. Raises MalformedError."""
    if levels <= 0:
        raise RecursionError
    if not value and isinstance(value, dict | None):
        return "null"
    if not isinstance(value, dict) or len(value) != 1:
        raise MalformedError(f"a value is {plain_text(value)[:80]}")
    ((kind, held),) = value.items()
    if kind == "stringValue" and isinstance(held, str) and not isinstance(held, Json):
        return _text(held)
    if kind == "boolValue" and isinstance(held, bool):
        return "true" if held else "false"
    if kind == "intValue" and isinstance(held, str) and _double(held):
        return str(held)
    if kind == "doubleValue" and isinstance(held, str):
        return str(held) if _double(held) else _text(str(held))
    if kind == "bytesValue" and isinstance(held, str):
        return _text(held)
    if kind == "arrayValue":
        return (
            "["
            + ",".join(
                _value_text(item, levels - 1) for item in _as_list(_as_object(held or {}).get("values"))
            )
            + "]"
        )
    if kind == "kvlistValue":
        return (
            "{"
            + ",".join(
                f"{_quoted(key)}:{text}"
                for key, text in _attributes(_as_object(held or {}).get("values"), levels - 1)
            )
            + "}"
        )
    raise MalformedError(f"a value is {plain_text(value)[:80]}")


def _integer(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not _number(value):
        raise MalformedError(f"{key} is {plain_text(value)[:80]}")
    return None if value.strip("-0") == "" else str(value)


def _string(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, str) or isinstance(value, Json)):
        raise MalformedError(f"{key} is {plain_text(value)[:80]}")
    return value


def _level(number: str | None) -> str | None:
    """The short name of a severity number: 1-4 TRACE, TRACE2, ... 21-24 FATAL, ..."""
    if number is None or not 1 <= int(number) <= 24:
        return None
    step = (int(number) - 1) % 4
    return f"{_LEVELS[(int(number) - 1) // 4]}{step + 1 if step else ''}"


def _says(value: Any) -> bool:
    return bool(value) and value != "0"


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedError(f"{plain_text(value)[:80]} stands where a list belongs")
    return value


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError(f"{plain_text(value)[:80]} stands where an object belongs")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Field names may be spelled as in the .proto file; every key of the document is one.
    found = {
        _SNAKE.sub(lambda match: match[1].upper(), key) if "_" in key else key: value for key, value in pairs
    }
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def plain_text(value: Any) -> str:
    """The JSON text of a parsed document whose numbers are `Json`."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{plain_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(plain_text, value)) + "]"
    if isinstance(value, bytes):
        return _text(value.hex())
    if isinstance(value, Json):
        return str(value)
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if is_text(quoted) else json.dumps(value)


@kept_of_short_texts(16_384)
def _quoted(key: str) -> str:
    return _text(key)


@kept_of_short_texts(16_384)
def _column(key: str) -> str:
    return fold(key.replace(".", "_"))


def _read(value: bytes, depth_max: int, surely: bool) -> Batch | Rejected | None:  # noqa: ARG001 - every reader gets it
    found = read_otlp_json(value, depth_max)
    return found if found is None or isinstance(found, Rejected) else Batch(OTLP_JSON.title, found)


OTLP_JSON = BatchFormat("OTLP, JSON", b"{", _read, roots=(ROOT, ROOT_IN_PROTO))
