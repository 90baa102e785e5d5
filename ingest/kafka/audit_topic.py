"""The audit trail's way into Kafka: what a service has written down is acknowledged here, and only then
forgotten there."""

import threading
from collections.abc import Sequence
from datetime import datetime

import orjson

from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.internal_topic import ensure_topic
from lake.audit.event import head_of
from lake.clock import epoch_ms
from lake.errors import SettingsError, UnavailableError
from lake.settings import IngestSettings

GIVEN_UP_MS = 20_000
FLUSH_TIMEOUT_S = 25.0
QUEUE_KBYTES = 16 * 1024
# How long it keeps messages is the operator's affair, as with every input topic.
_CONFIG = {"cleanup.policy": "delete"}


class AuditTopic:
    """Writes events. Thread-safe."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._producer: AcknowledgedProducer | None = None

    def write(self, lines: Sequence[str]) -> None:
        """Writes events, one JSON object each, in order; those of one writer to one partition. Returns when
        all are acknowledged. Raises SettingsError for what is no event, UnavailableError: then some may be
        there, and all are to be sent again."""
        messages = [_message(line.encode()) for line in lines]
        topic = self._settings.audit.topic
        with self._lock:
            # One that failed may still try: the next attempt gets another.
            producer, self._producer = self._producer or self._open(), None
            for value, writer, at_ms in messages:
                producer.send(value, writer, (), timestamp_ms=at_ms, sign=False)
            left = producer.flush(FLUSH_TIMEOUT_S)
            if left or producer.refusals:
                why = producer.refusals[0] if producer.refusals else "no answer"
                raise UnavailableError(f"topic {topic} does not take the audit trail: {why}")
            self._producer = producer

    def _open(self) -> AcknowledgedProducer:
        topic = self._settings.audit.topic
        ensure_topic(self._settings, topic, config=_CONFIG)
        return AcknowledgedProducer(self._settings, topic, queue_kbytes=QUEUE_KBYTES, timeout_ms=GIVEN_UP_MS)


def _message(value: bytes) -> tuple[bytes, bytes, int]:
    """An event, its writer as key, and its time: the message has the event's, so that none is late however
    long it waited."""
    try:
        head = head_of(value)
        return value, str(orjson.loads(value)["firn.writer"]).encode(), epoch_ms(_moment(head.at))
    except (ValueError, KeyError) as error:
        raise SettingsError(f"this is no event of an audit trail: {error}") from error


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("its time has no zone")
    return moment
