"""Rows that a struct of their schema decodes are as those that are read value by value."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.changes.change import RowImage
from ingest.changes.connect_message import decode_json
from ingest.changes.connect_schema import RowSchema, row_schema
from ingest.changes.row_struct import READS_BEFORE
from ingest.changes.unavailable import DEFAULT_PLACEHOLDER, placeholder
from lake.errors import Rejected

UNAVAILABLE = placeholder(DEFAULT_PLACEHOLDER)
BASE64 = base64.b64encode(DEFAULT_PLACEHOLDER.encode()).decode()
TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
KINDS: list[dict[str, Any]] = [
    *({"type": kind} for kind in ("boolean", "int8", "int32", "int64", "float", "double", "string", "bytes")),
    {"type": "int32", "name": f"{TIME}.Date"},
    {"type": "int64", "name": f"{TIME}.MicroTime"},
    {"type": "int64", "name": f"{TIME}.MicroTimestamp"},
    {"type": "int64", "name": f"{TIME}.NanoTimestamp"},
    {"type": "string", "name": f"{TIME}.ZonedTimestamp"},
    {"type": "string", "name": "io.debezium.data.Uuid"},
    {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
    {"type": "array", "items": {"type": "string"}},
    {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
    {"type": "struct", "fields": []},
]
NAMES = ("id", "Größe", "a b", "def", "timestamp", "f0", "tenant", "ID", "")
EDGES = [0, -1, 2**31, 2**31 - 1, -(2**31) - 1, 2**63, 2**63 - 1, -(2**63), 86_400_000_000, 10**30]
# Spelled as JSON: what a decoder might take for something else is not to be taken for it.
spelled = st.one_of(
    st.sampled_from(["null", "true", "1.0", "1e3", "-0", "-0.0", "1E400", "NaN", "Infinity", '"\\ud800"']),
    st.sampled_from(EDGES).map(str),
    st.integers().map(str),
    st.floats().map(json.dumps),
    st.text(max_size=8).map(json.dumps),
    st.sampled_from([*UNAVAILABLE.texts, "2026-11-23T10:20:00Z", "AQI=", "-", "null"]).map(json.dumps),
    st.sampled_from([[DEFAULT_PLACEHOLDER], ["a"], {DEFAULT_PLACEHOLDER: DEFAULT_PLACEHOLDER}, {"a": 1}]).map(
        json.dumps
    ),
)
fields = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(KINDS)), unique_by=lambda field: field[0], max_size=6
)
# Names of the schema, some of them twice, and others.
members = st.lists(st.tuples(st.sampled_from((*NAMES, "other")), spelled), max_size=8)


def _schema(named: Sequence[tuple[str, dict[str, Any]]], *, is_open: bool = False) -> RowSchema:
    """A schema whose struct is made."""
    described = {
        "type": "struct",
        "open": is_open,
        "fields": [{**kind, "field": name} for name, kind in named],
    }
    found = row_schema(orjson.dumps(described))
    assert isinstance(found, RowSchema)
    for _ in range(READS_BEFORE):
        found.decode(b"{}", UNAVAILABLE)
    return found


def _text(row: Sequence[tuple[str, str]]) -> bytes:
    return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in row) + "}").encode()


def _by_value(schema: RowSchema, text: bytes) -> RowImage | Rejected:
    row = decode_json(text)
    return row if isinstance(row, Rejected) else schema.read(row, UNAVAILABLE)


def _all_of(image: RowImage | Rejected) -> Any:
    """What an image says, so that 1, 1.0 and True differ."""
    return repr(image) if isinstance(image, Rejected) else (image, repr(dict(image.cells.values)))


@given(fields, members, st.booleans())
@example([("id", {"type": "int32"})], [("id", "1.0")], False)
@example([("id", {"type": "int64"})], [("id", str(2**63))], False)
@example([("id", {"type": "string"})], [("id", f'"{DEFAULT_PLACEHOLDER}"')], False)
@example([("id", {"type": "string"})], [("id", '"__debezium_unavailable\\u005fvalue"')], False)
@example([("id", {"type": "int32"})], [("id", '"x"'), ("id", "1")], False)
@example([("id", {"type": "bytes"})], [("id", f'"{BASE64}"')], False)
@example([("id", {"type": "array", "items": {"type": "string"}})], [("id", f'["{BASE64}"]')], False)
@example([("id", {"type": "string", "name": f"{TIME}.ZonedTimestamp"})], [("id", '"-"')], False)
@example([("id", {"type": "double"})], [("id", "1.5")], False)
def test_a_row_is_what_its_values_are_one_by_one(
    named: list[tuple[str, dict[str, Any]]], row: list[tuple[str, str]], is_open: bool
) -> None:
    schema, text = _schema(named, is_open=is_open), _text(row)
    assert _all_of(schema.decode(text, UNAVAILABLE)) == _all_of(_by_value(schema, text))


@pytest.mark.parametrize("text", [b"null", b"[]", b"{", b"", b'{"id":1}x', b'"id"', b"\xff", b"[" * 9_000])
def test_what_is_no_row_is_refused_as_before(text: bytes) -> None:
    schema = _schema([("id", {"type": "int32"})])
    assert _all_of(schema.decode(text, UNAVAILABLE)) == _all_of(_by_value(schema, text))


def test_a_row_as_its_schema_says_is_decoded_at_once_and_no_other() -> None:
    kinds = {"id": "int64", "name": "string", "paid": "boolean", "price": "double"}
    struct = _schema([(name, {"type": kind}) for name, kind in kinds.items()]).struct
    row = {"id": 7, "name": None, "paid": True, "price": 1.5}
    assert struct.read(b'{"id":7,"price":1.5,"paid":true}', UNAVAILABLE) == row
    assert struct.read(b'{"id":7.0,"paid":true}', UNAVAILABLE) is None
    assert struct.read(b'{"id":7,"else":true}', UNAVAILABLE) is None
    assert struct.read(orjson.dumps({"name": DEFAULT_PLACEHOLDER}), UNAVAILABLE) is None


def test_a_schema_of_few_rows_gets_no_struct() -> None:
    """A producer that sends a new schema with each message would pay little for what costs us much."""
    schema = row_schema(orjson.dumps({"type": "struct", "fields": [{"type": "int32", "field": "few"}]}))
    assert isinstance(schema, RowSchema)
    assert schema.struct.read(b'{"few":1}', UNAVAILABLE) is None
    assert schema.decode(b'{"few":1}', UNAVAILABLE) == _by_value(schema, b'{"few":1}')
