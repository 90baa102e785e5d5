"""The dead-letter topic: where a message goes that cannot be stored, with its bytes, key, headers, coordinates and reason.

A dead letter is the message as it was (value, key, headers), plus headers that start with `firn.`. A body that the topic would not
take is put into the warehouse and the header `firn.body` says where.
"""

import uuid
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Producer

from ingest.buffer import RawRecord
from ingest.converter import Source
from ingest.formats.rejected_record import RejectedRecord
from ingest.kept_topic import ENVELOPE_BYTES, MESSAGE_BYTES_MAX, ensure_topic
from ingest.replay import ATTEMPT, FORM, origin_of
from lake.errors import FatalError, Rejected, UnavailableError
from lake.settings import IngestSettings
from lake.storage import AnyStorage

REASON = "firn.reason"  # the first header behind the message's own
BODY = "firn.body"
FLUSH_TIMEOUT_S = 60.0


def dead_part(record: RawRecord, rejected: Rejected) -> tuple[bytes | None, int | None]:
    """What of a message is dead: its value, or one of the records in it and the position of that among them."""
    return (rejected.value, rejected.index) if isinstance(rejected, RejectedRecord) else (record.value, None)


class Letters(Protocol):
    """Where dead letters go."""

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Takes a message, or the one bad record of several in it (a `RejectedRecord`); `flush` makes sure of it."""

    def flush(self) -> None:
        """Returns when every letter so far is durable. Raises UnavailableError, FatalError; nothing may be committed then."""


class DeadLetters:
    """Produces to the dead-letter topic with acks=all; `flush` returns when every letter is acknowledged."""

    def __init__(self, settings: IngestSettings, storage: AnyStorage, warehouse: str) -> None:
        self._topic = settings.dead_letter_topic
        self._replay_topic = settings.replay_topic
        self._servers = settings.bootstrap_servers
        self._storage = storage
        self._bodies = f"{warehouse.rstrip('/')}/dead-letters"
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.timeout.ms": 0,  # a letter is never given up: the line waits for the broker
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "queue.buffering.max.kbytes": 256 * 1024,
                "log_level": 2,
            }
        )

    def ensure_topic(self) -> None:
        """Creates the topic, and the one that its letters are replayed to, or verifies them. Raises PrerequisiteError, UnavailableError."""
        for name in (self._topic, self._replay_topic):
            ensure_topic(self._servers, name)

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Queues one letter; `flush` makes sure of it.

        A message that came from the replay topic dies again under the coordinates it was first read at.
        """
        facts = {REASON: rejected.reason.value, "firn.detail": rejected.detail, "firn.timestamp_ms": str(record.timestamp_ms)}
        value, index = dead_part(record, rejected)
        offset, headers = record.offset, record.headers
        replayed = origin_of(headers) if source.form == FORM else None
        if replayed is not None:
            origin, headers = replayed
            index = index if origin.index is None else origin.index
            facts[ATTEMPT] = str(origin.attempt)
        topic, topic_id, partition, offset = (source.topic, source.topic_id, source.partition, offset) if replayed is None else replayed[0].coordinates
        facts |= {"firn.topic": topic, "firn.topic_id": topic_id, "firn.partition": str(partition), "firn.offset": str(offset)}
        if table is not None:
            facts["firn.table"] = table
        if index is not None:
            facts["firn.index"] = str(index)
        if value is not None and len(value) + ENVELOPE_BYTES > MESSAGE_BYTES_MAX:
            facts[BODY] = self._put_aside(value)
            value = None
        all_headers = [*headers, *((name, text.encode("utf-8", "backslashreplace")) for name, text in facts.items())]
        while not self._queued(record.key, all_headers, value):
            self._producer.poll(0.5)

    def _queued(self, key: bytes | None, headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> bool:
        try:
            self._producer.produce(self._topic, value=value, key=key, headers=headers, on_delivery=self._delivered)
            self._producer.poll(0)
        except BufferError:  # the queue is full
            return False
        return True

    def _put_aside(self, value: bytes) -> str:
        uri = f"{self._bodies}/{uuid.uuid4()}"
        self._storage.write(uri, value)
        self._storage.sync([uri])
        return uri

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def flush(self) -> None:
        """Waits until every letter is acknowledged. Raises UnavailableError where the broker does not answer for now; nothing may be committed then."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if self._failed:
            raise FatalError(f"topic {self._topic} refuses a dead letter: {self._failed[0]}; mend the topic and start again, nothing is lost")
        if left:
            raise UnavailableError(f"{left} dead letters are not acknowledged by topic {self._topic} yet")
