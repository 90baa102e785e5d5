"""Messages in Confluent's wire format to the form of Kafka Connect's JSON converter."""

from collections import OrderedDict

from confluent_kafka.serialization import SerializationError
from google.protobuf.message import DecodeError

from ingest.schema_registry.avro import AvroMessages
from ingest.schema_registry.connect_form import Reader
from ingest.schema_registry.json_schema import JsonSchemaMessages
from ingest.schema_registry.protobuf import ProtobufMessages
from ingest.schema_registry.registry_client import UnknownSchemaError, make_client, registry_errors
from ingest.schema_registry.wire_format import find_schema_id
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import Reason, Rejected
from lake.settings import RegistrySettings


class SchemaRegistry:
    """Reads messages with the schemas of one registry, each of which is fetched once. Raises SettingsError
    where the settings cannot be used."""

    def __init__(self, settings: RegistrySettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings, self._clock = settings, clock
        self._client = make_client(settings)
        self._avro = AvroMessages(self._client)
        self._json = JsonSchemaMessages(self._client)
        self._protobuf = ProtobufMessages(self._client, make_client(settings))
        self._readers: OrderedDict[int, Reader] = OrderedDict()
        # Schemas that cannot be read, and until when that is believed.
        self._rejected: OrderedDict[int, tuple[Rejected, float]] = OrderedDict()

    def read(self, message: bytes) -> bytes | Rejected:
        """The message as JSON of `schema` and `payload`; one of another form as it is.

        SCHEMA_UNKNOWN where the registry does not have its schema, NOT_OF_SCHEMA where the schema or the
        message cannot be read. Raises UnavailableError where the registry does not answer.
        """
        schema_id = find_schema_id(message)
        if schema_id is None:
            return message
        reader = self._reader(schema_id)
        if isinstance(reader, Rejected):
            return reader
        with registry_errors(self._settings.url):
            return reader.read(message)

    def _reader(self, schema_id: int) -> Reader | Rejected:
        known = self._readers.get(schema_id)
        if known is not None:
            self._readers.move_to_end(schema_id)
            return known
        rejected, until = self._rejected.get(schema_id, (None, 0.0))
        if rejected is not None and self._clock.monotonic_s() < until:
            return rejected
        return self._ask(schema_id)

    def _ask(self, schema_id: int) -> Reader | Rejected:
        try:
            with registry_errors(self._settings.url):
                reader = self._make(schema_id)
        except UnknownSchemaError as error:
            detail = f"the schema registry has no schema {schema_id}: {error}"
            return self._reject(schema_id, Rejected(Reason.SCHEMA_UNKNOWN, detail))
        except (KeyError, TypeError, ValueError, AttributeError, DecodeError, SerializationError) as error:
            detail = f"schema {schema_id} cannot be read: {error!r}"
            return self._reject(schema_id, Rejected(Reason.NOT_OF_SCHEMA, detail))
        self._rejected.pop(schema_id, None)
        self._readers[schema_id] = reader
        if len(self._readers) > self._settings.schemas_max:
            self._readers.popitem(last=False)
        return reader

    def _make(self, schema_id: int) -> Reader:
        schema = self._client.get_schema(schema_id)
        if schema.schema_type == "PROTOBUF":
            return self._protobuf.reader(schema_id)
        if schema.schema_type == "JSON":
            return self._json.reader(schema)
        return self._avro.reader(schema)

    def _reject(self, schema_id: int, rejected: Rejected) -> Rejected:
        self._rejected[schema_id] = rejected, self._clock.monotonic_s() + self._settings.unknown_s
        if len(self._rejected) > self._settings.schemas_max:
            self._rejected.popitem(last=False)
        return rejected
