"""Messages in Confluent's wire format: Avro, Protobuf and JSON Schema become typed rows; what the registry
says or does not say."""

import base64
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE
from hypothesis import given
from hypothesis import strategies as st

from ingest.changes.change import Change, Op
from ingest.changes.column_type import ListType, MapType, to_arrow
from ingest.schema_registry.schema_registry import SchemaRegistry
from lake.errors import Reason, Rejected, UnavailableError
from lake.log_schema import ValueReason
from lake.settings import RegistrySettings
from tests.ingest.support.change_messages import envelope, read_change
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_schema_registry import FakeSchemaRegistry, fake_schema_registry, framed


@pytest.fixture
def server() -> Iterator[FakeSchemaRegistry]:
    with fake_schema_registry() as registry:
        yield registry


def _registry(server: FakeSchemaRegistry, **more: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(url=server.url, timeout_s=5, **more))


def _avro(schema: Any, value: Any, named: list[Any] | None = None) -> bytes:
    out = io.BytesIO()
    known: dict[str, Any] = {}
    for each in named or []:
        fastavro.parse_schema(each, named_schemas=known)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=known), value)
    return out.getvalue()


def _record(fields: Mapping[str, Any], name: str = "shop.Value") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def _row(read: bytes | Rejected) -> Change:
    assert isinstance(read, bytes), read
    return read_change("keyed_json", b"1", read)


def _stored(change: Change) -> dict[str, Any]:
    return {
        name: pa.array([value], to_arrow(change.row.types[name])).to_pylist()[0]
        for name, value in change.row.values.items()
    }


# ---- Avro


def test_avro_rows_are_typed(server: FakeSchemaRegistry) -> None:
    """Each type and logical type of Avro has its column."""
    moment = datetime(2026, 11, 23, 9, 18, 23, 657_437, tzinfo=UTC)
    local = datetime.fromisoformat("2026-11-23T09:18:23.657")
    cases: dict[str, tuple[Any, Any, Any, Any]] = {
        "a": ("boolean", True, "boolean", True),
        "b": ("int", -5, "int", -5),
        "c": ("long", 2**62, "long", 2**62),
        "d": ("float", 0.5, "float", 0.5),
        "e": ("double", 0.1, "double", 0.1),
        "f": ("bytes", b"\x00\xff", "binary", b"\x00\xff"),
        "g": ("string", "Zoë", "string", "Zoë"),
        "h": ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "string", "Y"),
        "i": ({"type": "array", "items": ["null", "int"]}, [1, None], ListType("int"), [1, None]),
        "j": (
            {"type": "map", "values": "long"},
            {"k": 1},
            MapType("string", "long"),
            [("k", 1)],
        ),
        "k": (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
            Decimal("-10.50"),
            "decimal(12,2)",
            Decimal("-10.50"),
        ),
        "l": ({"type": "int", "logicalType": "date"}, date(2026, 2, 28), "date", date(2026, 2, 28)),
        "m": ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3), "time", time(1, 2, 3)),
        "n": ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), "time", time(1, 2, 3, 4)),
        "o": ({"type": "long", "logicalType": "timestamp-micros"}, moment, "timestamptz", moment),
        "p": ({"type": "long", "logicalType": "local-timestamp-millis"}, local, "timestamp", local),
        "q": (
            {"type": "string", "logicalType": "uuid"},
            "6f1e5a3e-0000-4000-8000-000000000001",
            "uuid",
            bytes.fromhex("6f1e5a3e000040008000000000000001"),
        ),
        "r": (["null", "string"], None, "string", None),
        "s": (_record({"x": "int", "y": "bytes"}, "N"), {"x": 1, "y": b"a"}, "string", '{"x":1,"y":"YQ=="}'),
        "t": (["null", "int", "string"], 5, "string", "5"),
        "u": ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, 1, "timestamp", None),
        "v": ({"type": "string", "connect.name": "com.example.What"}, "?", "string", "?"),
        "w": ({"type": "long", "logicalType": "com.example.what"}, 7, "string", "7"),
        "x": ({"type": "fixed", "name": "F", "size": 2}, b"ab", "binary", b"ab"),
        "y": ("double", float("nan"), "double", None),
    }
    schema = _record({name: case[0] for name, case in cases.items()})
    schema_id = server.add(json.dumps(schema))
    payload = _avro(schema, {name: case[1] for name, case in cases.items()})
    change = _row(_registry(server).read(framed(schema_id, payload)))
    assert change.errors == ()
    assert dict(change.row.types) == {name: case[2] for name, case in cases.items()}
    stored = _stored(change)
    assert stored.pop("u") == datetime.fromisoformat("1970-01-01T00:00:00.000001")
    assert str(stored.pop("y")) == "nan"
    assert stored == {name: case[3] for name, case in cases.items() if name not in "uy"}


def test_a_moment_that_no_calendar_has_is_an_error_of_the_row(server: FakeSchemaRegistry) -> None:
    """Not of the message: its other values are kept."""
    schema = _record({"at": {"type": "long", "logicalType": "timestamp-micros"}, "id": "long"})
    schema_id = server.add(json.dumps(schema))
    plain = _record({"at": "long", "id": "long"})
    payload = _avro(plain, {"at": 2**62, "id": 7})
    change = _row(_registry(server).read(framed(schema_id, payload)))
    assert change.row.values == {"at": None, "id": 7}
    assert change.errors == (("/at", str(2**62), ValueReason.OUT_OF_RANGE),)


def test_types_may_be_named_recursive_and_in_other_schemas(server: FakeSchemaRegistry) -> None:
    """A name of the schema, of a namespace, of a schema that it refers to; a type within itself is text."""
    other = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    server.add(json.dumps(other), subject="shop.Money")
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "paid", "type": "Money"},
            {"name": "node", "type": node},
            {"name": "id", "type": "long"},
        ],
    }
    schema_id = server.add(json.dumps(schema), references=["shop.Money"])
    value = {"paid": {"cents": 5}, "node": {"v": 1, "next": {"v": 2, "next": None}}, "id": 7}
    read = _registry(server).read(framed(schema_id, _avro(schema, value, [other])))
    change = _row(read)
    assert change.row.types == {"paid": "string", "node": "string", "id": "long"}
    assert change.row.values == {
        "paid": '{"cents":5}',
        "node": '{"v":1,"next":{"v":2,"next":null}}',
        "id": 7,
    }


def _debezium_envelope() -> dict[str, Any]:
    value = _record(
        {
            "id": "long",
            "amount": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 12,
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
            "doc": ["null", "string"],
        },
        "Value",
    )
    fields = {
        "before": ["null", value],
        "after": ["null", "Value"],
        "source": _record({"lsn": "long"}, "Source"),
    }
    return {**_record({**fields, "op": "string", "ts_ms": ["null", "long"]}, "Envelope"), "namespace": "shop"}


def test_debezium_comes_in_avro_as_in_json(server: FakeSchemaRegistry) -> None:
    """Key and value in the wire format, headers without it: the same change."""
    key_schema = _record({"id": "long"}, "shop.Key")
    key_id = server.add(json.dumps(key_schema))
    value_id = server.add(json.dumps(_debezium_envelope()))
    registry = _registry(server)
    row = {"id": 8, "amount": Decimal("10.50"), "doc": "__debezium_unavailable_value"}
    message = envelope("c", None, row, lsn=5)
    key = registry.read(framed(key_id, _avro(key_schema, {"id": 8})))
    value = registry.read(framed(value_id, _avro(_debezium_envelope(), message)))
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    change = read_change("debezium", key, value, [("__debezium.oldkey", b'{"id":7}')])
    assert (change.op, change.position) == (Op.INSERT, (5,))
    assert (change.key.values, change.key.types) == ({"id": 8}, {"id": "long"})
    assert change.row.types["amount"] == "decimal(12,2)"
    assert change.row.values == {"id": 8, "amount": Decimal("10.50")}
    assert change.unavailable == {"doc"}
    assert change.old_key is not None
    assert change.old_key.values == {"id": 7}


@given(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**31), 2**31 - 1),
            "l": st.integers(-(2**63), 2**63 - 1),
            "d": st.floats(),
            "f": st.floats(width=32),
            "b": st.binary(),
            "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "a": st.lists(st.booleans()),
        }
    )
)
def test_values_of_avro_come_out_equal(value: dict[str, Any]) -> None:
    """Numbers to the last bit, bytes and text whatever they are."""
    change = _row(SHARED.read(framed(SHARED_ID, _avro(SHARED_SCHEMA, value))))
    assert change.errors == ()
    assert repr(sorted(_stored(change).items())) == repr(sorted(value.items()))


SHARED_SCHEMA = _record(
    {
        "i": "int",
        "l": "long",
        "d": "double",
        "f": "float",
        "b": "bytes",
        "s": ["null", "string"],
        "a": {"type": "array", "items": "boolean"},
    }
)


@pytest.fixture(autouse=True, scope="module")
def _shared() -> Iterator[None]:
    """One registry for all examples of the property."""
    global SHARED, SHARED_ID  # noqa: PLW0603 - a property has no fixture of its own
    with fake_schema_registry() as server:
        SHARED_ID = server.add(json.dumps(SHARED_SCHEMA))
        SHARED = _registry(server)
        yield


SHARED: SchemaRegistry
SHARED_ID: int


# ---- Protobuf

_FIELD = descriptor_pb2.FieldDescriptorProto


def _orders_proto() -> descriptor_pb2.FileDescriptorProto:
    """message First {}; message Order { ...; message Line { string sku; } }"""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    counts = order.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, type=_FIELD.TYPE_INT32, label=_FIELD.LABEL_OPTIONAL)
    counts.field.add(name="value", number=2, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    status = order.enum_type.add(name="Status")
    status.value.add(name="OPEN", number=0)
    status.value.add(name="PAID", number=1)
    singles = {
        "id": _FIELD.TYPE_INT64,
        "big": _FIELD.TYPE_UINT64,
        "paid": _FIELD.TYPE_BOOL,
        "rate": _FIELD.TYPE_DOUBLE,
        "raw": _FIELD.TYPE_BYTES,
    }
    for number, (name, kind) in enumerate(singles.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    note = order.field.add(name="note", number=6, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    note.proto3_optional, note.oneof_index = True, 0
    order.oneof_decl.add(name="_note")
    typed = {
        "at": (7, ".google.protobuf.Timestamp", _FIELD.LABEL_OPTIONAL),
        "lines": (8, ".shop.Order.Line", _FIELD.LABEL_REPEATED),
        "counts": (9, ".shop.Order.CountsEntry", _FIELD.LABEL_REPEATED),
        "parent": (10, ".shop.Order", _FIELD.LABEL_OPTIONAL),
    }
    for name, (number, of, label) in typed.items():
        order.field.add(name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=of, label=label)
    order.field.add(
        name="status",
        number=11,
        type=_FIELD.TYPE_ENUM,
        type_name=".shop.Order.Status",
        label=_FIELD.LABEL_OPTIONAL,
    )
    return file


def _class(name: str) -> Any:
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP_FILE.serialized_pb)
    pool.Add(_orders_proto())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _add_orders(server: FakeSchemaRegistry) -> int:
    text = base64.b64encode(_orders_proto().SerializeToString()).decode()
    return server.add('syntax = "proto3";', kind="PROTOBUF", serialized=text)


SECOND_MESSAGE = b"\x02\x02"  # one index, 1
NESTED_MESSAGE = b"\x04\x02\x00"  # two indexes, 1 and 0


def test_protobuf_rows_are_typed(server: FakeSchemaRegistry) -> None:
    """Scalars, bytes, moments, lists, maps and enumerations; a message within is JSON text."""
    order = _class("shop.Order")(id=7, big=2**64 - 1, rate=0.1, raw=b"\xff", status=1)
    order.at.FromJsonString("2026-11-23T09:18:23.657437Z")
    order.lines.add(sku="a")
    order.counts[5] = "five"
    order.parent.id = 6
    read = _registry(server).read(framed(_add_orders(server), SECOND_MESSAGE + order.SerializeToString()))
    change = _row(read)
    assert change.errors == ()
    assert change.row.types == {
        "id": "long",
        "big": "decimal(20,0)",
        "paid": "boolean",
        "rate": "double",
        "raw": "binary",
        "note": "string",
        "at": "timestamptz",
        "lines": ListType("string"),
        "counts": MapType("int", "string"),
        "parent": "string",
        "status": "string",
    }
    stored = _stored(change)
    assert json.loads(stored.pop("parent"))["id"] == 6
    assert stored == {
        "id": 7,
        "big": Decimal(2**64 - 1),
        "paid": False,
        "rate": 0.1,
        "raw": b"\xff",
        "note": None,
        "at": datetime(2026, 11, 23, 9, 18, 23, 657_437, tzinfo=UTC),
        "lines": ['{"sku":"a"}'],
        "counts": [(5, "five")],
        "status": "PAID",
    }


def test_the_wire_format_says_which_message_of_a_schema_it_is(server: FakeSchemaRegistry) -> None:
    """The first one is one zero byte; nested ones have a path; none beyond the schema."""
    registry, schema_id = _registry(server), _add_orders(server)
    assert _row(registry.read(framed(schema_id, b"\x00"))).row.values == {}
    line = _class("shop.Order.Line")(sku="a").SerializeToString()
    assert _row(registry.read(framed(schema_id, NESTED_MESSAGE + line))).row.values == {"sku": "a"}
    for indexes in (b"\x02\x0a", b"", b"\x04\x02", b"\x02\x03"):
        found = registry.read(framed(schema_id, indexes + line))
        assert isinstance(found, Rejected), indexes
        assert found.reason is Reason.NOT_OF_SCHEMA


def test_a_descriptor_may_be_what_was_registered(server: FakeSchemaRegistry) -> None:
    """Confluent's client for Python registers that, and not every registry makes text of it."""
    text = base64.b64encode(_orders_proto().SerializeToString()).decode()
    schema_id = server.add(text, kind="PROTOBUF")
    message = SECOND_MESSAGE + _class("shop.Order")(id=7).SerializeToString()
    assert _row(_registry(server).read(framed(schema_id, message))).row.values["id"] == 7
    assert [asked for asked in server.requests if "serialized" in asked] == []


def test_a_schema_whose_descriptor_the_registry_does_not_give_is_a_reason(server: FakeSchemaRegistry) -> None:
    """It has the schema and fails at that form of it: no outage, or all other tables would wait for it."""
    registry = _registry(server)
    schema_id = server.add('syntax = "proto3";', kind="PROTOBUF", serialized="\n\x05Order")
    server.broken.add(schema_id)
    known = server.add('"string"')
    for _ in range(2):
        found = registry.read(framed(schema_id, b"\x00"))
        assert isinstance(found, Rejected)
        assert found.reason is Reason.NOT_OF_SCHEMA
        assert "descriptor" in found.detail
    assert isinstance(registry.read(framed(known, _avro("string", "a"))), bytes)


# ---- JSON Schema


def test_json_schema_rows_are_typed_and_keep_their_spelling(server: FakeSchemaRegistry) -> None:
    """Types by JSON Schema, by its formats, and as Connect names them; other fields have no type."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "rate": {"type": ["null", "number"]},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "us": {"type": "integer", "title": "io.debezium.time.MicroTimestamp", "connect.type": "int64"},
            "small": {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int16"}]},
            "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "inner": {"type": "object", "title": "Inner", "properties": {"a": {"type": "number"}}},
            "any": {},
        },
        "required": ["id"],
        "definitions": {"tag": {"type": "string"}},
    }
    schema_id = server.add(json.dumps(schema), kind="JSON")
    payload = (
        b'{"id": 7, "rate": 0.10, "day": "2026-02-28", "at": "2026-11-23T09:18:23Z", "us": 1, "small": 3,'
        b' "tags": ["a"], "counts": {"x": 1}, "inner": {"a": 1.50}, "any": [1.10], "more": 2.50, "Text": "t"}'
    )
    change = _row(_registry(server).read(framed(schema_id, payload)))
    assert change.errors == ()
    assert change.row.types == {
        "id": "long",
        "rate": "double",
        "day": "date",
        "at": "timestamptz",
        "us": "timestamp",
        "small": "int",
        "tags": ListType("string"),
        "counts": MapType("string", "long"),
        "inner": "string",
        "any": "string",
    }
    assert change.row.values["inner"] == '{"a":1.50}'
    assert (change.row.values["any"], change.row.values["rate"]) == ("[1.10]", 0.1)
    assert (change.row.values["more"], change.row.values["text"]) == ("2.50", "t")
    assert change.row.paths["text"] == "/Text"


@pytest.mark.parametrize("payload", [b'{"id":"7"}', b"{}", b"[1]", b'{"id":', b"\xff"])
def test_json_that_is_not_of_its_schema_is_rejected(server: FakeSchemaRegistry, payload: bytes) -> None:
    """By the schema, or because it is no JSON at all."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    schema_id = server.add(json.dumps(schema), kind="JSON")
    found = _registry(server).read(framed(schema_id, payload))
    assert isinstance(found, Rejected)
    assert found.reason is Reason.NOT_OF_SCHEMA


# ---- the registry


def test_messages_of_another_form_stay_as_they_are(server: FakeSchemaRegistry) -> None:
    """JSON and text never begin with a zero byte; nobody is asked."""
    registry = _registry(server)
    for message in (b'{"a":1}', b"", b"text", b"\0\0\0\0"):
        assert registry.read(message) == message
    assert server.requests == []


def test_a_schema_is_fetched_once(server: FakeSchemaRegistry) -> None:
    """However many messages name it."""
    schema = _record({"id": "long"})
    registry, schema_id = _registry(server), server.add(json.dumps(schema))
    for number in range(5):
        row = _row(registry.read(framed(schema_id, _avro(schema, {"id": number})))).row
        assert row.values == {"id": number}
    assert len(server.requests) <= 2


def test_an_unknown_schema_is_a_reason_of_its_messages_alone(server: FakeSchemaRegistry) -> None:
    """Others are read meanwhile; it is asked for again after a while, not for every message."""
    clock = FakeClock()
    registry = SchemaRegistry(RegistrySettings(url=server.url, unknown_s=60), clock)
    schema = _record({"id": "long"})
    payload = _avro(schema, {"id": 1})
    for _ in range(3):
        found = registry.read(framed(1, payload))
        assert isinstance(found, Rejected)
        assert found.reason is Reason.SCHEMA_UNKNOWN
    assert len(server.requests) == 1
    assert server.add(json.dumps(schema)) == 1
    assert isinstance(registry.read(framed(1, payload)), Rejected)
    clock.s += 61
    assert _row(registry.read(framed(1, payload))).row.values == {"id": 1}


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_refuses_is_an_outage(server: FakeSchemaRegistry, status: int) -> None:
    """Nothing is rejected for it: once it answers, the message is read."""
    schema = _record({"id": "long"})
    registry, schema_id = _registry(server), server.add(json.dumps(schema))
    message = framed(schema_id, _avro(schema, {"id": 1}))
    server.status = status
    with pytest.raises(UnavailableError, match=str(status)):
        registry.read(message)
    server.status = 200
    assert _row(registry.read(message)).row.values == {"id": 1}


def test_a_registry_that_does_not_answer_is_an_outage() -> None:
    """The address is named, and it is an error that may pass."""
    with fake_schema_registry() as server:
        registry = _registry(server)
    with pytest.raises(UnavailableError, match="does not answer"):
        registry.read(framed(1, b"x"))


def test_a_user_is_shown_to_the_registry(server: FakeSchemaRegistry) -> None:
    """Basic authentication; an address with a user in it is refused, since addresses stand in messages."""
    registry = _registry(server, user="firn", password="secret")
    registry.read(framed(1, b"x"))
    assert server.authorizations == ["Basic " + base64.b64encode(b"firn:secret").decode()]
    with pytest.raises(ValueError, match="user"):
        RegistrySettings(url="http://firn:secret@127.0.0.1")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("no JSON", "AVRO"),
        ('{"type":"record","name":"a"}', "AVRO"),
        ('{"type":"record","name":"a","fields":[{"name":"b","type":"c"}]}', "AVRO"),
        ("no JSON", "JSON"),
        ("[]", "JSON"),
        ("no descriptor", "PROTOBUF"),
    ],
)
def test_a_schema_that_is_none_is_a_reason(server: FakeSchemaRegistry, schema: str, kind: str) -> None:
    """The registry may hold what no client can read."""
    found = _registry(server).read(framed(server.add(schema, kind=kind), b"\x00{}"))
    assert isinstance(found, Rejected)
    assert found.reason is Reason.NOT_OF_SCHEMA


def test_bytes_that_are_not_of_their_schema_are_rejected(server: FakeSchemaRegistry) -> None:
    """Cut short, or of another schema."""
    schema = _record({"s": "string", "u": ["null", "long"]})
    registry, schema_id = _registry(server), server.add(json.dumps(schema))
    for payload in (b"\x10abc", b"\x02a\x0a", b"\x01", b"\x04\xff\xff\x00", b""):
        found = registry.read(framed(schema_id, payload))
        assert isinstance(found, Rejected), payload
        assert found.reason is Reason.NOT_OF_SCHEMA


def test_a_message_is_one_of_the_converter(server: FakeSchemaRegistry) -> None:
    """Schema beside payload, for whoever reads that form."""
    schema_id = server.add('"string"')
    read = _registry(server).read(framed(schema_id, _avro("string", "a")))
    assert isinstance(read, bytes)
    assert orjson.loads(read) == {"schema": {"type": "string"}, "payload": "a"}
