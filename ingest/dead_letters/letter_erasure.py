"""Dead letters erased for good. Kafka deletes only from a topic's beginning, so the topic is written anew in
front of that:

1. the ends of the topic as they are now; everything below them is looked at, what comes meanwhile is not
  touched
2. every message that stays is produced again, byte for byte (key, value, headers, timestamp) into its own
   partition, and acknowledged; Firn's own are signed anew, what somebody else wrote stays foreign
3. what the erased dead letters have in the warehouse is deleted, as far as it lies in the dead letters' own
  folder and no other dead letter names it
4. the brokers delete every record below the ends

A crash between 2 and 4 leaves dead letters twice, with the same identity, which readers expect; the next
erasure copies each but once. Nothing that stays is ever deleted before its copy is acknowledged. Dead letters
have new ids afterwards.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from confluent_kafka import Message

from ingest.decode.dead_letter import DeadLetter, read_letter
from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.aside import Aside
from ingest.kafka.header_workaround import UNREADABLE
from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader
from ingest.kafka.topic_mac import TopicMac, without_mac
from ingest.route.letter_tenants import LetterTenants
from lake.catalog_client import CatalogClient
from lake.errors import FatalError, NotFoundError, UnavailableError
from lake.lease import Lease, held_lease, lease_name
from lake.settings import IngestSettings

FLUSH_TIMEOUT_S = 300.0
GIVEN_UP_MS = 300_000
QUEUE_KBYTES = 64 * 1024
log = structlog.get_logger()
Wanted = Callable[[DeadLetter], bool]


@dataclass(slots=True)
class ErasedLetters:
    """What an erasure did, or would do. `by_reason`: erased dead letters by the reason they died of.
    `bodies`: objects deleted from the warehouse."""

    by_reason: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    repeated: int = 0
    bodies: int = 0

    @property
    def erased(self) -> int:
        return self.by_reason.total()

    def to_json(self) -> dict[str, Any]:
        return {
            "erased": self.erased,
            "by_reason": dict(self.by_reason),
            "kept": self.kept,
            "repeated": self.repeated,
            "bodies": self.bodies,
        }


class LetterErasure:
    """Erases dead letters. One thread at a time. `aside`: where their bodies lie, which go with them."""

    def __init__(
        self, settings: IngestSettings, reader: KafkaReader, catalog: CatalogClient, aside: Aside
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._catalog = catalog
        self._aside = aside
        self._mac = TopicMac(settings)
        self._tenants = LetterTenants(settings)

    def erase(self, wanted: Wanted, *, tenant: str | None = None, dry_run: bool = False) -> ErasedLetters:
        """Erases the dead letters that are wanted (of a tenant, None: whosever). Raises RefusedError while
        dead letters are replayed or erased elsewhere, UnavailableError, FatalError; nothing is deleted then,
        and it may be run again."""
        lease = f"{lease_name(self._settings)}.replay"
        with held_lease(
            self._catalog,
            lease,
            "a replay or another erasure of this group's dead letters runs; wait for its end",
        ) as held:
            partitions = self._reader.partitions([self._settings.internal_topics.dead_letters])
            ends = self._reader.ends(partitions)  # 1
            takes = self._takes(wanted, tenant)
            result, gone = self._look(ends, takes, held)
            if dry_run or not result.erased:
                return result
            named = self._copy(ends, takes, held, result)  # 2
            result.bodies = self._aside.delete(gone - named)  # 3
            self._reader.delete_below({partition: each.end for partition, each in ends.items()})  # 4
            log.info(
                "letters.erased",
                topic=self._settings.internal_topics.dead_letters,
                erased=result.erased,
                kept=result.kept,
                bodies=result.bodies,
            )
            return result

    def _takes(self, wanted: Wanted, tenant: str | None) -> Wanted:
        return lambda letter: (tenant is None or self._tenants.tenant(letter) == tenant) and wanted(letter)

    def _look(
        self, ends: Mapping[KafkaPartition, Ends], takes: Wanted, held: Lease
    ) -> tuple[ErasedLetters, set[str]]:
        """Counts, and gives the objects that the erased dead letters name."""
        result, gone = ErasedLetters(), set[str]()
        for _, letter in self._messages(ends):
            held.renew()
            if letter is not None and takes(letter):
                result.by_reason[letter.reason] += 1
                gone |= _places(letter)
            else:
                result.kept += 1
        return result, gone

    def _copy(
        self, ends: Mapping[KafkaPartition, Ends], takes: Wanted, held: Lease, result: ErasedLetters
    ) -> set[str]:
        """Produces what stays, each but once, and returns when all is acknowledged; gives the objects that it
        names."""
        producer = AcknowledgedProducer(
            self._settings,
            self._settings.internal_topics.dead_letters,
            queue_kbytes=QUEUE_KBYTES,
            timeout_ms=GIVEN_UP_MS,
        )
        seen, named = set[bytes](), set[str]()
        for message, letter in self._messages(ends):
            held.renew()
            if letter is not None:
                if takes(letter):
                    continue
                if (
                    print_ := _fingerprint(message)
                ) in seen:  # copied by an erasure that did not come to its end
                    result.repeated += 1
                    continue
                seen.add(print_)
                named |= _places(letter)
            headers = cast("Any", message.headers()) or ()
            if (
                headers == UNREADABLE
            ):  # none of Firn's: nobody can read its headers, and so nobody can copy them
                log.warning(
                    "letters.unreadable_headers", partition=message.partition(), offset=message.offset()
                )
            elif letter is not None:
                headers = without_mac(
                    headers
                    # it is signed again: what was written before there were keys would be foreign at its new
                    # offset
                )
            where, is_own = cast("int", message.partition()), letter is not None
            producer.send(
                message.value(),
                message.key(),
                headers,
                partition=where,
                timestamp_ms=message.timestamp()[1],
                sign=is_own,
            )
        left = producer.flush(FLUSH_TIMEOUT_S)
        topic = self._settings.internal_topics.dead_letters
        if refusals := producer.refusals:
            raise FatalError(
                f"topic {topic} refuses {len(refusals)} copies: {refusals[0]}; nothing was deleted, run it "
                "again when the topic is mended"
            )
        if left:
            raise UnavailableError(
                f"the copies of {left} dead letters are not acknowledged by topic {topic}; nothing was "
                "deleted, "
                "run it again"
            )
        return named

    def _messages(self, ends: Mapping[KafkaPartition, Ends]) -> Iterator[tuple[Message, DeadLetter | None]]:
        for message in self._reader.read(
            {partition: (each.start, each.end) for partition, each in ends.items()}
        ):
            yield message, read_letter(message, self._mac)


def holds(letter: DeadLetter, text: str, aside: Aside) -> bool:
    """Whether a text occurs, in any case, in what a dead letter carries: its value, key and headers, or why
    it died."""
    wanted = text.casefold()
    value, key, headers = letter.value, letter.key, letter.headers
    with suppress(NotFoundError):
        value = letter.read_value(aside)
    with suppress(NotFoundError):
        key, headers = (key, headers) if letter.envelope is None else aside.read_envelope(letter.envelope)
    parts = [
        value,
        key,
        *(content for _, content in headers),
        *(name.encode() for name, _ in headers),
        letter.detail.encode(),
    ]
    return any(wanted in part.decode("utf-8", "replace").casefold() for part in parts if part)


def _places(letter: DeadLetter) -> set[str]:
    return {uri for uri in (letter.body, letter.envelope) if uri}


def _fingerprint(message: Message) -> bytes:
    """The same for two messages exactly when one is a copy of the other."""
    digest = hashlib.sha256()
    headers = cast("Any", message.headers()) or ()
    flat = [part for name, content in headers for part in (name.encode(), content)]
    for part in (message.key(), message.value(), *flat):
        digest.update(b"\x00" if part is None else b"\x01" + len(part).to_bytes(8, "big") + part)
    digest.update(f"{message.partition()} {message.timestamp()[1]}".encode())
    return digest.digest()
