"""Dead letters as people look at them: newest first, by reason, topic, tenant and time; one of them whole."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ingest.decode.dead_letter import DeadLetter, any_letter
from ingest.kafka.kafka_reader import Ends, KafkaPartition, KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.route.letter_tenants import LetterTenants
from lake.clock import epoch_ms
from lake.errors import NotFoundError, SettingsError
from lake.settings import IngestSettings
from lake.tenant import TenantId, parse_stream, parse_tenant

STEP_RECORDS = 2_000


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
