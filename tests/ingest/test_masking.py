"""What of a message is dropped, hashed or cut before anything else happens to it."""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.kafka.header_workaround import UNREADABLE
from ingest.mask import message_mask
from ingest.mask.masks import mask_of
from ingest.mask.message_mask import Parts
from ingest.model.tenant_rate import TenantRate
from ingest.route.router import Envelope
from ingest.route.routes import Routes, rules_to_group
from ingest.serve.explain import explain
from lake.errors import Rejected, SettingsError
from lake.limits import Bound
from lake.retention import Level
from lake.settings import IngestSettings
from lake.tenant import TableId, TenantId
from tests.ingest.support.change_messages import debezium, envelope
from tests.ingest.support.conversion import KAFKA_MS, converted, fields_of, rows_of, without_core
from tests.ingest.support.masking import (
    CUT,
    DROP,
    HASH,
    KEY,
    TOPIC,
    masked,
    masking_settings,
    message,
    sorted_by,
)
from tests.ingest.support.otlp_messages import otlp_json, otlp_protobuf
from tests.security.support.masked_bytes import masked_bytes_found

SECRETS = [
    "hunter2secret",
    "bob.jones@example.com",
    "4111111111111111",
    "AKIAIOSFODNN7EXAMPLE",
    "SSN-078051120",
]
ALL = (DROP, HASH, CUT)
WITHHELD = {"over_limit": "withhold"}
PATTERNS = {"name": "patterns", "action": "cut", "patterns": ["card", "email", "token"]}


@pytest.fixture(autouse=True)
def _no_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")


def digest(text: str) -> str:
    return "hmac-sha256:" + hmac.digest(KEY.encode(), text.encode(), hashlib.sha256).hex()


# ---- fields


@pytest.mark.parametrize(
    ("record", "left"),
    [
        ({"password": "x", "a": 1}, {"a": 1}),
        ({"Password": "x"}, {}),
        ({"a": {"b": {"secret": 1, "c": 2}}}, {"a": {"b": {"c": 2}}}),
        ({"a.secret": 1, "b_secret": 2, "secrets": 3}, {"secrets": 3}),
        ({"l": [{"secret": 1}, {"n": [{"secret": 2}]}, 3]}, {"l": [{}, {"n": [{}]}, 3]}),
        ({"user": {"email": "x", "id": 5}}, {"user": {"email": digest("x"), "id": 5}}),
        ({"user.EMAIL": 7}, {"user.EMAIL": digest("7")}),
        ({"user_email": [1, 2]}, {"user_email": digest("[1,2]")}),
        (
            {"user": {"email": {"work": "x", "home": None}}},
            {"user": {"email": {"work": digest("x"), "home": None}}},
        ),
    ],
)
def test_fields_are_told_by_the_columns_that_they_would_be(record: Any, left: Any) -> None:
    """Whatever their spelling, also within arrays; an object's name is everything in it."""
    value = masked(masking_settings(DROP, HASH), json.dumps(record, separators=(",", ":")).encode())
    assert value is not None
    assert json.loads(value) == left


def test_what_is_not_masked_stays_as_it_is_spelled() -> None:
    """Numbers, arrays and the order of members in a record that is changed; every byte in one that is not."""
    settings = masking_settings(DROP)
    assert (
        masked(settings, b'{ "n": 1.50, "l": [ 1E5 ],"n":-0, "password": "x"}')
        == b'{"n":1.50,"l":[ 1E5 ],"n":-0}'
    )
    assert masked(settings, b' { "n": 1.50 }\n') == b' { "n": 1.50 }\n'


def test_patterns_are_looked_for_in_every_text_and_number() -> None:
    """Also in names of fields, behind escapes, and within arrays; a number is a text when a part is cut."""
    value = (
        b'{"bob@example.com":1,"card":4111111111111111,"m":"x \\u0062ob\\u0040example.com",'
        b'"l":[["SSN-1",true]]}'
    )
    assert (
        masked(masking_settings(CUT), value)
        == b'{"[email]":1,"card":"[card]","m":"x [email]","l":[["[pii]",true]]}'
    )


def test_escapes_hide_nothing() -> None:
    """Nor where nothing else in the message is to be cut."""
    assert masked(masking_settings(PATTERNS), b'{"m":"bob\\u0040example.com"}') == b'{"m":"[email]"}'


def test_a_rule_that_names_fields_cuts_in_these_alone() -> None:
    """And in no key or header."""
    settings = masking_settings({**CUT, "fields": ["note"]})
    value = b'{"note":"bob@example.com","other":"bob@example.com"}'
    assert masked(settings, value) == b'{"note":"[email]","other":"bob@example.com"}'
    ((kept,),) = sorted_by(settings, message(value, key=b"bob@example.com")).values()
    assert kept.key() == b"bob@example.com"


def test_keys_and_headers_are_masked() -> None:
    """By patterns, by name, by the fields of those that are JSON; binary ones keep their other bytes."""
    rules = (
        {"name": "auth", "action": "drop", "headers": ["authorization"]},
        {"name": "who", "action": "hash", "headers": ["user"], "key": True},
        CUT,
        DROP,
    )
    headers = [
        ("authorization", b"x"),
        ("user", b"ann"),
        ("mail", b"\xff bob@example.com"),
        ("json", b'{"password":"x","a":1}'),
        ("none", None),
    ]
    ((kept,),) = sorted_by(
        masking_settings(*rules), message(b'{"a":1}', key=b"ann", headers=headers)
    ).values()
    assert kept.key() == digest("ann").encode()
    assert kept.headers() == [
        ("user", digest("ann").encode()),
        ("mail", b"\xff [email]"),
        ("json", b'{"a":1}'),
        ("none", None),
    ]


def test_rules_may_be_for_some_streams() -> None:
    """A message that goes nowhere is masked by all rules."""
    settings = masking_settings(
        {**DROP, "streams": ["pay"]}, stream=["header:stream"], tenant=["header:tenant"]
    )
    value, tenant = b'{"password":"x"}', ("tenant", b"acme")
    assert masked(settings, value, headers=[tenant, ("stream", b"pay")]) == b"{}"
    assert masked(settings, value, headers=[tenant, ("stream", b"web")]) == value
    assert masked(settings, value) == b"{}"


def test_changes_are_masked_in_all_their_images() -> None:
    """Columns are named as the row has them; types that the message tells stay."""
    columns: dict[str, dict[str, Any]] = {"id": {"type": "int64"}, "email": {"type": "string"}}
    rules = ({"name": "mail", "action": "hash", "fields": ["email"]}, CUT)
    settings = masking_settings(*rules, changes={"mode": "upsert"})
    row = {"id": 1, "email": "bob@example.com"}
    for value in (json.dumps(envelope("u", row, row)).encode(), debezium("u", row, row, columns)):
        kept = masked(settings, value)
        assert kept is not None
        told = json.loads(kept)
        payload = told.get("payload", told)
        assert payload["before"] == payload["after"] == {"id": 1, "email": digest("bob@example.com")}
        assert told.get("schema") == json.loads(value).get("schema")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b'<34>1 2026-11-20T21:00:00.5+01:00 web sshd 12 ID7 [a@1 x="y"] hello', "proc_id"),
        (b"<34>Nov 20 21:00:00 web su[7]: hi", "host"),
        (
            b'1.2.3.4 - ann [20/Nov/2026:21:00:00 +0000] "GET / HTTP/1.1" 200 5 "http://a/" "Mozilla"',
            "referer",
        ),
        (b"2026-11-20T21:00:00Z web app[1]: hi", "app_name"),
    ],
)
def test_a_line_of_a_known_format_loses_a_field_and_nothing_else(line: bytes, field: str) -> None:
    """It is stored as it would be, times by the topic's zone and Kafka's year included."""
    settings = masking_settings({"name": "r", "action": "drop", "fields": [field]}, time_zone="Europe/Berlin")
    left = masked(settings, line)
    assert left is not None
    expected = fields_of(line, time_zone="Europe/Berlin")
    assert expected.pop(field)
    assert fields_of(left, time_zone="Europe/Berlin") == expected


def test_an_image_that_is_no_object_is_withheld() -> None:
    """Connectors of document databases send rows as a text, whose columns no rule finds."""
    settings = masking_settings(DROP, changes={"mode": "upsert"})
    row = json.dumps({"password": "hunter2"})
    assert masked(settings, json.dumps(envelope("c", None, row)).encode()) is None


def test_a_record_may_be_called_as_connect_calls_its_parts() -> None:
    """Only a message of its converter has types in `schema`, and only in topics of changes."""
    value = b'{"schema":{"type":"bob@example.com"},"payload":{"password":"x"}}'
    assert masked(masking_settings(CUT), value) == value.replace(b"bob@example.com", b"[email]")
    value = b'{"schema":"bob@example.com","payload":{}}'
    changes = masking_settings(CUT, changes={"mode": "upsert", "format": "keyed_json"})
    assert masked(changes, value) == b'{"schema":"[email]","payload":{}}'


# ---- what cannot be masked


@pytest.mark.parametrize(
    "value", [b'{"password": "hunter2', b"a line", b"\x00\x00\x00\x00\x05avro", b"\xff\xfe{"]
)
def test_what_rules_cannot_be_asked_about_is_kept_nowhere(value: bytes) -> None:
    """It is a dead letter without its value: its size and a keyed hash stand there, and it is counted."""
    routes = Routes(masking_settings(DROP, HASH))
    ((target, (kept,)),) = routes.sort(TOPIC, [message(value)]).items()
    assert isinstance(target, Rejected)
    assert target.reason.value == "withheld"
    described = f"{len(value)} bytes, hmac-sha256:{hmac.digest(KEY.encode(), value, hashlib.sha256).hex()}"
    assert target.detail.startswith(described)
    assert (kept.value(), kept.headers()) == (None, [("firn.withheld", described.encode())])
    assert routes.take_masked().withheld == {TOPIC: 1}


def test_a_withheld_change_is_no_delete() -> None:
    """A change without a value says that its row is gone; one whose value is withheld says nothing."""
    settings = masking_settings(DROP, changes={"mode": "upsert"})
    for headers in ([], UNREADABLE):
        one = Message(
            topic=TOPIC,
            partition=0,
            offset=0,
            key=b'{"id":1}',
            value=b"{",
            headers=headers,
            timestamp=(1, KAFKA_MS),
        )
        (target,) = sorted_by(settings, one)
        assert isinstance(target, Rejected), headers


def test_text_is_cut_where_rules_name_no_fields_or_settings_say_so() -> None:
    """Then what cannot be parsed goes on as the patterns leave it."""
    broken = b'{"m": "bob@example.com'
    assert masked(masking_settings(CUT), broken) == b'{"m": "[email]'
    assert masked(masking_settings(CUT, DROP), broken) is None
    assert masked(masking_settings(CUT, DROP, unparsed="cut"), broken) == b'{"m": "[email]'
    for binary in ("bob@example.com".encode("utf-16"), b"\0\0\0\0\5\x1ebob@example.com"):
        assert masked(masking_settings(CUT), binary) is None


def test_one_bad_record_of_several_is_withheld_alone() -> None:
    """The others keep their places."""
    value = masked(masking_settings(DROP), b'{"password":"x","a":1}\n{"password": \n{"a":3}')
    assert value is not None
    first, bad, last = json.loads(value)
    assert (first, last) == ({"a": 1}, {"a": 3})
    assert bad.startswith("withheld: 13 bytes, hmac-sha256:")


def test_several_records_of_which_none_is_an_object_stay_several_or_nothing() -> None:
    """As an array of texts they would be one line."""
    bad = {"body": {"stringValue": 5}, "flags": "bob@example.com"}
    value = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [bad, bad]}]}]}).encode()
    assert masked(masking_settings(CUT), value) is None
    kept = value.replace(b"bob@example.com", b"bob")
    assert masked(masking_settings(CUT), kept) == kept


def test_messages_are_masked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, in their order, by size and by number."""
    values = [b'{"n":%d,"password":"x"}' % number for number in range(10)]
    for bounds in ((1, 100), (60, 100), (1_000, 3)):
        monkeypatch.setattr(message_mask, "TURN_BYTES", bounds[0])
        monkeypatch.setattr(message_mask, "TURN_MESSAGES", bounds[1])
        (kept,) = sorted_by(masking_settings(DROP), *map(message, values, range(10))).values()
        assert [one.value() for one in kept] == [b'{"n":%d}' % number for number in range(10)]


# ---- over the limit of a tenant


class OneASecond:
    """What every tenant may send, but for one."""

    def rate(self, namespace: str) -> TenantRate | None:
        return None if namespace == "free" else TenantRate(records=Bound(1, Level.LAKE))

    def columns(self, namespace: str) -> Bound:
        raise AssertionError(f"nothing is written for {namespace}")

    def memory_percent(self, namespace: str) -> Bound:
        raise AssertionError(f"nothing waits for {namespace}")


def withholding(*rules: Any, **topic: Any) -> Routes:
    return Routes(masking_settings(*rules, over_limit="withhold", **topic), OneASecond())


def test_what_is_over_the_limit_is_not_masked_but_withheld() -> None:
    """Its value is not looked at, or it would be a dead letter of another reason; key and headers are masked.
    What is below the limit, and another tenant's, is as ever, in its order."""
    routes = withholding(DROP, {**CUT, "headers": ["x"], "key": True}, HASH)
    other = message(b"{}", 70, headers=[("tenant", b"free")])
    value = b'{"password": "hunter2'
    key, headers = b"bob.jones@example.com", [("x", b"SSN-078051120")]
    sent = [message(b'{"n":1,"password":"x"}', at) for at in range(60)]
    found = routes.sort(TOPIC, [*sent, other, message(value, 71, key, headers), message(None, 72)])
    kept = found[TableId(TenantId("acme"), "logs")]
    assert [one.offset() for one in kept] == [*range(60), 71]
    assert {one.value() for one in kept[:-1]} == {b'{"n":1}'}
    described = f"{len(value)} bytes, {digest(value.decode())}".encode()
    assert (kept[-1].key(), kept[-1].value()) == (b"[email]", None)
    assert kept[-1].headers() == [("x", b"[pii]"), ("firn.withheld", described)]
    assert found[TableId(TenantId("free"), "logs")] == [other]
    (empty,) = (target for target in found if isinstance(target, Rejected))
    assert empty.reason.value == "empty"
    assert routes.take_masked().withheld == {TOPIC: 1}
    assert routes.sort(TOPIC, [message(b"{}", 73)])[TableId(TenantId("acme"), "logs")][0].value() is None


def test_where_no_rule_is_for_the_stream_nothing_is_withheld() -> None:
    """It costs nothing to leave it as it is."""
    routes = withholding({**DROP, "streams": ["shop"]})
    for stream, left in ((b"other", b"{}"), (b"shop", None)):
        found = routes.sort(TOPIC, [message(b"{}", at, headers=[("stream", stream)]) for at in range(61)])
        ((*_, last),) = found.values()
        assert last.value() == left


def test_a_tenant_that_stands_in_the_value_is_asked_about_later() -> None:
    """A rule behind that is not asked before it: it would name another."""
    routes = withholding(DROP, tenant=["header:t", "field:f", "const:acme"])
    found = routes.sort(TOPIC, [message(b'{"f":"of-the-value"}', at) for at in range(100)])
    ((table, kept),) = found.items()
    assert table == TableId(TenantId("of-the-value"), "logs")
    assert all(one.value() for one in kept)


# ---- settings


@pytest.mark.parametrize(
    ("rule", "topic", "told"),
    [
        ({"action": "cut"}, {}, "cuts nothing: name patterns or expressions"),
        ({"action": "drop"}, {}, "say what to drop: fields, headers, or key = true"),
        ({"action": "drop", "fields": ["*"]}, {}, "names no field"),
        ({"action": "hash", "fields": ["a"], "patterns": ["card"]}, {}, "are for the action cut"),
        ({"action": "drop", "fields": ["a"], "name": "No!"}, {}, "names no rule"),
        ({"action": "drop", "fields": ["a"]}, {"format": "text"}, "lines have none in a topic of text"),
        (DROP, {**WITHHELD, "tenant": ["field:f"]}, "only once the value is read"),
        (DROP, {**WITHHELD, "stream": ["field:f"]}, "only once the value is read"),
        (DROP, {**WITHHELD, "changes": {"mode": "upsert"}}, "are under no limit"),
    ],
)
def test_settings_that_mean_nothing_are_refused(rule: Any, topic: Any, told: str) -> None:
    """With what to write instead."""
    with pytest.raises(SettingsError, match=told):
        masking_settings({"name": "r", **rule}, **topic)


def test_hashing_needs_a_key_that_nobody_guesses() -> None:
    """Without one values would be tried until their hash is found."""
    topics = [{"name": TOPIC, "masking": {"rules": [HASH]}}]
    with pytest.raises(SettingsError, match=r"rule contact of t hashes, and masking\.key is empty"):
        IngestSettings.load(topics=topics)
    with pytest.raises(SettingsError, match="fewer than 16 characters"):
        IngestSettings.load(topics=topics, masking__key="short")


@pytest.mark.parametrize(
    ("routing", "rule"),
    [
        ({"tenant": ["field:User.Email"]}, HASH),
        ({"stream": ["header:s"]}, {"name": "r", "action": "drop", "headers": ["s"]}),
        ({"tenant": ["key"]}, {"name": "r", "action": "hash", "key": True}),
        ({"changes": {"key": ["password"]}}, DROP),
    ],
)
def test_what_names_a_table_or_a_row_is_not_taken_away(routing: Any, rule: Any) -> None:
    """Else nothing could be routed any more."""
    with pytest.raises(SettingsError, match=f"rule {rule['name']} of its masking would"):
        Routes(masking_settings(rule, **routing))


def test_a_topic_that_masks_is_not_sorted_by_the_core() -> None:
    """The core puts bytes into buffers as they came."""
    plain = IngestSettings.load(topics=[{"name": TOPIC}])
    assert rules_to_group(plain)
    assert not rules_to_group(masking_settings(CUT, tenant=["header:tenant"]))


# ---- again, explained, counted


def test_hashes_stay_when_a_message_is_masked_again() -> None:
    """A dead letter that is sent again has been masked; from a producer a hash is a text like any other."""
    settings = masking_settings(HASH)
    once = masked(settings, b'{"user":{"email":"x"}}')
    assert once is not None
    again = mask_of(settings, settings.topics[0], keeps_hashes=True)
    assert again is not None
    assert again.masked_one(Parts(None, (), once, KAFKA_MS), "logs").value == once
    assert masked(settings, once) != once


def test_values_are_counted_by_rule() -> None:
    """Those of a batch, each once."""
    routes = Routes(masking_settings(*ALL))
    value = b'{"password":"x","a":"bob@example.com and ann@example.com","b":"SSN-1"}'
    routes.sort(TOPIC, [message(value), message(value, 1), message(b'{"a":1}', 2)])
    counts = routes.take_masked()
    assert counts.masked_values == {(TOPIC, "passwords", "drop"): 2, (TOPIC, "pii", "cut"): 4}
    assert counts.masked_messages == {TOPIC: 2}
    assert not routes.take_masked().masked_values


def test_explain_shows_what_is_kept_and_which_rules_did_it() -> None:
    """And nothing of what is not."""
    settings = masking_settings(*ALL)
    envelope = Envelope(TOPIC, None, (), b'{"password":"hunter2secret","message":"from bob@example.com"}')
    found = explain(settings, settings.topics[0], "", envelope, KAFKA_MS).to_json()
    assert [(rule["name"], rule["action"], rule["values"]) for rule in found["masked"]] == [
        ("passwords", "drop", 1),
        ("pii", "cut", 1),
    ]
    assert "hunter2secret" not in str(found)
    assert "from [email]" in str(found)
    withheld = explain(settings, settings.topics[0], "", envelope._replace(value=b"{hunter2secret"), KAFKA_MS)
    assert (withheld.rejected or "").startswith("withheld: 14 bytes")
    assert "hunter2secret" not in str(withheld.to_json())


# ---- generated messages of every format

TEXTS = st.one_of(
    st.sampled_from(["", "x", "5", "snow ☃", '"', "\\", "2026-11-20T21:00:00Z"]),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "a ", "é="]),
        st.sampled_from(SECRETS[1:]),
        st.sampled_from(["", " z"]),
    ),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(-5, 5), st.just(int(SECRETS[2]))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "user"]), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORDS = st.builds(
    lambda fields, own: fields | own,
    st.dictionaries(st.sampled_from(["a", "message", "level", SECRETS[1], "n"]), VALUES, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "password": st.just(SECRETS[0]),
            "user": st.just({"email": SECRETS[0], "deep": {"secret": [SECRETS[0]]}}),
        },
    ),
)


def _json(record: Any, at: int) -> bytes:
    return json.dumps(record, ensure_ascii=at % 2 == 0).encode()


def _bodies(records: Sequence[dict[str, Any]]) -> list[bytes]:
    """The same records in every format, and as what is none of them. In texts no rule can tell what is a
    field's value: there is none in them that only its field's name says to be secret."""
    lines, first = [_json(record, at) for at, record in enumerate(records)], records[0]
    text = " ".join(str(value) for value in first.values()).replace("\n", " ").replace(SECRETS[0], "")
    return [
        *lines,
        b"\n".join(lines),
        b"[" + b", ".join(lines) + b"]",
        otlp_json(records),
        otlp_protobuf(records),
        f"<34>1 2026-11-20T21:00:00Z host app - - - {SECRETS[1]} {text}".encode(),
        f"<34>Nov 20 21:00:00 {SECRETS[1]} su: {SECRETS[2]}".encode(),
        f'1.2.3.4 - {SECRETS[1]} [20/Nov/2026:21:00:00 +0000] "GET /{SECRETS[4]} HTTP/1.1" 200 5'.encode(),
        text.encode(),
        lines[0][:-1],
        b"\n".join([lines[0], lines[-1][:-1], b"oops " + SECRETS[0].encode()]),
        b"\xff" + lines[0],
    ]


@pytest.mark.parametrize(
    ("rules", "hidden", "key"),
    [(ALL, SECRETS, SECRETS[1].encode()), ((PATTERNS,), SECRETS[1:4], None)],
    ids=["all", "patterns"],
)
@pytest.mark.parametrize("has_core", [pytest.param(True, marks=pytest.mark.core), False])
@pytest.mark.parametrize("form", ["auto", "json", "otlp_proto"])
@given(st.lists(RECORDS, min_size=1, max_size=3))
@example([{"a": SECRETS[2], "password": SECRETS[0]}])  # in protobuf a digit follows the card's number
@pytest.mark.long
def test_no_byte_of_a_secret_comes_through(
    form: Any, has_core: bool, rules: Any, hidden: list[str], key: bytes | None, records: list[dict[str, Any]]
) -> None:
    """Into no row, error, dead letter or sentence, in any format, by the core and without it."""
    settings = masking_settings(*rules, format=form)
    bodies = _bodies(records)
    beside = [("h", _json(records[0], 0))] if key else []
    messages = [message(body, at, key, beside) for at, body in enumerate(bodies)]
    sorted_so = sorted_by(settings, *messages)
    kept = [one for some in sorted_so.values() for one in some]
    assert len(kept) == len(bodies)
    with pytest.MonkeyPatch.context() as patch:
        if not has_core:
            without_core(patch)
        for target, some in sorted_so.items():
            told = str(target)
            if isinstance(target, TableId):
                result = converted([one.value() for one in some], form)
                told = f"{rows_of(result)} {[asdict(rejected) for _, rejected in result.rejected]}"
            assert not [secret for secret in hidden if secret in told]
    parts = [(one.key(), one.value(), one.headers() or ()) for one in kept]
    assert masked_bytes_found([secret.encode() for secret in hidden], messages=parts) == 0


@pytest.mark.parametrize("form", ["auto", "json", "otlp_proto"])
@given(st.lists(RECORDS, min_size=1, max_size=3))
@pytest.mark.long
def test_what_is_not_masked_is_stored_as_ever(form: Any, records: list[dict[str, Any]]) -> None:
    """Every record is the row, and the number in its message, that it was, but for what rules are about."""
    never = {"name": "never", "action": "drop", "fields": ["marked"]}
    settings = masking_settings(never, format=form, unparsed="cut")
    plain = _bodies([{**record, "keep": "1"} for record in records])
    marked = _bodies([{**record, "keep": "1", "marked": "x"} for record in records])
    routes = Routes(settings)
    for before, after in zip(plain, marked, strict=True):
        left = routes.masked(TOPIC, [message(after)])[0].value()
        if before == after or left == after:  # a line has no such field
            continue
        expected, found = converted([before], form), converted([left], form)
        assert rows_of(found) == rows_of(expected)
        assert len(found.rejected) == len(expected.rejected)


@pytest.mark.long
def test_protobuf_of_any_length_is_no_array() -> None:
    """A message begins with a newline and its first length, which for one of 91 bytes is a bracket."""
    for length in range(300):
        body = otlp_protobuf([{"message": "x" * length}])
        assert len(rows_of(converted([body], "otlp_proto"))) == 1, body
