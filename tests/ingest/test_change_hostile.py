"""Whatever a producer sends: every reader of changes answers with a change, a notice or a reason, and never
fails."""

import json
from typing import Any, get_args

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.changes.change import Cells, Change, Op, PassedOver, ReadOptions
from ingest.changes.column_type import to_arrow
from ingest.decode.formats.json_object import is_text
from lake.errors import Rejected
from lake.settings import ChangeFormat
from tests.ingest.support.change_messages import debezium, envelope_schema, key_of, read, struct, with_schema

FORMATS: tuple[ChangeFormat, ...] = get_args(ChangeFormat)
formats = st.sampled_from(FORMATS)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# Names that readers look for, with values of any kind.
words = st.sampled_from(
    [
        *("op", "before", "after", "source", "ts_ms", "ddl", "tableChanges", "status", "schema", "payload"),
        *("type", "fields", "field", "optional", "name", "parameters", "items", "keys", "values", "scale"),
        *("data", "old", "ts", "position", "primary_key_columns", "pk.id", "id", "__op", "__deleted", "lsn"),
    ]
)
kinds = st.sampled_from(
    [
        *("struct", "array", "map", "int32", "int64", "bytes", "string", "c", "u", "d", "t", "insert"),
        *("org.apache.kafka.connect.data.Decimal", "io.debezium.time.ZonedTimestamp", "id", "true", "1"),
    ]
)
known_words = st.recursive(
    st.none() | st.integers() | kinds | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=25,
)
messages = (
    st.none() | st.binary() | st.one_of(json_values, known_words).map(lambda each: json.dumps(each).encode())
)
headers = st.lists(
    st.tuples(st.sampled_from(["__debezium.oldkey", "__debezium.newkey", "a"]), messages), max_size=2
)
options = st.sampled_from(
    [ReadOptions(), ReadOptions(("id",)), ReadOptions(("a", "id")), ReadOptions(depth_max=2)]
)


def _check(found: Change | PassedOver | Rejected) -> None:
    """What a reader gives can be written: values by their types, errors as text; a key is whole."""
    if not isinstance(found, Change):
        assert isinstance(found, PassedOver | Rejected)
        return
    for cells in filter(None, (found.row, found.key, found.old_key, found.new_key)):
        _check_cells(cells)
    assert (found.op is Op.TRUNCATE) == (not found.key.values)
    assert all(value is not None for value in found.key.values.values())
    assert not found.unavailable & found.row.values.keys()
    for bad in found.errors:
        assert is_text(bad.field)
        assert bad.value is None or is_text(bad.value)


def _check_cells(cells: Cells) -> None:
    for column, value in cells.values.items():
        if column in cells.types:
            pa.array([value], to_arrow(cells.types[column])).validate(full=True)
        else:
            assert value is None or isinstance(value, str), (column, value)


@given(formats, messages, messages, headers, options)
def test_no_message_makes_a_reader_fail(
    form: ChangeFormat, key: bytes | None, value: bytes | None, found: list[tuple[str, Any]], to: ReadOptions
) -> None:
    """Bytes, JSON of any shape, and JSON that is nearly a change."""
    _check(read(form, key, value, [(name, text) for name, text in found if text is not None], to))


@pytest.mark.long
@given(formats, st.data())
def test_no_schema_part_makes_a_reader_fail(form: ChangeFormat, data: st.DataObject) -> None:
    """Schemas that are none, and payloads that are not of them."""
    schema = data.draw(known_words)
    fields = data.draw(st.dictionaries(st.text(), st.dictionaries(words, known_words), max_size=3))
    payload = data.draw(json_values)
    row = data.draw(st.fixed_dictionaries(dict.fromkeys(fields, json_values)))
    for text in (
        json.dumps({"schema": schema, "payload": payload}),
        json.dumps({"schema": struct(fields), "payload": row}),
        json.dumps(
            {"schema": envelope_schema(fields), "payload": {"op": "c", "after": row, "source": schema}}
        ),
    ):
        _check(read(form, key_of(1), text.encode()))
        _check(read(form, text.encode(), b'{"id":1}'))


MESSAGES = (
    debezium("c", None, {"id": 7, "customer": "Zoë"}, lsn=5),
    orjson.dumps({"op": "u", "before": None, "after": {"id": 7, "a": {"b": 1.5}}, "source": {"lsn": 1}}),
    with_schema(struct({"id": {"type": "int64"}, "__op": {"type": "string"}}), {"id": 7, "__op": "u"}),
    b'{"type":"update","ts":1,"position":"a.1:2","data":{"id":7},"old":{"id":6},"primary_key_columns":["id"]}',
)


@given(formats, st.sampled_from(MESSAGES), st.integers(0, 999), st.binary(max_size=3), st.integers(0, 3))
def test_no_damage_makes_a_reader_fail(
    form: ChangeFormat, message: bytes, at: int, put: bytes, lost: int
) -> None:
    """Bytes changed, lost or added anywhere in a message."""
    place = at % (len(message) + 1)
    damaged = message[:place] + put + message[place + lost :]
    _check(read(form, key_of(7), damaged))
    _check(read(form, damaged, b'{"id":7}'))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schema":{"type":"struct","fields":' + b"[" * 100_000 + b',"payload":1}',
        b'{"op":"c","after":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
        b'{"a":' + b"9" * 100_000 + b"}",
        b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"'
        + b"9" * 5_000
        + b'"}},"payload":"AA=="}',
    ],
)
def test_depth_and_length_are_bounded(form: ChangeFormat, text: bytes) -> None:
    """Neither the stack nor the time of a reader ends."""
    _check(read(form, key_of(1), text))
    _check(read(form, text, b'{"id":1}'))
