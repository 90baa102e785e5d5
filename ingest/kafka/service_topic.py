"""A topic into which a service writes by way of `ingest serve`, which alone speaks to brokers: what the
service has is acknowledged here, and only then forgotten there."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.internal_topic import ensure_topic
from lake.errors import UnavailableError
from lake.settings import IngestSettings

GIVEN_UP_MS = 20_000
FLUSH_TIMEOUT_S = 25.0
QUEUE_KBYTES = 16 * 1024
# How long it keeps messages is the operator's affair, as with every input topic.
_CONFIG = {"cleanup.policy": "delete"}


class ServiceMessage(NamedTuple):
    """A message to be written. `timestamp_ms`: 0 is now."""

    value: bytes
    key: bytes
    timestamp_ms: int = 0


class ServiceTopic:
    """Writes messages. Thread-safe. `what`: how sentences call what goes there."""

    def __init__(self, settings: IngestSettings, topic: str, what: str) -> None:
        self._settings, self._topic, self._what = settings, topic, what
        self._lock = threading.Lock()
        self._producer: AcknowledgedProducer | None = None

    def write(self, messages: Sequence[ServiceMessage]) -> None:
        """Writes messages in order, those of one key to one partition. Returns when all are acknowledged.
        Raises UnavailableError: then some may be there, and all are to be sent again."""
        with self._lock:
            # One that failed may still try: the next attempt gets another.
            producer, self._producer = self._producer or self._open(), None
            for message in messages:
                producer.send(message.value, message.key, (), timestamp_ms=message.timestamp_ms, sign=False)
            left = producer.flush(FLUSH_TIMEOUT_S)
            if left or producer.refusals:
                why = producer.refusals[0] if producer.refusals else "no answer"
                raise UnavailableError(f"topic {self._topic} does not take {self._what}: {why}")
            self._producer = producer

    def _open(self) -> AcknowledgedProducer:
        ensure_topic(self._settings, self._topic, config=_CONFIG)
        return AcknowledgedProducer(
            self._settings, self._topic, queue_kbytes=QUEUE_KBYTES, timeout_ms=GIVEN_UP_MS
        )
