"""Messages of Protobuf.

Confluent's deserializer needs the class of a message. It is made of the schema that the registry has, for
each message type of a schema that is met: the wire format says which of them a message is.
"""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
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
# What registries answer that have not that form, or not of this schema.
_NO_DESCRIPTOR = frozenset((400, 405, 406, 409, 422, 500, 501))
_NOT_GIVEN = "the registry does not give its descriptor (`format=serialized`)"
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


class Descriptors:
    """The registry as the deserializer asks it: schemas as descriptors in base64.

    Some clients register them so; else the registry is asked for that form, which not every one has.
    """

    def __init__(self, plain_client: SchemaRegistryClient, client: SchemaRegistryClient) -> None:
        # A client keeps one form of a schema by its id, so each form has a client of its own.
        self._plain_client, self._client = plain_client, client

    def config(self) -> dict[str, Any]:
        """The settings of the client."""
        found: dict[str, Any] = self._client.config()
        return found

    def get_schema(self, schema_id: int, subject: str | None = None, fmt: str | None = None) -> Schema:
        """Fetches a schema. Raises ValueError where the registry does not give its descriptor."""
        plain = self._plain_client.get_schema(schema_id, subject)
        if _is_descriptor(plain.schema_str):
            return plain
        with _refusals_are_of_the_schema():
            found = self._client.get_schema(schema_id, subject, fmt or SERIALIZED)
        return _checked(found)

    def get_version(self, subject: str, version: int, *_: Any, **__: Any) -> RegisteredSchema:
        """Fetches a schema that another one names; errors as `get_schema`."""
        plain = self._plain_client.get_version(subject, version)
        if _is_descriptor(plain.schema.schema_str):
            return plain
        with _refusals_are_of_the_schema():
            found = self._client.get_version(subject, version, fmt=SERIALIZED)
        _checked(found.schema)
        return found


@lru_cache(maxsize=4_096)
def _is_descriptor(text: str) -> bool:
    """Whether a schema is its descriptor in base64, not the text of it."""
    try:
        FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return False
    return True


def _checked(schema: Schema) -> Schema:
    if not _is_descriptor(schema.schema_str):
        raise ValueError(_NOT_GIVEN)
    return schema


@contextmanager
def _refusals_are_of_the_schema() -> Iterator[None]:
    """Where the registry has just given a schema's text, an error on its descriptor is of this schema."""
    try:
        yield
    except SchemaRegistryError as error:
        if error.http_status_code not in _NO_DESCRIPTOR:
            raise
        raise ValueError(
            f"the registry does not give its descriptor (`format=serialized`): {error}"
        ) from error


class ProtobufMessages:
    """Makes the readers of Protobuf's schemas."""

    def __init__(self, plain_client: SchemaRegistryClient, client: SchemaRegistryClient) -> None:
        self._descriptors = Descriptors(plain_client, client)

    def reader(self, schema_id: int) -> "ProtobufReader":
        """Raises TypeError, ValueError, DecodeError and SerializationError for what is no schema of
        Protobuf."""
        schema = self._descriptors.get_schema(schema_id)
        pool = DescriptorPool()
        for name in _KNOWN_FILES:
            _add_known(pool, name)
        self._add_references(pool, schema)
        pool.Add(_file(_OWN_FILE, schema))
        return ProtobufReader(self._descriptors, pool)

    def _add_references(self, pool: DescriptorPool, schema: Schema) -> None:
        for reference in schema.references or ():
            if _has_file(pool, reference.name):
                continue
            other = self._descriptors.get_version(reference.subject, reference.version).schema
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

    def __init__(self, registry: Descriptors, pool: DescriptorPool) -> None:
        self._registry, self._pool = registry, pool
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
            known = self._types[indexes] = _MessageType(self._registry, self._pool, indexes)
        return known


class _MessageType:
    """One message type of a schema."""

    def __init__(self, registry: Descriptors, pool: DescriptorPool, indexes: tuple[int, ...]) -> None:
        # In the order of the schema's text, which the wire format counts by.
        described = list(pool.FindFileByName(_OWN_FILE).message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            described = described.nested_types[index]
        self._schema = schema_text(to_connect(described))
        self._deserialize = ProtobufDeserializer(GetMessageClass(described), {}, registry)

    def read(self, message: bytes) -> bytes:
        """The message in the form of Connect. Raises SerializationError and what parsing raises."""
        return message_text(self._schema, payload_text(plain(self._deserialize(message)), has_floats=True))
