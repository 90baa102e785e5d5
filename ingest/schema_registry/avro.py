"""Messages of Avro."""

import struct
from functools import lru_cache
from typing import Any

import orjson
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import SerializationError

from ingest.schema_registry.avro_schema import to_connect, without_logical_types
from ingest.schema_registry.connect_form import message_text, payload_text, schema_text
from ingest.schema_registry.registry_client import referenced_schemas
from lake.errors import Reason, Rejected

# What the deserializer raises for bytes that are not of their schema.
_BROKEN = (SerializationError, EOFError, ValueError, LookupError, TypeError, struct.error)


class _PlainSchemas:
    """The registry as the deserializer asks it: schemas without logical types, by which values come as they
    were sent."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client

    def config(self) -> dict[str, Any]:
        """The settings of the client."""
        found: dict[str, Any] = self._client.config()
        return found

    def get_schema(self, schema_id: int, subject: str | None = None, fmt: str | None = None) -> Schema:
        """Fetches a schema."""
        return _plain(self._client.get_schema(schema_id, subject, fmt))

    def get_version(self, *args: Any, **kwargs: Any) -> RegisteredSchema:
        """Fetches a schema that another one names."""
        found = self._client.get_version(*args, **kwargs)
        return RegisteredSchema(
            subject=found.subject,
            version=found.version,
            schema_id=found.schema_id,
            guid=found.guid,
            schema=_plain(found.schema),
        )


@lru_cache(maxsize=4_096)
def _plain(schema: Schema) -> Schema:
    text = orjson.dumps(without_logical_types(orjson.loads(schema.schema_str))).decode()
    return Schema(text, schema.schema_type, schema.references)


class AvroMessages:
    """Makes the readers of Avro's schemas."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._client = client
        self._deserializer = AvroDeserializer(_PlainSchemas(client))

    def reader(self, schema: Schema) -> "AvroReader":
        """Raises KeyError, TypeError and ValueError for what is no schema of Avro."""
        texts = [each.schema_str for each in (*referenced_schemas(self._client, schema), schema)]
        *others, own = map(orjson.loads, texts)
        has_floats = any("float" in text or "double" in text for text in texts)
        return AvroReader(self._deserializer, schema_text(to_connect(own, others)), has_floats)


class AvroReader:
    """Reads the messages of one schema."""

    def __init__(self, deserializer: AvroDeserializer, schema: bytes, has_floats: bool) -> None:
        self._deserializer, self._schema, self._has_floats = deserializer, schema, has_floats

    def read(self, message: bytes) -> bytes | Rejected:
        """The message in the form of Connect."""
        try:
            value = self._deserializer(message)
        except _BROKEN as error:
            return Rejected(Reason.NOT_OF_SCHEMA, f"not Avro of its schema: {error}")
        return message_text(self._schema, payload_text(value, has_floats=self._has_floats))
