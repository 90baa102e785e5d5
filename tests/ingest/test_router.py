"""Which table a message belongs to."""

import pytest

from ingest.router import DEFAULT_STREAM, Envelope, Router
from lake.errors import Reason, Rejected, SettingsError
from lake.settings import TopicSettings
from lake.tenant import TableId, TenantId


def _route(tenant: tuple[str, ...], envelope: Envelope, stream: tuple[str, ...] = ()) -> TableId | Rejected:
    return Router(TopicSettings(name=envelope.topic, tenant=tenant, stream=stream)).route(envelope)


def _message(
    *, topic: str = "logs.acme.web", key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = (), value: bytes | None = b"x"
) -> Envelope:
    return Envelope(topic, key, headers, value)


@pytest.mark.parametrize(
    ("rule", "message", "tenant"),
    [
        ("header:tenant", _message(headers=(("tenant", b"acme"),)), "acme"),
        ("header:tenant", _message(headers=(("tenant", b"old"), ("tenant", b"new"))), "new"),
        ("field:tenant", _message(value=b'{"a":[1,{"tenant":"deep"}],"tenant":"acme","b":2}'), "acme"),
        ("field:k8s.ns", _message(value=b'{"k8s.ns":"acme"}'), "acme"),
        ("key", _message(key="é".encode()), "é"),
        ("topic:logs\\.(\\w+)\\.\\w+", _message(), "acme"),
        ("topic:logs\\.(.*)", _message(), "acme.web"),
        ("const:a:b", _message(), "a:b"),
    ],
)
def test_each_rule_yields_its_tenant(rule: str, message: Envelope, tenant: str) -> None:
    """Header (the last of its name), field (top level), key, a group of the topic's name, or a constant."""
    assert _route((rule,), message) == TableId(TenantId(tenant), DEFAULT_STREAM)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("header:tenant", _message(headers=(("Tenant", b"acme"), ("other", b"x")))),
        ("header:tenant", _message(headers=(("tenant", None),))),
        ("header:tenant", _message(headers=(("tenant", b""),))),
        ("field:tenant", _message(value=b"text")),
        ("field:tenant", _message(value=b'{"tenant":5}')),
        ("field:tenant", _message(value=b'{"tenant":null}')),
        ("field:tenant", _message(value=b'{"a":{"tenant":"deep"}}')),
        ("field:tenant", _message(value=b'{"tenant":"half')),
        ("field:tenant", _message(value=b'{"tenant":"\xff"}')),
        ("field:tenant", _message(value=b'{"a":' + b"[" * 100_000)),
        ("field:tenant", _message(value=None)),
        ("key", _message()),
        ("key", _message(key=b"")),
        ("topic:other\\.(.*)", _message()),
        ("topic:logs.*", _message()),
    ],
)
def test_rule_that_yields_nothing_leaves_the_message_without_tenant(rule: str, message: Envelope) -> None:
    """Nothing is guessed: the message is rejected, and the detail names the rules."""
    rejected = _route((rule,), message)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is Reason.TENANT_MISSING
    assert rule in rejected.detail


def test_first_rule_that_yields_a_name_wins() -> None:
    """Rules are tried in order, for the tenant and for the stream alike."""
    message = _message(key=b"by-key", headers=(("stream", b"web"),), value=b'{"tenant":"by-field"}')
    rules = ("header:tenant", "field:tenant", "key")
    assert _route(rules, message, ("header:other", "header:stream", "const:last")) == TableId(TenantId("by-field"), "web")
    assert _route(rules[::2], message) == TableId(TenantId("by-key"), DEFAULT_STREAM)


@pytest.mark.parametrize(("tenant", "stream", "reason"), [(b"\xff", b"s", Reason.TENANT_INVALID), (b"t", b"a\nb", Reason.STREAM_INVALID)])
def test_name_that_cannot_be_used_is_rejected_and_no_later_rule_steps_in(tenant: bytes, stream: bytes, reason: Reason) -> None:
    """A bad name is bad data; another rule's name would be somebody else's tenant."""
    rejected = _route(("header:t", "const:fallback"), _message(headers=(("t", tenant), ("s", stream))), ("header:s", "const:fallback"))
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


@pytest.mark.parametrize("rule", ["", "header", "header:", "field:", "const:", "topic:", "Key", "headers:tenant", "topic:(unclosed"])
def test_wrong_rule_is_a_settings_error_that_names_the_topic(rule: str) -> None:
    """A rule that cannot be understood is found at the start."""
    with pytest.raises(SettingsError, match="topic web"):
        Router(TopicSettings(name="web", tenant=(rule,)))
