"""Which table a message belongs to: rules per topic, the first that yields a name wins."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ingest.decoder import Batch, Form, Pairs, decode, may_be_batch, take_apart
from ingest.formats.json_object import is_text_value
from lake.errors import Reason, Rejected, SettingsError
from lake.settings import TopicSettings
from lake.tenant import TableId, TenantId, parse_stream, parse_tenant

DEFAULT_STREAM = "logs"
Headers = Sequence[tuple[str, bytes | None]]


class Envelope(NamedTuple):
    """What a rule may look at."""

    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None


Name = str | bytes | Rejected | None  # Rejected: the message names several
Rule = Callable[[Envelope], Name]
# A record is looked into as deep as any setting allows; whether it is too deep is told when it is decoded.
DEPTH_MAX = 200


class Router:
    """Routes the messages of one topic."""

    def __init__(self, topic: TopicSettings) -> None:
        self._tenant = _first([_rule(rule, topic, Reason.TENANT_INVALID) for rule in topic.tenant])
        self._stream = _first([_rule(rule, topic, Reason.STREAM_INVALID) for rule in topic.stream])
        self._described = ", ".join(topic.tenant) or "none"

    def route(self, envelope: Envelope) -> TableId | Rejected:
        """The table of a message, or why it has none."""
        tenant = self._tenant(envelope)
        if not tenant:
            return Rejected(Reason.TENANT_MISSING, f"no rule of the topic yields a tenant ({self._described})")
        return _table(tenant, self._stream(envelope) or DEFAULT_STREAM)


@lru_cache(maxsize=65_536)
def _table(raw_tenant: str | bytes | Rejected, raw_stream: str | bytes | Rejected) -> TableId | Rejected:
    tenant = raw_tenant if isinstance(raw_tenant, Rejected) else parse_tenant(raw_tenant)
    if not isinstance(tenant, TenantId):
        return tenant
    stream = raw_stream if isinstance(raw_stream, Rejected) else parse_stream(raw_stream)
    return TableId(tenant, stream) if isinstance(stream, str) else stream


def _first(rules: Sequence[Rule]) -> Rule:
    """The first name that a rule yields."""
    if len(rules) == 1:
        return rules[0]

    def first(envelope: Envelope) -> Name:
        for rule in rules:
            if name := rule(envelope):
                return name
        return None

    return first


def _rule(text: str, topic: TopicSettings, mixed: Reason) -> Rule:
    """A rule by its text. `mixed`: the reason where the records of one message name different values."""
    kind, _, argument = text.partition(":")
    if kind == "header" and argument:
        return _header_rule(argument)
    if kind == "field" and argument:
        return _field_rule(argument, topic.format, mixed)
    if text == "key":
        return lambda envelope: envelope.key
    if kind == "const" and argument:
        return lambda _: argument
    if kind == "topic" and argument:
        return _topic_rule(argument, topic.name)
    raise SettingsError(f"topic {topic.name}: {text!r} is no rule; use header:NAME, field:NAME, key, topic:REGEX or const:NAME")


def _header_rule(wanted: str) -> Rule:
    def rule(envelope: Envelope) -> bytes | None:
        for name, value in reversed(envelope.headers):
            if name == wanted:
                return value
        return None

    return rule


def _field_rule(field: str, form: Form, mixed: Reason) -> Rule:
    # A struct of one field skips everything else at the speed of the scanner.
    struct = msgspec.defstruct("Routed", [("name", object, None)], rename={"name": field}, gc=False)
    decode_name = msgspec.json.Decoder(struct).decode

    def of_record(record: bytes) -> str | Rejected | None:
        try:
            found = decode_name(record).name  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _named_exactly(record, field)
        return found if isinstance(found, str) else None

    def rule(envelope: Envelope) -> Name:
        value = envelope.value or b""
        try:
            found = decode_name(value).name  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if isinstance(found, str):
            return found
        if form == "text" or not (value[:1] == b"{" or form == "otlp_proto" or may_be_batch(value)):
            return None
        batch = take_apart(value, form, DEPTH_MAX)
        if isinstance(batch, Batch):
            return _common([of_record(record) for record in batch if isinstance(record, bytes)], field, mixed)
        name = of_record(value) if batch is None else None
        return name if isinstance(name, str) else None

    return rule


def _named_exactly(record: bytes, field: str) -> str | Rejected | None:
    """The name in a record that only the exact path reads (NaN, a byte order mark); Rejected where nothing does."""
    fields = decode(record, "json", DEPTH_MAX)
    if not isinstance(fields, Pairs):
        return fields if isinstance(fields, Rejected) else None
    found = next((value for key, value in reversed(fields) if key == field), None)
    return str(found) if is_text_value(found) else None


def _common(names: Sequence[str | Rejected | None], field: str, mixed: Reason) -> Name:
    """The one name that all readable records of a message have. A message goes to one table, so that two names are one too many."""
    distinct = {name for name in names if not isinstance(name, Rejected)}
    if len(distinct) <= 1:
        return next(iter(distinct), None)
    told = ", ".join(sorted(repr(name) if name is not None else "none" for name in distinct)[:5])
    sentence = f"the {len(names)} records of the message have different values of field {field!r} ({told}), and a message goes to one table: "
    return Rejected(mixed, sentence + "send one message for each, or name it in a header or the key")


def _topic_rule(pattern: str, topic: str) -> Rule:
    try:
        match = re.fullmatch(pattern, topic)
    except re.error as error:
        raise SettingsError(f"topic {topic}: topic:{pattern} is no regular expression ({error})") from error
    name = match[1] if match and match.re.groups else None
    return lambda _: name
