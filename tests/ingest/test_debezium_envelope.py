"""Messages of Debezium whose rows are decoded with the envelope are as those whose rows are read apart."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.changes.change import Change, PassedOver, ReadOptions
from ingest.changes.debezium import read_change
from ingest.changes.debezium_envelope import Envelope, raw_row, read_envelope
from ingest.changes.message_opener import MessageOpener
from ingest.changes.row_struct import READS_BEFORE, RowStruct
from lake.errors import Rejected
from tests.ingest.support.change_messages import LONG, ORDER_FIELDS, debezium, envelope_schema, key_of, struct
from tests.ingest.support.spelled_rows import fields, members, row_text, spelled

OPTIONS = (ReadOptions(), ReadOptions(("id",)), ReadOptions(("id", "Größe")))
rows = st.one_of(members.map(row_text), spelled.map(str.encode))
sources = st.dictionaries(
    st.sampled_from(["lsn", "file", "pos", "commit_lsn", "ts_us", "ts_ms", "else"]),
    st.one_of(spelled, st.sampled_from(['"bin.000007"', "1.5", "1e5", '"1e5"', '"0027:0000"', '"12"'])),
    max_size=4,
).map(lambda found: row_text(list(found.items())))
# Members of an envelope, some of them twice.
envelopes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["before", "after"]), rows),
        st.tuples(st.just("source"), st.one_of(sources, spelled.map(str.encode))),
        st.tuples(st.just("op"), st.sampled_from([b'"c"', b'"u"', b'"d"', b'"m"', b'"x"', b"null", b"1"])),
        st.tuples(st.sampled_from(["ts_ms", "ddl", "status", "else"]), spelled.map(str.encode)),
    ),
    max_size=7,
)


def _message(named: Sequence[tuple[str, Mapping[str, Any]]], payload: bytes) -> bytes:
    schema = envelope_schema(dict(named))
    return b'{"schema":' + orjson.dumps(schema) + b',"payload":' + payload + b"}"


def _key(payload: bytes) -> bytes:
    return b'{"schema":' + orjson.dumps(struct({"id": LONG})) + b',"payload":' + payload + b"}"


def _with_structs(key: bytes | None, value: bytes, options: ReadOptions) -> Change | PassedOver | Rejected:
    """Reads a message whose schemas have their structs by now."""
    beginning = value[: value.index(b',"payload":') + len(b',"payload":')]
    for _ in range(READS_BEFORE):
        read_change(_key(b'{"id":1}'), beginning + b'{"op":"c","after":{}}}', (), options)
    return read_change(key, value, (), options)


def _without_structs(key: bytes | None, value: bytes, options: ReadOptions) -> Change | PassedOver | Rejected:
    with (
        patch.object(RowStruct, "decode_around", return_value=None),
        patch.object(RowStruct, "read", return_value=None),
    ):
        return read_change(key, value, (), options)


def _all_of(found: Change | PassedOver | Rejected) -> Any:
    """What a message says, so that 1, 1.0 and True differ."""
    if not isinstance(found, Change):
        return found
    return found, repr(dict(found.row.values)), repr(dict(found.key.values)), repr(found.position)


@given(
    fields,
    envelopes,
    st.sampled_from([b'{"id":7}', b'{"id":null}', b'{"id":7.0}', b"{}", b"null", b'{"id":7,"more":1}']),
    st.sampled_from(OPTIONS),
)
@example([("id", LONG)], [("op", b'"c"'), ("source", b'{"file":1.5,"pos":1}')], b'{"id":7}', OPTIONS[0])
@example([("id", LONG)], [("op", b'"c"'), ("after", b'{"id":1}'), ("before", b"7")], b'{"id":7}', OPTIONS[1])
@example([("id", LONG)], [("op", b'"u"'), ("after", b'{"id":1.0}')], b'{"id":7}', OPTIONS[1])
@example([("id", LONG)], [("ts_ms", b"1"), ("before", b"null")], b'{"id":7}', OPTIONS[0])
@example([("id", LONG)], [("ts_ms", b"1")], b'{"id":7}', OPTIONS[0])
@example([], [("op", b'"c"'), ("source", b'{"lsn":1E400}')], b'{"id":7}', OPTIONS[0])
@example([], [("source", b'"\\ud800"')], b'{"id":7}', OPTIONS[0])
def test_a_message_says_the_same_whether_its_rows_are_decoded_with_it_or_apart(
    named: list[tuple[str, dict[str, Any]]],
    spelling: list[tuple[str, bytes]],
    key: bytes,
    options: ReadOptions,
) -> None:
    payload = b"{" + b",".join(json.dumps(name).encode() + b":" + text for name, text in spelling) + b"}"
    message = _message(named, payload)
    assert _all_of(_with_structs(_key(key), message, options)) == _all_of(
        _without_structs(_key(key), message, options)
    )


@pytest.mark.parametrize("source", [b'{"file":1.5,"pos":7}', b'{"commit_lsn":1e5}', b'{"lsn":1.5}'])
def test_a_number_is_no_place_that_is_spelled_as_text(source: bytes) -> None:
    """Decoders keep the spelling of numbers with a fraction or an exponent."""
    change = read_change(
        _key(b'{"id":7}'), _message([("id", LONG)], b'{"op":"c","after":{},"source":' + source + b"}")
    )
    assert isinstance(change, Change)
    assert change.position is None


def test_rows_as_their_schema_says_are_decoded_with_their_envelope() -> None:
    """And those that are not can be had as they were sent."""
    opener = MessageOpener(members=("after", "before"))
    for _ in range(READS_BEFORE + 1):
        read_change(key_of(7), debezium("c", None, {"id": 7, "customer": "a"}))
    opened = opener.open(debezium("u", {"id": 6}, {"id": 7}), 64)
    assert not isinstance(opened, Rejected)
    envelope = read_envelope(opened, 64)
    assert isinstance(envelope, Envelope)
    assert (envelope.before.id, envelope.after.id) == (6, 7)
    assert raw_row(opened, "after") == b'{"id":7}'
    assert raw_row(opened, "before") == b'{"id":6}'


@pytest.mark.parametrize("name", ["__class__", "a b", "class", "_x", "__slots__", "mro", "__struct_config__"])
def test_a_column_may_have_any_name(name: str) -> None:
    """Names of columns are attributes of a struct where that can be."""
    shape = {**ORDER_FIELDS, name: LONG}
    for _ in range(READS_BEFORE + 1):
        change = read_change(key_of(7), debezium("c", None, {"id": 7, name: 5}, shape))
    assert isinstance(change, Change)
    assert 5 in change.row.values.values()
    assert change.row.values["id"] == 7
