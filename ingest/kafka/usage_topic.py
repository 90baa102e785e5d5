"""The way of usage into Kafka: each row is a change of the keyed table `system.usage`, with its types beside
it, so that a row that is sent twice is there once."""

from collections.abc import Sequence
from dataclasses import asdict

import orjson

from ingest.kafka.service_topic import ServiceMessage, ServiceTopic
from lake.settings import IngestSettings
from lake.usage_row import KEY, UsageRow

_TYPES = {
    **dict.fromkeys(KEY, "string"),
    "records": "int64",
    "bytes_in": "int64",
    "bytes_stored": "int64",
    "searches": "int64",
    "search_seconds": "double",
    "search_bytes": "int64",
}


def _schema(*names: str) -> dict[str, object]:
    """What Kafka Connect's converter says of these fields."""
    fields = [{"field": name, "type": _TYPES[name], "optional": name not in KEY} for name in names]
    return {"type": "struct", "fields": fields, "optional": False}


_KEY_SCHEMA, _ROW_SCHEMA = _schema(*KEY), _schema(*_TYPES)


class UsageTopic:
    """Writes rows. Thread-safe."""

    def __init__(self, settings: IngestSettings) -> None:
        self._topic = ServiceTopic(settings, settings.usage.topic, "what tenants used")

    def write(self, rows: Sequence[UsageRow]) -> None:
        """Writes rows, in order; returns when all are acknowledged. Raises UnavailableError: then some may be
        there, and all are to be sent again."""
        self._topic.write([_message(row) for row in rows])


def _message(row: UsageRow) -> ServiceMessage:
    payload = asdict(row)
    key = {name: payload[name] for name in KEY}
    return ServiceMessage(_connect(_ROW_SCHEMA, payload), _connect(_KEY_SCHEMA, key))


def _connect(schema: dict[str, object], payload: dict[str, object]) -> bytes:
    return orjson.dumps({"schema": schema, "payload": payload})
