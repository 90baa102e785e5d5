"""Rows that a struct of their schema decodes are as those that are read value by value."""

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
from ingest.changes.unavailable import DEFAULT_PLACEHOLDER
from lake.errors import Rejected
from tests.ingest.support.spelled_rows import BASE64, TIME, UNAVAILABLE, fields, members, row_text


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
    schema, text = _schema(named, is_open=is_open), row_text(row)
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
