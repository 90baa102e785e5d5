"""The audit trail's way into Kafka."""

from collections.abc import Sequence
from datetime import datetime

import orjson

from ingest.kafka.service_topic import ServiceMessage, ServiceTopic
from lake.audit.event import head_of
from lake.clock import epoch_ms
from lake.errors import SettingsError
from lake.settings import IngestSettings


class AuditTopic:
    """Writes events. Thread-safe."""

    def __init__(self, settings: IngestSettings) -> None:
        self._topic = ServiceTopic(settings, settings.audit.topic, "the audit trail")

    def write(self, lines: Sequence[str]) -> None:
        """Writes events, one JSON object each, in order; those of one writer to one partition. Returns when
        all are acknowledged. Raises SettingsError for what is no event, UnavailableError: then some may be
        there, and all are to be sent again."""
        self._topic.write([_message(line.encode()) for line in lines])


def _message(value: bytes) -> ServiceMessage:
    """An event, its writer as key, and its time: the message has the event's, so that none is late however
    long it waited."""
    try:
        head = head_of(value)
        writer = str(orjson.loads(value)["firn.writer"]).encode()
        return ServiceMessage(value, writer, epoch_ms(_moment(head.at)))
    except (ValueError, KeyError) as error:
        raise SettingsError(f"this is no event of an audit trail: {error}") from error


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("its time has no zone")
    return moment
