"""Messages of Protobuf.

Confluent's deserializer needs the class of a message. It is made of the schema that the registry has, for
each message type of a schema that is met: the wire format says which of them a message is.
"""

import base64
import io
from importlib import import_module

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import SerializationError
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ingest.schema_registry.connect_form import message_text, payload_text, schema_text
from ingest.schema_registry.protobuf_schema import plain, to_connect
from lake.errors import Reason, Rejected

# The registry can give a schema as the bytes of its descriptor instead of its text.
SERIALIZED = "serialized"
_OWN_FILE = "firn_own.proto"
# Files that every schema may import without the registry having them.
_KNOWN_FILES = (
    *(
        f"google.protobuf.{name}_pb2"
        for name in ("any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask")
    ),
    *(f"google.protobuf.{name}_pb2" for name in ("struct", "timestamp", "wrappers")),
    *(f"google.type.{name}_pb2" for name in ("date", "timeofday", "datetime", "money", "latlng", "decimal")),
    "confluent_kafka.schema_registry.confluent.meta_pb2",
    "confluent_kafka.schema_registry.confluent.types.decimal_pb2",
)


class ProtobufMessages:
    """Makes the readers of Protobuf's schemas."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def reader(self, schema_id: int) -> "ProtobufReader":
        """Raises TypeError, ValueError, DecodeError and SerializationError for what is no schema of
        Protobuf."""
        schema = self._client.get_schema(schema_id, fmt=SERIALIZED)
        pool = DescriptorPool()
        for name in _KNOWN_FILES:
            _add_known(pool, name)
        self._add_references(pool, schema)
        pool.Add(_file(_OWN_FILE, schema))
        return ProtobufReader(self._client, pool)

    def _add_references(self, pool: DescriptorPool, schema: Schema) -> None:
        for reference in schema.references or ():
            if _has_file(pool, reference.name):
                continue
            other = self._client.get_version(reference.subject, reference.version, fmt=SERIALIZED).schema
            self._add_references(pool, other)
            pool.Add(_file(reference.name, other))


def _file(name: str, schema: Schema) -> FileDescriptorProto:
    found = FileDescriptorProto.FromString(base64.b64decode(schema.schema_str, validate=True))
    found.name = name
    return found


def _add_known(pool: DescriptorPool, name: str) -> None:
    described = import_module(name).DESCRIPTOR
    for needed in described.dependencies:
        if not _has_file(pool, needed.name):
            pool.AddSerializedFile(needed.serialized_pb)
    if not _has_file(pool, described.name):
        pool.AddSerializedFile(described.serialized_pb)


def _has_file(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


class ProtobufReader:
    """Reads the messages of one schema, which may have several message types."""

    def __init__(self, client: SchemaRegistryClient, pool: DescriptorPool) -> None:
        self._client, self._pool = client, pool
        self._types: dict[tuple[int, ...], _MessageType] = {}

    def read(self, message: bytes) -> bytes | Rejected:
        """The message in the form of Connect."""
        try:
            schema_id = SchemaId("PROTOBUF")
            schema_id.from_bytes(io.BytesIO(message))
            return self._type(tuple(schema_id.message_indexes or [0])).read(message)
        except (SerializationError, DecodeError, EOFError, ValueError, IndexError) as error:
            return Rejected(Reason.NOT_OF_SCHEMA, f"not Protobuf of its schema: {error}")

    def _type(self, indexes: tuple[int, ...]) -> "_MessageType":
        known = self._types.get(indexes)
        if known is None:
            known = self._types[indexes] = _MessageType(self._client, self._pool, indexes)
        return known


class _MessageType:
    """One message type of a schema."""

    def __init__(self, client: SchemaRegistryClient, pool: DescriptorPool, indexes: tuple[int, ...]) -> None:
        # In the order of the schema's text, which the wire format counts by.
        described = list(pool.FindFileByName(_OWN_FILE).message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            described = described.nested_types[index]
        self._schema = schema_text(to_connect(described))
        # The deserializer takes options of its own from a class only by its descriptor.
        self._deserialize = ProtobufDeserializer(GetMessageClass(described), {}, client)

    def read(self, message: bytes) -> bytes:
        """The message in the form of Connect. Raises SerializationError and what parsing raises."""
        return message_text(self._schema, payload_text(plain(self._deserialize(message)), has_floats=True))
