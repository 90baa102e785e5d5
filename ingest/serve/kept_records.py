"""Messages of one tenant that Firn's own topics keep: dead letters, parked records, and dead letters on their
way back. For whoever erases.

Read whole and in order, a page at a time, because only the reader knows what it looks for.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from confluent_kafka import Message

from ingest.decode.dead_letter import DeadLetter, read_letter
from ingest.decode.replay import ATTEMPT, Headers, facts_behind
from ingest.kafka.aside import Aside
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.parking.parked_topic import read_parked
from ingest.route.letter_tenants import LetterTenants
from lake.clock import moment_of
from lake.errors import NotFoundError, ProtocolError
from lake.settings import MIB, REPLAY_STREAM, REPLAY_TENANT, IngestSettings

Kind = Literal["dead-letters", "parked", "replay"]
# Of one page: messages that were looked at, and bytes of those that are given.
LOOKED_AT_MAX = 20_000
PAGE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One message. `parking`: the id of the parking that it was parked under, of dead letters and replayed
    ones empty."""

    partition: int
    offset: int
    timestamp: datetime
    stream: str
    parking: str
    key: bytes | None
    headers: Headers
    value: bytes | None

    def to_json(self) -> dict[str, Any]:
        """Text as far as it is UTF-8; what is none shows as replacement characters."""
        texts = [_text(self.key), *(_text(content) for _, content in self.headers)]
        return {
            "id": f"{self.partition}:{self.offset}",
            "timestamp": self.timestamp.isoformat(),
            "stream": self.stream,
            "parking": self.parking,
            "value": _text(self.value),
            "beside": [text for text in texts if text],
        }


@dataclass(frozen=True, slots=True)
class Page:
    """`following`: where the next page begins (partition, offset), None at the end."""

    records: list[KeptRecord]
    following: tuple[int, int] | None


class KeptRecords:
    """Reads the topics. One thread at a time. `letters`, `parked`: where bodies of dead letters and parked
    records lie."""

    def __init__(self, settings: IngestSettings, reader: KafkaReader, letters: Aside, parked: Aside) -> None:
        self._topics: dict[Kind, str] = {
            "dead-letters": settings.internal_topics.dead_letters,
            "parked": settings.internal_topics.parked,
            "replay": settings.internal_topics.replay,
        }
        self._reader = reader
        self._letters_aside, self._parked_aside = letters, parked
        self._mac = TopicMac(settings)
        self._tenants = LetterTenants(settings)

    def page(self, kind: Kind, tenant: str, after: tuple[int, int] = (0, 0)) -> Page:
        """Messages of a tenant from a place on. Raises UnavailableError, NotFoundError where what a message
        has in the warehouse is gone."""
        found, size = list[KeptRecord](), 0
        for partition in self._reader.partitions([self._topics[kind]]):
            ends = self._reader.ends([partition])[partition]
            start = max(ends.start, after[1] if partition.partition == after[0] else 0)
            if partition.partition < after[0] or start >= ends.end:
                continue
            with closing(
                self._records(kind, partition, start, min(ends.end, start + LOOKED_AT_MAX))
            ) as records:
                for record in records:
                    if record is None or record[0] != tenant:
                        continue
                    found.append(record[1])
                    size += len(record[1].value or b"")
                    if size >= PAGE_BYTES:
                        return Page(found, (partition.partition, record[1].offset + 1))
            if start + LOOKED_AT_MAX < ends.end:
                return Page(found, (partition.partition, start + LOOKED_AT_MAX))
            after = (partition.partition + 1, 0)
            if size >= PAGE_BYTES // 2:
                return Page(found, after)
        return Page(found, None)

    def _records(self, kind: Kind, partition: KafkaPartition, start: int, end: int) -> Generator[Any]:
        read = {"dead-letters": self._letter, "parked": self._parked, "replay": self._replayed}[kind]
        with closing(self._reader.read({partition: (start, end)})) as messages:
            yield from map(read, messages)

    def _letter(self, message: Message) -> tuple[str | None, KeptRecord] | None:
        letter = read_letter(message, self._mac)
        if letter is None:
            return None
        key, headers = (
            (letter.key, letter.headers)
            if letter.envelope is None
            else self._letters_aside.read_envelope(letter.envelope)
        )
        when = moment_of(letter.was_at_ms)
        record = KeptRecord(letter.partition, letter.offset, when, "", "", key, headers, self._value(letter))
        return self._tenants.tenant(letter), record

    def _value(self, letter: DeadLetter) -> bytes | None:
        try:
            return letter.read_value(self._letters_aside)
        except NotFoundError:
            return letter.value  # erased with its dead letter, which the brokers still had to delete

    def _parked(self, message: Message) -> tuple[str | None, KeptRecord] | None:
        if not self._mac.is_own(message):
            return None
        try:
            parked = read_parked(message, self._parked_aside)
        except ProtocolError:
            return None
        record, when = parked.record, moment_of(parked.record.timestamp_ms)
        kept = KeptRecord(
            message.partition(),
            message.offset(),
            when,
            parked.table.stream,
            parked.parking,
            record.key,
            record.headers or (),
            record.value,
        )
        return parked.table.tenant.name, kept

    def _replayed(self, message: Message) -> tuple[str | None, KeptRecord] | None:
        found = facts_behind(cast("Any", message.headers()) or (), ATTEMPT)
        if found is None or not self._mac.is_own(message):
            return None
        facts, own = found
        when = moment_of(message.timestamp()[1])
        kept = KeptRecord(
            message.partition(),
            message.offset(),
            when,
            facts.get(REPLAY_STREAM, ""),
            "",
            message.key(),
            own,
            message.value(),
        )
        return facts.get(REPLAY_TENANT), kept


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
