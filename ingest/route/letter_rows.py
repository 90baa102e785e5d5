"""Dead letters as rows of `system.dead_letters`: of each message of the dead-letter topic one JSON object
with the columns of that table (`lake/system_tables.py`), which is then routed, converted and committed like
any other record.

The object says why, when and where a record died, whose it was, and how large; nothing that quotes it. It is
small, is never late (its time is the letter's own Kafka timestamp), and has no field that a table could
refuse. What cannot become a row even so makes no other letter (`ingest/dead_letters/letters_left.py`).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from confluent_kafka import Message

from ingest.decode.dead_letter import DeadLetter, any_letter
from ingest.kafka.topic_mac import TopicMac
from ingest.route.letter_tenants import LetterTenants
from lake.errors import Reason
from lake.isolation import isolate
from lake.settings import IngestSettings

TEXT_CHARACTERS_MAX = 300  # of one value; names of topics have 249, of tenants and streams 100 bytes
NUMBER_MAX = 2**63 - 1
_REASONS = frozenset(each.value for each in Reason)
_UNKNOWN = "unknown"  # the reason of a letter by another version, or of one that cannot be read
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LetterRows:
    """Makes of dead letters what their rows hold."""

    def __init__(self, settings: IngestSettings) -> None:
        self._mac = TopicMac(settings)
        self._tenants = LetterTenants(settings)

    def rows(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with their own coordinates and timestamps, each with its row as value, and neither key
        nor headers. Never fails for what is in one."""
        return [self._row(message) for message in messages]

    def _row(self, message: Message) -> Message:
        partition, offset = message.partition(), message.offset()
        facts = _head(f"{partition}:{offset}", _UNKNOWN, "a message")
        # Whatever is in a message, it must not stop the others.
        with isolate("letter.not_read", foreseen=(MemoryError,), partition=partition, offset=offset):
            facts = self._facts(any_letter(message, self._mac))
        died = _time(message.timestamp()[1])
        return Message(
            topic=message.topic(),
            partition=partition,
            offset=offset,
            value=orjson.dumps(facts if died is None else {"timestamp": died, **facts}),
            timestamp=message.timestamp(),
        )

    def _facts(self, letter: DeadLetter) -> dict[str, Any]:
        """What is said of a letter; what is not known, or fits no column, is left out."""
        reason = letter.reason if letter.reason in _REASONS else _UNKNOWN
        topic = _text(letter.was_topic)
        partition, offset = _number(letter.was_partition), _number(letter.was_offset)
        is_placed = partition is not None and offset is not None
        what = f"offset {offset} of partition {partition} of {topic}" if is_placed else "a message"
        tenant, stream = self._names(letter)
        facts = {
            **_head(letter.id, reason, what),
            "tenant": _text(tenant),
            "stream": _text(stream),
            "record_topic": topic,
            "record_topic_id": _text(letter.was_topic_id),
            "record_partition": partition,
            "record_offset": offset,
            "record_until": _number(letter.until),
            "record_index": _number(letter.index),
            "record_time": _time(letter.was_at_ms),
            "record_bytes": _number(letter.value_bytes),
            "key_bytes": None if letter.key is None else len(letter.key),
            "headers": len(letter.headers),
            "attempt": _number(letter.attempt),
            "in_warehouse": letter.body is not None or letter.envelope is not None,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _names(self, letter: DeadLetter) -> tuple[str | None, str | None]:
        """Names of tenant and stream, as the lists of dead letters have them."""
        with isolate(
            "letter.not_routed", foreseen=(MemoryError,), partition=letter.partition, offset=letter.offset
        ):
            return self._tenants.names(letter)
        return None, None


def _head(letter: str, reason: str, what: str) -> dict[str, Any]:
    return {"message": f"{reason}: {what} is dead letter {letter}", "letter": letter, "reason": reason}


def _text(text: str | None) -> str | None:
    """A text that JSON can hold, and of bounded length."""
    return text[:TEXT_CHARACTERS_MAX].encode("utf-8", "replace").decode() if text else None


def _number(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= NUMBER_MAX else None


def _time(ms: int) -> str | None:
    """A time that a calendar has, as RFC 3339."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat()
    except OverflowError:
        return None
