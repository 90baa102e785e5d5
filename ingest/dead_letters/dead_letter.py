"""The dead-letter topic: where a message goes that cannot be stored, with its bytes, key, headers,
coordinates and reason.

A dead letter is the message as it was (value, key, headers), plus headers that start with `firn.`. What the
topic would not take is put into the warehouse and a header says where (`claim_check.py`).
"""

from collections.abc import Collection
from typing import Protocol

from ingest.decode.dead_letter import REASON, UNTIL
from ingest.decode.formats.registry import REPLAY
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.replay import ATTEMPT, origin_of
from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.claim_check import check_in
from ingest.kafka.internal_topic import ensure_topic
from ingest.kafka.unreadable import RejectedRange
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from lake.errors import Reason, Rejected, UnavailableError
from lake.settings import IngestSettings
from lake.storage import AnyStorage

LETTERS_FOLDER = "dead-letters"  # in the warehouse
DETAIL_CHARACTERS_MAX = 4_096  # it may quote the message
FLUSH_TIMEOUT_S = 60.0
QUEUE_KBYTES = 256 * 1024
OF_NO_TABLE = ""


def dead_part(record: RawRecord, rejected: Rejected) -> tuple[bytes | None, int | None]:
    """What of a message is dead: its value, or one of the records in it and the position of that among
    them."""
    return (rejected.value, rejected.index) if isinstance(rejected, RejectedRecord) else (record.value, None)


class Letters(Protocol):
    """Where dead letters go."""

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Takes a message, or the one bad record of several in it (a `RejectedRecord`); `flush` makes sure of
        it."""

    def flush(self, tables: Collection[str] | None = None, /) -> None:
        """Returns when every dead letter so far is durable; with `tables`, every one of these and of no
        table. Raises UnavailableError, FatalError; nothing may be committed then."""

    def mark(self) -> int:
        """A mark behind every dead letter so far, for `reached`."""

    def reached(self, mark: int, timeout_s: float, /) -> bool:
        """Whether every dead letter before a mark is durable, at the latest when the time is over. Raises
        FatalError."""


class DeadLetters:
    """Produces to the dead-letter topic with acks=all; `flush` returns when every dead letter is
    acknowledged."""

    def __init__(self, settings: IngestSettings, storage: AnyStorage, warehouse: str) -> None:
        self._topic = settings.internal_topics.dead_letters
        self._replay_topic = settings.internal_topics.replay
        self._settings = settings
        self._storage = storage
        self._bodies = f"{warehouse.rstrip('/')}/{LETTERS_FOLDER}"
        self._producer = AcknowledgedProducer(settings, self._topic, queue_kbytes=QUEUE_KBYTES)

    def ensure_topic(self) -> None:
        """Creates the topic, and the one that its dead letters are replayed to, or verifies them. Raises
        PrerequisiteError, UnavailableError."""
        for name in (self._topic, self._replay_topic):
            ensure_topic(self._settings, name)

    def send(self, source: Source, record: RawRecord, rejected: Rejected, table: str | None) -> None:
        """Queues one dead letter; `flush` makes sure of it.

        A message that came from the replay topic dies again under the coordinates it was first read at.
        """
        facts = {
            REASON: rejected.reason.value,
            "firn.detail": rejected.detail[:DETAIL_CHARACTERS_MAX],
            "firn.timestamp_ms": str(record.timestamp_ms),
        }
        value, index = dead_part(record, rejected)
        offset, headers = record.offset, record.headers
        replayed = (
            origin_of(headers) if source.form == REPLAY and rejected.reason is not Reason.FOREIGN else None
        )
        if replayed is not None:
            origin, headers = replayed
            index = index if origin.index is None else origin.index
            facts[ATTEMPT] = str(origin.attempt)
        topic, topic_id, partition, offset = (
            (source.topic, source.topic_id, source.partition, offset)
            if replayed is None
            else replayed[0].coordinates
        )
        facts |= {
            "firn.topic": topic,
            "firn.topic_id": topic_id,
            "firn.partition": str(partition),
            "firn.offset": str(offset),
        }
        if table is not None:
            facts["firn.table"] = table
        if index is not None:
            facts["firn.index"] = str(index)
        if isinstance(rejected, RejectedRange):
            facts[UNTIL] = str(rejected.until)
        kept = check_in(self._storage, self._bodies, value, record.key, headers)
        facts |= kept.places
        self._producer.send(
            kept.value,
            kept.key,
            [
                *kept.headers,
                *((name, text.encode("utf-8", "backslashreplace")) for name, text in facts.items()),
            ],
            of=table or OF_NO_TABLE,
        )

    def flush(self, tables: Collection[str] | None = None) -> None:
        """Waits until every dead letter is acknowledged; with `tables`, every one of these and of no table.
        Raises UnavailableError where the broker does not answer for now; nothing may be committed then."""
        left = (
            self._producer.flush(FLUSH_TIMEOUT_S)
            if tables is None
            else self._producer.wait({OF_NO_TABLE, *tables}, FLUSH_TIMEOUT_S)
        )
        self._producer.check("a dead letter")
        if left:
            raise UnavailableError(f"{left} dead letters are not acknowledged by topic {self._topic} yet")

    def mark(self) -> int:
        """A mark behind every dead letter so far, for `reached`."""
        return self._producer.mark()

    def reached(self, mark: int, timeout_s: float) -> bool:
        """Whether every dead letter before a mark is acknowledged, at the latest when the time is over."""
        reached = self._producer.reached(mark, timeout_s)
        self._producer.check("a dead letter")
        return reached
