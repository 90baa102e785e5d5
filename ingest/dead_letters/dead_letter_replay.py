"""Dead letters sent again: to the replay topic, which the ingesters read like any other, each at most once
per death.

A dead letter goes where the rules of its topic route it today, else to the table that could not take it; who
knows better says so. What would die again for certain is left alone and counted; so is a change of a row that
others have followed, and what is a row already, which it would double.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingest.dead_letters.later_changes import LaterChanges
from ingest.dead_letters.replay_batch import Ready, batches, by_table
from ingest.dead_letters.rows_there import Identity, RowsThere
from ingest.decode.dead_letter import DeadLetter
from ingest.decode.formats.registry import BATCH_RECORD
from ingest.decode.replay import Origin, origin_of, replay_headers
from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.aside import Aside
from ingest.kafka.internal_topic import ENVELOPE_BYTES, MESSAGE_BYTES_MAX, ensure_topic
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.mask.masks import mask_of
from ingest.mask.message_mask import MessageMask, Parts, withheld_of
from ingest.route.letter_tenants import LetterTenants
from ingest.route.router import DEFAULT_STREAM
from lake.catalog_client import CatalogClient
from lake.errors import FatalError, Reason, SettingsError, UnavailableError
from lake.lease import Lease, held_lease, lease_name
from lake.settings import FormatName, IngestSettings, TopicSettings
from lake.storage import AnyStorage
from lake.tenant import SYSTEM_TENANT, TableId, TenantId, from_identifier, parse_stream

FLUSH_TIMEOUT_S = 60.0
GIVEN_UP_MS = 300_000
QUEUE_KBYTES = 64 * 1024
IS_A_ROW = "already a row"
IS_REPLAYED = "replayed already"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where dead letters go instead of where the rules say; None: as the rules say."""

    tenant: TenantId | None = None
    stream: str | None = None


@dataclass(slots=True)
class ReplayResult:
    """How many dead letters were sent, by table, and how many were not, by the sentence that says why."""

    sent: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, object]:
        return {"replayed": self.sent.total(), "tables": dict(self.sent), "left": dict(self.left)}


class Replayer:
    """Sends dead letters again. `control` keeps leases; `catalog` and `storage` have the tables."""

    def __init__(
        self,
        settings: IngestSettings,
        reader: KafkaReader,
        control: CatalogClient,
        aside: Aside,
        catalog: CatalogClient,
        storage: AnyStorage,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._control = control
        self._aside = aside
        self._catalog = catalog
        self._storage = storage
        self._mac = TopicMac(settings)
        self._topics: Mapping[str, TopicSettings] = {topic.name: topic for topic in settings.topics}
        self._tenants = LetterTenants(settings)
        self._later = LaterChanges(settings, reader)
        self._masks: dict[tuple[str, FormatName], MessageMask | None] = {}

    def replay(
        self, letters: Iterable[DeadLetter], to: Destination, *, dry_run: bool = False, look: bool = True
    ) -> ReplayResult:
        """Sends dead letters; returns when every one is acknowledged. Raises RefusedError while another
        replay runs, UnavailableError, FatalError, SettingsError for what nobody may write to.

        An identity is sent once for each of its attempts, whoever asks how often: the replay topic itself
        remembers. With `look`, what is a row of its table already is not sent; where a table cannot be looked
        at (UnavailableError, RefusedError) nothing more is.
        """
        if to.tenant == SYSTEM_TENANT:
            raise SettingsError(f"the tenant {SYSTEM_TENANT.name!r} is Firn's own; send them elsewhere")
        if not dry_run:
            ensure_topic(self._settings, self._settings.internal_topics.replay)
        lease = f"{lease_name(self._settings)}.replay"
        with held_lease(
            self._control, lease, "another replay of this group's dead letters runs; wait for its end"
        ) as held:
            rows = RowsThere(self._catalog, self._storage, held.renew) if look else None
            attempts = self._attempts()
            sender = None if dry_run else _Sender(self._settings)
            result = ReplayResult()
            for batch in batches(self._ready(letters, to, attempts, result, held)):
                self._send(batch, rows, attempts, sender, result)
        return result

    def _attempts(self) -> dict[Identity, int]:
        """The newest attempt of every identity that the replay topic holds."""
        partitions = self._reader.partitions([self._settings.internal_topics.replay])
        attempts: dict[Identity, int] = {}
        for message in self._reader.read(
            {p: (end.start, end.end) for p, end in self._reader.ends(partitions).items()}
        ):
            if self._mac.is_own(message) and (found := origin_of(message.headers() or ())) is not None:
                origin = found[0]
                identity = (origin.topic_id, origin.partition, origin.offset, origin.index)
                attempts[identity] = max(origin.attempt, attempts.get(identity, 0))
        return attempts

    def _send(
        self,
        batch: Sequence[Ready],
        rows: RowsThere | None,
        attempts: dict[Identity, int],
        sender: "_Sender | None",
        result: ReplayResult,
    ) -> None:
        """Sends what of a batch is no row of its table; returns when all of it is acknowledged."""
        there = set[tuple[TableId, Identity]]()
        for table, records in by_table(batch).items():
            if rows is not None:
                there |= {(table, record) for record in rows.among(table, records)}
        for one in batch:
            letter, table = one.letter, one.table
            if (table, letter.identity) in there:
                result.left[IS_A_ROW] += 1
                continue
            if attempts.get(letter.identity, 0) > letter.attempt:  # one of its batch was the same
                result.left[IS_REPLAYED] += 1
                continue
            if sender is not None:
                sender.send(letter, one.value, replay_headers(self._origin(letter), table))
            attempts[letter.identity] = letter.attempt + 1
            result.sent[str(table)] += 1
        if sender is not None:
            sender.flush()

    def _ready(
        self,
        letters: Iterable[DeadLetter],
        to: Destination,
        attempts: Mapping[Identity, int],
        result: ReplayResult,
        held: Lease,
    ) -> Iterator[Ready]:
        """The dead letters that may be sent; the others are counted."""
        for letter in letters:
            held.renew()
            if attempts.get(letter.identity, 0) > letter.attempt:
                result.left[IS_REPLAYED] += 1
                continue
            found = self._ready_one(letter, to)
            if isinstance(found, Ready):
                yield found
            else:
                result.left[found] += 1

    def _ready_one(self, letter: DeadLetter, to: Destination) -> Ready | str:
        """What may be sent of a dead letter; else why nothing may."""
        if letter.foreign or letter.reason == Reason.FOREIGN.value:
            return "somebody else than Firn wrote it; send it to an input topic if it is wanted"
        if letter.until is not None:
            return "its batch cannot be read and no bytes were kept; send the records to their topic again"
        if letter.reason == Reason.WITHHELD.value:
            return "masking has kept its value nowhere; send the message to its topic again"
        topic = self._topic(letter)
        letter, value = self._masked(letter, letter.read_value(self._aside), topic)
        if withheld_of(letter.headers) is not None:
            return "masking would keep its value nowhere"
        if (refusal := self._refusal(value, topic)) is not None:
            return refusal
        table = self._destination(letter, value or b"", to)
        if table is None:
            return "no rule yields a tenant; say --to-tenant"
        if topic.has_changes and (late := self._later.why_late(letter, value, topic, table)) is not None:
            return late
        return Ready(letter, value, table)

    def _topic(self, letter: DeadLetter) -> TopicSettings:
        return self._topics.get(letter.was_topic, TopicSettings(name=letter.was_topic))

    def _masked(
        self, letter: DeadLetter, value: bytes | None, topic: TopicSettings
    ) -> tuple[DeadLetter, bytes | None]:
        """What may be sent of a dead letter by the rules of today; it may have died before there were any."""
        form = self._form(letter, topic)
        if (letter.was_topic, form) not in self._masks:
            read_so = topic.model_copy(update={"format": form})
            self._masks[letter.was_topic, form] = mask_of(self._settings, read_so, keeps_hashes=True)
        mask = self._masks[letter.was_topic, form]
        if mask is None:
            return letter, value
        table = self._tenants.table(letter, value) or _died_at(letter)
        parts = Parts(letter.key, letter.headers, value, letter.was_at_ms)
        left = mask.masked_one(parts, None if table is None else table.stream)
        return replace(letter, key=left.key, headers=left.headers), left.value

    def _form(self, letter: DeadLetter, topic: TopicSettings) -> FormatName:
        return topic.format if letter.index is None else BATCH_RECORD

    def _refusal(self, value: bytes | None, topic: TopicSettings) -> str | None:
        limit = min(self._settings.limits.record_bytes_max, MESSAGE_BYTES_MAX - ENVELOPE_BYTES)
        if not value:
            return None if topic.has_changes else "the message has no value"
        return (
            f"larger than {limit} bytes: raise limits.record_bytes_max (at most "
            f"{MESSAGE_BYTES_MAX - ENVELOPE_BYTES}) first"
            if len(value) > limit
            else None
        )

    def _destination(self, letter: DeadLetter, value: bytes, to: Destination) -> TableId | None:
        routed = self._tenants.table(letter, value) or _died_at(letter)
        if to.tenant is not None:
            return TableId(to.tenant, to.stream or (routed.stream if routed is not None else DEFAULT_STREAM))
        return routed if routed is None or to.stream is None else TableId(routed.tenant, to.stream)

    def _origin(self, letter: DeadLetter) -> Origin:
        topic = self._topic(letter)
        form = self._form(letter, topic)
        coordinates = (letter.was_topic, letter.was_topic_id, letter.was_partition, letter.was_offset)
        changes = topic.changes if topic.has_changes else None
        return Origin(*coordinates, letter.index, form, topic.time_zone, letter.attempt + 1, changes)


def _died_at(letter: DeadLetter) -> TableId | None:
    """The table that could not take a dead letter."""
    namespace, _, name = (letter.table or "").partition(".")
    tenant, stream = from_identifier(namespace), from_identifier(name)
    return (
        None
        if tenant is None or stream is None or not isinstance(parse_stream(stream), str)
        else TableId(TenantId(tenant), stream)
    )


class _Sender:
    """Produces to the replay topic."""

    def __init__(self, settings: IngestSettings) -> None:
        self._topic = settings.internal_topics.replay
        self._producer = AcknowledgedProducer(
            settings, self._topic, queue_kbytes=QUEUE_KBYTES, timeout_ms=GIVEN_UP_MS
        )

    def send(self, letter: DeadLetter, value: bytes | None, facts: list[tuple[str, bytes]]) -> None:
        """The timestamp is the message's first one: lateness is judged by it as it was before."""
        self._producer.send(value, letter.key, [*letter.headers, *facts], timestamp_ms=letter.was_at_ms)

    def flush(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if refusals := self._producer.refusals:
            raise FatalError(
                f"topic {self._topic} refuses {len(refusals)} dead letters: {refusals[0]}; mend the topic "
                "and "
                "replay again, none is sent twice"
            )
        if left:
            raise UnavailableError(
                f"{left} dead letters are not acknowledged by topic {self._topic}; replay again when the "
                "broker "
                "is well, none is sent twice"
            )
