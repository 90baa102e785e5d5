"""Messages of Avro."""

import struct
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


class _PlainSchemas(SchemaRegistryClient):
    """A registry whose schemas have no logical types: values come as they were sent."""

    def get_schema(self, *args: Any, **kwargs: Any) -> Schema:
        """Fetches a schema."""
        return _plain(super().get_schema(*args, **kwargs))

    def get_version(self, *args: Any, **kwargs: Any) -> RegisteredSchema:
        """Fetches a schema that another one names."""
        found = super().get_version(*args, **kwargs)
        return RegisteredSchema(
            subject=found.subject,
            version=found.version,
            schema_id=found.schema_id,
            guid=found.guid,
            schema=_plain(found.schema),
        )


def _plain(schema: Schema) -> Schema:
    text = orjson.dumps(without_logical_types(orjson.loads(schema.schema_str))).decode()
    return Schema(text, schema.schema_type, schema.references)


class AvroMessages:
    """Makes the readers of Avro's schemas."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._deserializer = AvroDeserializer(_PlainSchemas(options))

    def reader(self, client: SchemaRegistryClient, schema: Schema) -> "AvroReader":
        """Raises KeyError, TypeError and ValueError for what is no schema of Avro."""
        texts = [each.schema_str for each in (*referenced_schemas(client, schema), schema)]
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
