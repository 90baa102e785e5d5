"""Dead letters as people look at them: newest first, by reason, topic, tenant and time; one of them whole."""

import base64
import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from confluent_kafka import Message

from ingest.dead_letters.dead_letter import REASON, UNTIL
from ingest.decode.replay import ATTEMPT, Headers, facts_behind
from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import BODY, ENVELOPE
from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.route.router import Envelope, Router
from lake.clock import epoch_ms, moment_of
from lake.errors import NotFoundError, Reason, SettingsError
from lake.settings import IngestSettings
from lake.tenant import TableId, TenantId, from_identifier, parse_stream, parse_tenant

STEP_RECORDS = 2_000
SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter: the message that died, and what is known of its death. `partition`, `offset` are the
    letter's own and name it.

    `was_*` are the coordinates of the message; `index` that of the one bad record in it, whose bytes are then
    the value. `body`: where the value lies, when it was too large for the topic. `headers` are the message's
    own. `attempt`: how often it had been replayed before it died again.
    """

    partition: int
    offset: int
    died: datetime
    reason: str
    detail: str
    was_topic: str
    was_topic_id: str
    was_partition: int
    was_offset: int
    was_at_ms: int
    index: int | None
    table: str | None
    body: str | None
    envelope: str | None
    attempt: int
    key: bytes | None
    headers: Headers
    value: bytes | None
    value_bytes: int | None
    until: int | None = None  # of a dead letter that stands for offsets nobody can read: the one behind them
    foreign: bool = False  # somebody else put it into the topic; then nothing is known but itself
    tenant: str | None = None  # as far as anybody can tell

    def shortened(self) -> "DeadLetter":
        """With the beginning of its value only: a page of dead letters must not hold gigabytes."""
        return self if self.value is None else replace(self, value=self.value[:SHOWN_BYTES])

    @property
    def id(self) -> str:
        """As `show` and `replay` take it."""
        return f"{self.partition}:{self.offset}"

    @property
    def identity(self) -> tuple[str, int, int, int | None]:
        """Of the record that died: topic id, partition, offset, index."""
        return self.was_topic_id, self.was_partition, self.was_offset, self.index

    def read_value(self, aside: Aside) -> bytes | None:
        """The message's value, from the warehouse where it was put aside. Raises NotFoundError,
        UnavailableError, RefusedError."""
        return self.value if self.body is None else aside.read(self.body)

    def to_json(self) -> dict[str, Any]:
        """All but the value and the headers."""
        return {
            "id": self.id,
            "died": _text(self.died),
            "reason": self.reason,
            "detail": self.detail,
            "topic": self.was_topic,
            "topic_id": self.was_topic_id,
            "partition": self.was_partition,
            "offset": self.was_offset,
            "until": self.until,
            "foreign": self.foreign,
            "index": self.index,
            "timestamp": _text(moment_of(self.was_at_ms)),
            "table": self.table,
            "tenant": self.tenant,
            "attempt": self.attempt,
            "bytes": self.value_bytes,
            "body": self.body,
            "envelope": self.envelope,
            "begins": None
            if self.value is None
            else self.value[:SHOWN_BYTES].decode("utf-8", "backslashreplace"),
        }

    def to_json_whole(self, aside: Aside) -> dict[str, Any]:
        """Everything; bytes in base64, and as text where they are UTF-8. Raises NotFoundError,
        UnavailableError, RefusedError."""
        value = self.read_value(aside)
        key, own = (self.key, self.headers) if self.envelope is None else aside.read_envelope(self.envelope)
        headers = [{"name": name, **_bytes("value", content)} for name, content in own]
        return {
            **self.to_json(),
            "bytes": None if value is None else len(value),
            "headers": headers,
            **_bytes("key", key),
            **_bytes("value", value),
        }


def _bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None, f"{name}_base64": None}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(content).decode()}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def any_letter(message: Message, mac: TopicMac) -> DeadLetter:
    """A message of the dead-letter topic, whoever wrote it. Of what Firn did not write nothing is believed:
    it has no tenant, and no body elsewhere."""
    letter = read_letter(message, mac)
    if letter is not None:
        return letter
    value, headers = message.value(), message.headers() or ()
    return DeadLetter(
        partition=message.partition(),
        offset=message.offset(),
        died=moment_of(message.timestamp()[1]),
        reason=Reason.FOREIGN.value,
        detail=(
            "somebody else than Firn put it into the topic: it has no signature by one of signing_keys, and "
            "what its headers say is not followed"
        ),
        was_topic=message.topic(),
        was_topic_id="",
        was_partition=message.partition(),
        was_offset=message.offset(),
        was_at_ms=message.timestamp()[1],
        index=None,
        table=None,
        body=None,
        envelope=None,
        attempt=0,
        key=message.key(),
        headers=headers,
        value=value,
        value_bytes=None if value is None else len(value),
        foreign=True,
    )


def read_letter(message: Message, mac: TopicMac) -> DeadLetter | None:
    """A message of the dead-letter topic; None where it is something that Firn has not put there."""
    found = facts_behind(message.headers() or (), REASON)
    if found is None or not mac.is_own(message):
        return None
    facts, own = found
    try:
        return DeadLetter(
            partition=message.partition(),
            offset=message.offset(),
            died=moment_of(message.timestamp()[1]),
            reason=facts[REASON],
            detail=facts.get("firn.detail", ""),
            was_topic=facts["firn.topic"],
            was_topic_id=facts["firn.topic_id"],
            was_partition=int(facts["firn.partition"]),
            was_offset=int(facts["firn.offset"]),
            was_at_ms=int(facts["firn.timestamp_ms"]),
            index=int(facts["firn.index"]) if "firn.index" in facts else None,
            table=facts.get("firn.table"),
            body=facts.get(BODY),
            envelope=facts.get(ENVELOPE),
            attempt=int(facts.get(ATTEMPT, "0")),
            key=message.key(),
            headers=own,
            value=message.value(),
            value_bytes=None if message.value() is None else len(message.value()),
            until=int(facts[UNTIL]) if UNTIL in facts else None,
        )
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are wanted; what is None does not matter. `since` and `until` bound the time of
    death, half-open."""

    reason: str | None = None
    topic: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_all(self) -> bool:
        return self == LetterFilter()

    def takes(self, letter: DeadLetter) -> bool:
        """Whether it is wanted, whosever it is."""
        return (
            self.reason in (None, letter.reason)
            and self.topic in (None, letter.was_topic)
            and (self.since is None or letter.died >= self.since)
            and (self.until is None or letter.died < self.until)
        )


class LetterTenants:
    """Whose a dead letter is: the table that could not take it, else what the rules of its topic say
    today."""

    def __init__(self, settings: IngestSettings) -> None:
        self._routers = {topic.name: Router(topic) for topic in settings.topics}

    def table(self, letter: DeadLetter, value: bytes | None) -> TableId | None:
        """The table that its topic's rules name now; None where they name none, or the topic is not in the
        settings any more."""
        router = self._routers.get(letter.was_topic)
        target = (
            router.route(Envelope(letter.was_topic, letter.key, letter.headers, value))
            if router is not None
            else None
        )
        return target if isinstance(target, TableId) else None

    def tenant(self, letter: DeadLetter) -> str | None:
        """The tenant's name, as far as anybody can tell."""
        if letter.foreign:
            return None
        if letter.table is not None:
            return from_identifier(letter.table.partition(".")[0])
        table = self.table(letter, letter.value)
        return None if table is None else table.tenant.name


class DeadLetterBox:
    """The dead-letter topic, read. One thread at a time."""

    def __init__(self, settings: IngestSettings, reader: KafkaReader) -> None:
        self._topic = settings.internal_topics.dead_letters
        self._reader = reader
        self._mac = TopicMac(settings)
        self._tenants = LetterTenants(settings)

    def newest(
        self, wanted: LetterFilter, limit: int, before: Mapping[int, int] | None = None
    ) -> tuple[list[DeadLetter], dict[int, int] | None]:
        """At most `limit` dead letters, newest first, shortened; and where to go on (as `before`: partition
        -> offset), None at the end."""
        ends = self._ends(wanted)
        left = {p: min(end.end, (before or {}).get(p.partition, end.end)) for p, end in ends.items()}
        found: list[DeadLetter] = []
        while len(found) < limit and any(left[p] > ends[p].start for p in left):
            steps = {p: (max(ends[p].start, at - STEP_RECORDS), at) for p, at in left.items()}
            step, room = (
                _newest_first(letter.shortened() for letter in self._read(steps, wanted)),
                limit - len(found),
            )
            found += step[:room]
            unshown = {letter.partition: letter.offset + 1 for letter in reversed(step[room:])}
            left = {p: unshown.get(p.partition, start) for p, (start, _) in steps.items()}
        more = any(left[p] > ends[p].start for p in left)
        return found, {p.partition: at for p, at in left.items()} if more else None

    def all(self, wanted: LetterFilter) -> Iterator[DeadLetter]:
        """Every dead letter wanted that is there now, per partition in order."""
        yield from self._read({p: (end.start, end.end) for p, end in self._ends(wanted).items()}, wanted)

    def one(self, letter_id: str) -> DeadLetter:
        """The dead letter of an id (`partition:offset`). Raises NotFoundError, SettingsError."""
        partition, offset = parse_id(letter_id)
        topic_partition = next(
            (p for p in self._reader.partitions([self._topic]) if p.partition == partition), None
        )
        message = None
        if (
            topic_partition is not None
            and self._reader.ends([topic_partition])[topic_partition].start
            <= offset
            < self._reader.ends([topic_partition])[topic_partition].end
        ):
            message = next(iter(self._reader.read({topic_partition: (offset, offset + 1)})), None)
        if message is None:
            raise NotFoundError(
                f"topic {self._topic} has no dead letter {letter_id}; `python -m ingest dead-letters list` "
                "shows which there are"
            )
        letter = any_letter(message, self._mac)
        return replace(letter, tenant=self._tenants.tenant(letter))

    def _ends(self, wanted: LetterFilter) -> dict[KafkaPartition, Ends]:
        """The offsets to look at; times narrow them down, which the brokers find by their time index."""
        partitions = self._reader.partitions([self._topic])
        ends = self._reader.ends(partitions)
        if wanted.since is not None:
            first = self._reader.from_time(partitions, epoch_ms(wanted.since))
            ends = {p: Ends(max(end.start, first[p]), end.end) for p, end in ends.items()}
        return ends

    def _read(
        self, ranges: Mapping[KafkaPartition, tuple[int, int]], wanted: LetterFilter
    ) -> Iterator[DeadLetter]:
        for message in self._reader.read(ranges):
            letter = any_letter(message, self._mac)
            if not wanted.takes(letter):
                continue
            letter = replace(letter, tenant=self._tenants.tenant(letter))
            if wanted.tenant in (None, letter.tenant):
                yield letter


def _newest_first(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Of each partition in the reverse of its own order, between partitions by time."""
    by_partition: dict[int, list[DeadLetter]] = {}
    for letter in letters:
        by_partition.setdefault(letter.partition, []).append(letter)
    return list(
        heapq.merge(*map(reversed, by_partition.values()), key=lambda letter: letter.died, reverse=True)
    )


def parse_id(letter_id: str) -> tuple[int, int]:
    """Partition and offset of `partition:offset`. Raises SettingsError."""
    partition, _, offset = letter_id.partition(":")
    if not (partition.isdecimal() and offset.isdecimal() and len(letter_id) < 40):
        raise SettingsError(
            f"{letter_id!r} is no id of a dead letter; it looks like 0:42, as `dead-letters list` shows it"
        )
    return int(partition), int(offset)


def known_tenant(name: str) -> TenantId:
    """A tenant's name as people give it. Raises SettingsError."""
    parsed = parse_tenant(name)
    if not isinstance(parsed, TenantId):
        raise SettingsError(f"tenant: {parsed.detail}")
    return parsed


def known_stream(name: str) -> str:
    """A stream's name as people give it. Raises SettingsError."""
    parsed = parse_stream(name)
    if not isinstance(parsed, str):
        raise SettingsError(f"stream: {parsed.detail}")
    return parsed
