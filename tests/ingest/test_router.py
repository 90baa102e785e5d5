"""Which table a message belongs to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.route.router import DEFAULT_STREAM, Envelope, Router
from lake.errors import Reason, Rejected, SettingsError
from lake.settings import TopicSettings
from lake.tenant import SYSTEM_TENANT, TableId, TenantId


def _route(tenant: tuple[str, ...], envelope: Envelope, stream: tuple[str, ...] = ()) -> TableId | Rejected:
    return Router(TopicSettings(name=envelope.topic, tenant=tenant, stream=stream)).route(envelope)


def _message(
    *,
    topic: str = "logs.acme.web",
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    value: bytes | None = b"x",
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
    assert _route(rules, message, ("header:other", "header:stream", "const:last")) == TableId(
        TenantId("by-field"), "web"
    )
    assert _route(rules[::2], message) == TableId(TenantId("by-key"), DEFAULT_STREAM)


@pytest.mark.parametrize(
    ("tenant", "stream", "reason"),
    [(b"\xff", b"s", Reason.TENANT_INVALID), (b"t", b"a\nb", Reason.STREAM_INVALID)],
)
def test_name_that_cannot_be_used_is_rejected_and_no_later_rule_steps_in(
    tenant: bytes, stream: bytes, reason: Reason
) -> None:
    """A bad name is bad data; another rule's name would be somebody else's tenant."""
    rejected = _route(
        ("header:t", "const:fallback"),
        _message(headers=(("t", tenant), ("s", stream))),
        ("header:s", "const:fallback"),
    )
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


@pytest.mark.parametrize(
    "rule",
    ["", "header", "header:", "field:", "const:", "topic:", "Key", "headers:tenant", "topic:(unclosed"],
)
def test_wrong_rule_is_a_settings_error_that_names_the_topic(rule: str) -> None:
    """A rule that cannot be understood is found at the start."""
    with pytest.raises(SettingsError, match="topic web"):
        Router(TopicSettings(name="web", tenant=(rule,)))


def test_rule_for_the_topic_without_a_group_says_how_to_write_it() -> None:
    """It would never yield a name."""
    with pytest.raises(
        SettingsError,
        match=r"topic logs\.acme: topic:logs\.\.\* names nothing; put the part .* into parentheses",
    ):
        Router(TopicSettings(name="logs.acme", tenant=("topic:logs..*",)))


OTLP = (
    '{"resourceLogs":[{"resource":{"attributes":[{"key":"tenant","value":{"stringValue":"%s"}}]},'
    '"scopeLogs":[{"logRecords":[{},{}]}]}%s]}'
)
OTHER_RESOURCE = (
    ',{"resource":{"attributes":[{"key":"tenant","value":{"stringValue":"other"}}]},'
    '"scopeLogs":[{"logRecords":[{}]}]}'
)


@pytest.mark.parametrize(
    "value",
    [
        b'{"tenant":"acme","n":1}\n{"n":2,"tenant":"acme"}\n',
        b'{"tenant":"acme"}\nbroken\n{"tenant":"acme"}',
        b' \n{"tenant":"acme"}\n{"tenant":"acme","x":NaN}',
        b'[{"tenant":"acme"},{"tenant":"acme"}]',
        (OTLP % ("acme", "")).encode(),
        b'{"tenant":"acme","x":NaN}',
        b'\xef\xbb\xbf{"x":-Infinity,"tenant":"acme"}',
    ],
)
def test_field_rule_looks_into_the_records_of_a_message(value: bytes) -> None:
    """Records that came together have their tenant in the field like others, also those that only the exact
    path reads."""
    assert _route(("field:tenant", "const:fallback"), _message(value=value)) == TableId(
        TenantId("acme"), DEFAULT_STREAM
    )


@pytest.mark.parametrize(
    "value",
    [
        b'{"tenant":"acme"}\n{"tenant":"other"}',
        b'[{"tenant":"acme"},{"tenant":"Acme"}]',
        b'{"tenant":"acme"}\n{"n":2}',
        b'{"tenant":"acme"}\n{"tenant":5}',
        (OTLP % ("acme", OTHER_RESOURCE)).encode(),
    ],
)
def test_message_whose_records_are_of_different_tenants_goes_to_none_of_them(value: bytes) -> None:
    """Nothing of one tenant may end in the table of another, nor in that of a later rule: the message is
    rejected whole, and the detail says what to do."""
    rejected = _route(("field:tenant", "const:fallback"), _message(value=value))
    assert isinstance(rejected, Rejected)
    assert rejected.reason is Reason.TENANT_INVALID
    assert "send one message for each" in rejected.detail
    named = _route(("const:acme",), _message(value=value), ("field:tenant",))
    assert isinstance(named, Rejected)
    assert named.reason is Reason.STREAM_INVALID


def test_batch_without_the_field_leaves_the_word_to_the_next_rule() -> None:
    """What no record of a message says is not said."""
    assert _route(("field:tenant", "const:fallback"), _message(value=b'{"a":1}\n{"b":2}')) == TableId(
        TenantId("fallback"), DEFAULT_STREAM
    )


def test_lines_of_a_text_topic_are_never_looked_into() -> None:
    """A topic of text may hold lines that look like JSON; two of them are still one message."""
    topic = TopicSettings(name="web", format="text", tenant=("field:tenant", "const:fallback"))
    assert Router(topic).route(_message(value=b'{"tenant":"a"}\n{"tenant":"b"}')) == TableId(
        TenantId("fallback"), DEFAULT_STREAM
    )


NAMES = st.one_of(
    st.sampled_from(["acme", "Acme", "../x", "", "x" * 300, "a\x00", "\u2028"]), st.text(max_size=5)
)
VALUES = st.one_of(NAMES, st.none(), st.integers(), st.lists(st.integers(), max_size=2))
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["tenant", "n", "Tenant"]), VALUES, max_size=3), min_size=1, max_size=5
)


@given(RECORDS, st.sampled_from(["lines", "array"]))
def test_a_batch_goes_where_each_of_its_records_alone_would_go(
    records: list[dict[str, Any]], form: str
) -> None:
    """Whatever the records are: to the one table they all name, else to no table at all."""
    texts = [json.dumps(record) for record in records]
    value = ("\n".join(texts) if form == "lines" else f"[{','.join(texts)}]").encode()
    alone = [_route(("field:tenant",), _message(value=text.encode())) for text in texts]
    together = _route(("field:tenant",), _message(value=value))
    if isinstance(together, TableId):
        assert all(target == together for target in alone)
    else:
        assert not isinstance(alone[0], TableId) or any(target != alone[0] for target in alone)
        assert together.detail


@given(st.binary(max_size=40), st.sampled_from(["auto", "json", "text", "otlp_proto"]))
def test_no_bytes_stop_the_router(value: bytes, form: Any) -> None:
    """Whatever a message holds, it has a table or a reason."""
    topic = TopicSettings(
        name="web", format=form, tenant=("header:tenant", "field:tenant", "key"), stream=("field:stream",)
    )
    target = Router(topic).route(_message(value=value, key=value, headers=(("tenant", value[:3]),)))
    assert isinstance(target, TableId) or target.detail


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (("header:tenant",), _message(headers=(("tenant", b"system"),))),
        (("field:tenant",), _message(value=b'{"tenant":"system"}')),
        (("field:tenant",), _message(value=b'{"tenant":"\\u0073ystem"}')),
        (("key",), _message(key=b"system")),
        (("topic:(system)\\..*",), _message(topic="system.x")),
        (("header:tenant", "const:system"), _message()),
        (("header:tenant", "const:system"), _message(headers=(("tenant", b"system"),))),
    ],
)
def test_no_message_says_that_it_belongs_to_firn_itself(rules: tuple[str, ...], message: Envelope) -> None:
    """However a record spells the name, and whatever else the rules allow: a dead letter with its reason."""
    found = _route(rules, message)
    assert isinstance(found, Rejected)
    assert found.reason is Reason.TENANT_RESERVED
    assert "const:system" in found.detail


def test_a_topic_of_the_settings_is_firns_own() -> None:
    """A constant alone names it; other spellings are other tenants, with other namespaces."""
    assert _route(("const:system",), _message(), ("const:audit",)) == TableId(SYSTEM_TENANT, "audit")
    for name in ("System", "SYSTEM", "system ", "_73ystem", "firn_system"):
        found = _route(("header:tenant",), _message(headers=(("tenant", name.encode()),)))
        assert isinstance(found, TableId)
        assert found.tenant.namespace != SYSTEM_TENANT.namespace
