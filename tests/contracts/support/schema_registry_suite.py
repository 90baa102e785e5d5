"""What Firn needs of a schema registry: schemas by their ids, with what they refer to, and an answer where
there is none."""

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from ingest.schema_registry.schema_registry import SchemaRegistry
from lake.errors import Reason, Rejected
from lake.settings import RegistrySettings
from tests.ingest.support.change_messages import read_change
from tests.ingest.support.fake_schema_registry import framed

Register = Callable[[str, Schema], int]
MONEY = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "shop.Money"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def _avro(value: Any) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(MONEY, named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), value)
    return out.getvalue()


def _descriptor() -> str:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kind, label = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name="id", number=1, type=kind, label=label)
    return base64.b64encode(file.SerializeToString()).decode()


class SchemaRegistryContract:
    """The suite; a subclass gives `url`, and `register`, which takes a subject and a schema and returns an
    id."""

    @pytest.fixture
    def registry(self, url: str) -> SchemaRegistry:
        return SchemaRegistry(RegistrySettings(url=url))

    def test_avro_with_a_reference(self, registry: SchemaRegistry, register: Register) -> None:
        """A schema that names a type of another subject is read with it."""
        register("shop.Money", Schema(json.dumps(MONEY), "AVRO"))
        references = [SchemaReference("shop.Money", "shop.Money", 1)]
        schema_id = register("orders-value", Schema(json.dumps(ORDER), "AVRO", references))
        message = framed(schema_id, _avro({"id": 7, "paid": {"cents": 5}, "at": 1}))
        read = registry.read(message)
        assert isinstance(read, bytes), read
        row = read_change("keyed_json", b"1", read).row
        assert row.values == {"id": 7, "paid": '{"cents":5}', "at": 1}
        assert row.types == {"id": "long", "paid": "string", "at": "timestamptz"}

    def test_protobuf(self, registry: SchemaRegistry, register: Register) -> None:
        """As Confluent's client for Python registers it: as a descriptor."""
        schema_id = register("protobuf-value", Schema(_descriptor(), "PROTOBUF"))
        read = registry.read(framed(schema_id, b"\x00\x08\x07"))
        assert isinstance(read, bytes), read
        assert read_change("keyed_json", b"1", read).row.values == {"id": 7}

    def test_json_schema(self, registry: SchemaRegistry, register: Register) -> None:
        """JSON that is of its schema is read, other JSON is not."""
        text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
        schema_id = register("json-value", Schema(text, "JSON"))
        read = registry.read(framed(schema_id, b'{"id": 7}'))
        assert isinstance(read, bytes), read
        assert read_change("keyed_json", b"1", read).row.values == {"id": 7}
        refused = registry.read(framed(schema_id, b'{"id": "7"}'))
        assert isinstance(refused, Rejected)
        assert refused.reason is Reason.NOT_OF_SCHEMA

    def test_an_unknown_schema(self, registry: SchemaRegistry) -> None:
        """It is told from every other failure."""
        found = registry.read(framed(987_654_321, b"\x00"))
        assert isinstance(found, Rejected)
        assert found.reason is Reason.SCHEMA_UNKNOWN
