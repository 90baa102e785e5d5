"""Which table a message belongs to: rules per topic, the first that yields a name wins."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ingest.decode.decoder import Batch, Pairs, decode, kind_of, take_apart
from ingest.decode.formats.json_object import is_text_value
from ingest.decode.formats.registry import BATCH_RECORD, BATCH_ROOTS, LOOKS_LINE, REPLAY, TOPIC_FORMATS
from ingest.kafka.header_workaround import UNREADABLE
from ingest.model.raw_rows import Headers
from lake.errors import Reason, Rejected, SettingsError
from lake.settings import FormatName, TopicSettings
from lake.tenant import SYSTEM_TENANT, TableId, TenantId, parse_stream, parse_tenant

DEFAULT_STREAM = "logs"
_NO_HEADERS = Rejected(
    Reason.UNDECODABLE,
    "a header's name is no UTF-8, and Kafka's client gives none of the message's headers; mend the producer",
)
_RESERVED = Rejected(
    Reason.TENANT_RESERVED,
    f"the tenant {SYSTEM_TENANT.name!r} is Firn's own: only a topic whose one rule for the tenant is "
    f"const:{SYSTEM_TENANT.name} writes there; name another tenant",
)


class Envelope(NamedTuple):
    """A message as far as it says where it goes."""

    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None


# How many tables' names a router keeps at hand.
NAMES_MAX = 65_536
_Found = str | bytes | Rejected  # Rejected: the message names several
Name = _Found | None
Rule = Callable[[bytes | None, Headers, bytes | None], Name]  # key, headers, value
# A record is looked into as deep as any setting allows; whether it is too deep is told when it is decoded.
DEPTH_MAX = 200


class Router:
    """Routes the messages of one topic."""

    def __init__(self, topic: TopicSettings) -> None:
        self._tenant = _first([_rule(rule, topic, Reason.TENANT_INVALID) for rule in topic.tenant])
        self._stream = _first([_rule(rule, topic, Reason.STREAM_INVALID) for rule in topic.stream])
        self._tables: dict[tuple[_Found, _Found], TableId] = {}
        self._described = ", ".join(topic.tenant) or "none"
        # By the settings, or by a replay, which Firn routed by them and signed; not by what a message says.
        self._is_of_system = topic.tenant == (f"const:{SYSTEM_TENANT.name}",) or topic.format == REPLAY

    def route(self, envelope: Envelope) -> TableId | Rejected:
        """The table of a message, or why it has none."""
        return self.target(envelope.key, envelope.headers, envelope.value)

    def target(self, key: bytes | None, headers: Headers, value: bytes | None) -> TableId | Rejected:
        """The same for the parts of a message: this is asked for each one."""
        if headers is UNREADABLE:
            return _NO_HEADERS
        tenant = self._tenant(key, headers, value)
        if not tenant:
            return Rejected(
                Reason.TENANT_MISSING, f"no rule of the topic yields a tenant ({self._described})"
            )
        names = tenant, self._stream(key, headers, value) or DEFAULT_STREAM
        known = self._tables.get(names)
        return self._met(names) if known is None else known

    def _met(self, names: tuple[_Found, _Found]) -> TableId | Rejected:
        """The table of names that are not at hand. Names that are none's are not kept: they may be as long as
        a message."""
        table = self._table(*names)
        if isinstance(table, TableId):
            if len(self._tables) >= NAMES_MAX:
                self._tables.clear()
            self._tables[names] = table
        return table

    def _table(self, raw_tenant: _Found, raw_stream: _Found) -> TableId | Rejected:
        table = _table(raw_tenant, raw_stream)
        is_system = isinstance(table, TableId) and table.tenant == SYSTEM_TENANT
        return _RESERVED if is_system and not self._is_of_system else table


def grouping_rules(topic: TopicSettings) -> bytes | None:
    """A topic's rules as the core reads them (`firn_consume_source`); None where it could never use one."""
    both = [b"".join(_grouping_steps(rules, topic)) for rules in (topic.tenant, topic.stream)]
    takes_empty = b"z" if topic.has_changes else b""
    return None if any(rules.startswith(b"e") for rules in both) else takes_empty + b".".join(both)


def _grouping_steps(rules: Iterable[str], topic: TopicSettings) -> Iterator[bytes]:
    for text in rules:
        kind, _, argument = text.partition(":")
        names = [name.encode() + b"\0" for name in (argument, *sorted(BATCH_ROOTS))]
        if kind == "header":
            yield b"h" + names[0]
        elif kind == "field" and TOPIC_FORMATS[topic.format].takes_objects and argument not in BATCH_ROOTS:
            yield b"f" + b"".join(names) + b"\0"
        elif kind == "field":  # a line, or several records: it takes more than its fields to tell
            yield b"e"
        elif text == "key":
            yield b"k"
        elif _rule(text, topic, Reason.TENANT_INVALID)(None, (), None):
            yield b"c"


def _table(raw_tenant: _Found, raw_stream: _Found) -> TableId | Rejected:
    tenant = raw_tenant if isinstance(raw_tenant, Rejected) else parse_tenant(raw_tenant)
    if not isinstance(tenant, TenantId):
        return tenant
    stream = raw_stream if isinstance(raw_stream, Rejected) else parse_stream(raw_stream)
    return TableId(tenant, stream) if isinstance(stream, str) else stream


def _first(rules: Sequence[Rule]) -> Rule:
    """The first name that a rule yields."""
    if len(rules) == 1:
        return rules[0]

    def first(key: bytes | None, headers: Headers, value: bytes | None) -> Name:
        for rule in rules:
            if name := rule(key, headers, value):
                return name
        return None

    return first if rules else _always(None)


def _key(key: bytes | None, _: Headers, __: bytes | None) -> bytes | None:
    return key


def _always(name: str | None) -> Rule:
    return lambda *_: name


def _rule(text: str, topic: TopicSettings, mixed: Reason) -> Rule:
    """A rule by its text. `mixed`: the reason where the records of one message name different values."""
    kind, _, argument = text.partition(":")
    if kind == "header" and argument:
        return _header_rule(argument)
    if kind == "field" and argument:
        return _field_rule(argument, topic.format, mixed)
    if text == "key":
        return _key
    if kind == "const" and argument:
        return _always(argument)
    if kind == "topic" and argument:
        return _topic_rule(argument, topic.name)
    raise SettingsError(
        f"topic {topic.name}: {text!r} is no rule; use header:NAME, field:NAME, key, topic:REGEX or "
        "const:NAME"
    )


def _header_rule(wanted: str) -> Rule:
    def rule(_: bytes | None, headers: Headers, __: bytes | None) -> bytes | None:
        found = None
        for name, text in headers:
            if name == wanted:
                found = text  # the last one counts
        return found

    return rule


def _field_rule(field: str, form: FormatName, mixed: Reason) -> Rule:
    # A struct of one field skips everything else at the speed of the scanner.
    struct = msgspec.defstruct("Routed", [("name", object, None)], rename={"name": field}, gc=False)
    decode_name = msgspec.json.Decoder(struct).decode

    def of_record(record: bytes) -> str | Rejected | None:
        try:
            found = decode_name(record).name  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _named_exactly(record, field)
        return found if isinstance(found, str) else None

    def rule(_: bytes | None, __: Headers, value: bytes | None) -> Name:
        value = value or b""
        try:
            found = decode_name(value).name  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if isinstance(found, str):
            return found
        if kind_of(value, form) is LOOKS_LINE:
            return None
        batch = take_apart(value, form, DEPTH_MAX)
        if isinstance(batch, Batch):
            return _common([of_record(record) for record in batch if isinstance(record, bytes)], field, mixed)
        name = of_record(value) if batch is None else None
        return name if isinstance(name, str) else None

    return rule


def _named_exactly(record: bytes, field: str) -> str | Rejected | None:
    """The name in a record that only the exact path reads (NaN, a byte order mark); Rejected where nothing
    does."""
    fields = decode(record, BATCH_RECORD, DEPTH_MAX)
    if not isinstance(fields, Pairs):
        return fields if isinstance(fields, Rejected) else None
    found = next((value for key, value in reversed(fields) if key == field), None)
    return str(found) if is_text_value(found) else None


def _common(names: Sequence[str | Rejected | None], field: str, mixed: Reason) -> Name:
    """The one name that all readable records of a message have. A message goes to one table, so that two
    names are one too many."""
    distinct = {name for name in names if not isinstance(name, Rejected)}
    if len(distinct) <= 1:
        return next(iter(distinct), None)
    told = ", ".join(sorted(repr(name) if name is not None else "none" for name in distinct)[:5])
    sentence = (
        f"the {len(names)} records of the message have different values of field {field!r} ({told}), "
        "and a message goes to one table: "
    )
    return Rejected(mixed, sentence + "send one message for each, or name it in a header or the key")


def _topic_rule(pattern: str, topic: str) -> Rule:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise SettingsError(f"topic {topic}: topic:{pattern} is no regular expression ({error})") from error
    if not expression.groups:
        raise SettingsError(
            f"topic {topic}: topic:{pattern} names nothing; put the part of the topic's name that is meant "
            "into parentheses"
        )
    match = expression.fullmatch(topic)
    return _always(match[1] if match else None)
