"""Which table a message belongs to: rules per topic, the first that yields a name wins."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

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


Rule = Callable[[Envelope], str | bytes | None]


class Router:
    """Routes the messages of one topic."""

    def __init__(self, topic: TopicSettings) -> None:
        self._tenant = [_rule(rule, topic.name) for rule in topic.tenant]
        self._stream = [_rule(rule, topic.name) for rule in topic.stream]
        self._described = ", ".join(topic.tenant) or "none"

    def route(self, envelope: Envelope) -> TableId | Rejected:
        """The table of a message, or why it has none."""
        raw = _first(self._tenant, envelope)
        if raw is None:
            return Rejected(Reason.TENANT_MISSING, f"no rule of the topic yields a tenant ({self._described})")
        tenant = parse_tenant(raw)
        if not isinstance(tenant, TenantId):
            return tenant
        name = _first(self._stream, envelope)
        stream = DEFAULT_STREAM if name is None else parse_stream(name)
        return TableId(tenant, stream) if isinstance(stream, str) else stream


def _first(rules: Sequence[Rule], envelope: Envelope) -> str | bytes | None:
    for rule in rules:
        if name := rule(envelope):
            return name
    return None


def _rule(text: str, topic: str) -> Rule:
    kind, _, argument = text.partition(":")
    if kind == "header" and argument:
        return lambda envelope: next((value for name, value in reversed(envelope.headers) if name == argument), None)
    if kind == "field" and argument:
        return _field_rule(argument)
    if text == "key":
        return lambda envelope: envelope.key
    if kind == "const" and argument:
        return lambda _: argument
    if kind == "topic" and argument:
        return _topic_rule(argument, topic)
    raise SettingsError(f"topic {topic}: {text!r} is no rule; use header:NAME, field:NAME, key, topic:REGEX or const:NAME")


def _field_rule(name: str) -> Rule:
    # A struct of one field skips everything else at the speed of the scanner.
    struct = msgspec.defstruct("Routed", [("tenant", object, None)], rename={"tenant": name}, gc=False)
    decoder = msgspec.json.Decoder(struct)

    def rule(envelope: Envelope) -> str | None:
        try:
            found = decoder.decode(envelope.value or b"").tenant  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return found if isinstance(found, str) else None

    return rule


def _topic_rule(pattern: str, topic: str) -> Rule:
    try:
        match = re.fullmatch(pattern, topic)
    except re.error as error:
        raise SettingsError(f"topic {topic}: topic:{pattern} is no regular expression ({error})") from error
    name = match[1] if match and match.re.groups else None
    return lambda _: name
