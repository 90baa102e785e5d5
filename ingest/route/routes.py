"""Where a message goes by its topic's rules: to a table, or to the dead letters because no rule can be asked
about it. Before that it is masked, where its topic has rules for that, or made a row, where it is a dead
letter."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import structlog
from confluent_kafka import Message

from ingest.core.consumption import Group
from ingest.decode.formats.registry import REPLAY
from ingest.decode.replay import CHANGES
from ingest.kafka.topic_mac import TopicMac
from ingest.mask.masks import Masks
from ingest.mask.message_mask import withheld_of
from ingest.model.fault_point import ACTIONS, reach
from ingest.model.link import Counts
from ingest.model.raw_rows import Headers
from ingest.model.tenant_rate import Rates
from ingest.route.buffer import records_in
from ingest.route.letter_rows import LetterRows
from ingest.route.router import NAMES_MAX, Router, grouping_rules
from ingest.route.surplus import Surplus
from ingest.route.tenant_meter import TenantMeter
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings
from lake.table_layout import HISTORY_SUFFIX
from lake.tenant import TableId, parse_stream

_EMPTY = Rejected(Reason.EMPTY, "the message has no value")
_FOREIGN = Rejected(
    Reason.FOREIGN,
    "not written by Firn: it has no signature by one of signing_keys; what its headers say is not followed",
)
_UNFORESEEN = Rejected(
    Reason.UNSTORABLE,
    "an error that nobody foresaw while its tenant was looked for; the log has its trace, please report it",
)
log = structlog.get_logger()


def rules_to_group(settings: IngestSettings) -> dict[str, bytes]:
    """The topics of records whose messages the core can sort, each with its rules."""
    return {
        topic.name: rules
        for topic in settings.topics
        if topic.format != REPLAY
        and topic != settings.letters_topic  # rows are made of them first
        and not (topic.changes and topic.changes.history)  # messages of two tables each
        and topic.masking is None
        and (rules := grouping_rules(topic)) is not None
    }


def surplus_of_topics(settings: IngestSettings, rates: Rates, clock: Clock) -> dict[str, Surplus]:
    """What asks about limits before it masks, of the topics that want that."""
    meter = TenantMeter()
    return {
        topic.name: Surplus(topic, rates, meter, clock)
        for topic in settings.topics
        if topic.masking is not None and topic.masking.withholds_surplus
    }


class Routes:
    """The routers of all input topics."""

    def __init__(
        self, settings: IngestSettings, rates: Rates | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`rates`: who tells how much a tenant may send, where that is asked about before masking."""
        self._bytes_max = settings.limits.record_bytes_max
        self._mac = TopicMac(settings)
        self._replays = frozenset(topic.name for topic in settings.topics if topic.format == REPLAY)
        # There a message without a value says that the row of its key is gone.
        self._changes = frozenset(topic.name for topic in settings.topics if topic.has_changes)
        self._routers = {topic.name: Router(topic) for topic in settings.topics}
        self._with_history = frozenset(t.name for t in settings.topics if t.changes and t.changes.history)
        self._histories: dict[TableId, TableId | Rejected] = {}
        self._named: dict[int, TableId | Rejected] = {}
        self._masks = Masks(settings)
        self._letters = {t.name: LetterRows(settings) for t in settings.topics if t == settings.letters_topic}
        self._surplus = {} if rates is None else surplus_of_topics(settings, rates, clock)

    def target_of(self, message: Message) -> TableId | Rejected:
        """The table of a message, or why it belongs to none."""
        topic = message.topic()
        if topic in self._replays and not self._mac.is_own(message):
            return _FOREIGN
        return self.target(topic, message.key(), message.headers() or (), message.value())

    def target(
        self, topic: str, key: bytes | None, headers: Headers, value: bytes | None
    ) -> TableId | Rejected:
        """The same of a message of an ordinary topic, by its parts."""
        if not value:
            if self._masks.of(topic) is not None and (withheld := withheld_of(headers)) is not None:
                return withheld
            if not self._may_be_empty(topic, headers):
                return _EMPTY
        if value and len(value) > self._bytes_max:
            return Rejected(
                Reason.TOO_LARGE, f"{len(value)} bytes, limits.record_bytes_max is {self._bytes_max}"
            )
        try:
            target = self._routers[topic].target(key, headers, value)
        except MemoryError:
            raise
        except Exception:  # whatever is in a message, it must not stop the others
            log.exception("message.not_routed", topic=topic)
            return _UNFORESEEN
        if topic in self._with_history and isinstance(target, TableId):
            history = self._history_of(target)
            return history if isinstance(history, Rejected) else target
        return target

    def _may_be_empty(self, topic: str, headers: Headers) -> bool:
        """Whether a message without a value says something."""
        return topic in self._changes or (
            topic in self._replays and any(name == CHANGES for name, _ in headers)
        )

    def masked(self, topic: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Messages of one topic as they may be kept: masked, or the rows of dead letters. The other methods
        want them so, but for `sort`."""
        if (letters := self._letters.get(topic)) is not None:
            return letters.rows(messages)
        mask = self._masks.of(topic)
        return messages if mask is None else mask.masked(messages, self._stream_of)

    def _stream_of(self, message: Message) -> str | None:
        """The stream of a message that is not masked yet, and of which nothing must be told."""
        try:
            target = self._routers[message.topic()].target(
                message.key(), message.headers() or (), message.value()
            )
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - it is routed again, masked, and what is wrong is told then
            return None
        return target.stream if isinstance(target, TableId) else None

    def take_masked(self) -> Counts:
        """What was masked since the last call."""
        return self._masks.take_counts()

    def sort(self, topic: str, messages: Sequence[Message]) -> dict[TableId | Rejected, list[Message]]:
        """Messages of one topic by where they go, in order, masked; those whose values are withheld since
        their tenant has sent too much go where they would go else, and have none."""
        surplus = self._surplus.get(topic)
        if surplus is None:
            return self._sorted(topic, self.masked(topic, messages))
        places, mask = surplus.places(messages), self._masks.of(topic)
        assert mask is not None
        left = mask.masked(messages, self._stream_of, places)
        without = {left[at].offset(): surplus.target(left[at]) for at in places if not left[at].value()}
        return self._sorted(topic, left, without)

    def _sorted(
        self,
        topic: str,
        messages: Sequence[Message],
        without: Mapping[int, TableId | Rejected] = MappingProxyType({}),
    ) -> dict[TableId | Rejected, list[Message]]:
        """Masked messages of one topic by where they go. `without`: offsets of those whose values are
        withheld, and where these go."""
        target_of, found = self.target, dict[TableId | Rejected, list[Message]]()
        signed = topic in self._replays
        for message in messages:
            target = without.get(message.offset()) if without else None
            target = target or (
                self.target_of(message)
                if signed
                else target_of(topic, message.key(), message.headers() or (), message.value())
            )
            if (others := found.get(target)) is None:
                found[target] = [message]
            else:
                others.append(message)
            if ACTIONS:
                reach("routed_in_batch")
        return self._and_histories(found) if topic in self._with_history else found

    def target_of_group(self, topic: str, group: Group) -> TableId | Rejected:
        """Where messages go for which the rules of their topic find one name."""
        target = self._named.get(group.name)
        if target is None:
            if len(self._named) >= NAMES_MAX:
                self._named.clear()
            _, _, _, key, headers, value = next(records_in(group.rows, group.values, group.envelopes))
            target = self._named[group.name] = self.target(topic, key, headers, value)
        return target

    def goes_to(self, message: Message, table: TableId) -> bool:
        """Whether a table has a message: its target, and the history beside that."""
        target = self.target_of(message)
        if not isinstance(target, TableId) or target == table:
            return target == table
        return message.topic() in self._with_history and self._history_of(target) == table

    def _and_histories(
        self, found: dict[TableId | Rejected, list[Message]]
    ) -> dict[TableId | Rejected, list[Message]]:
        """The same with the histories of the tables: each has its table's messages, and marks of its own."""
        with_histories = dict(found)
        for target, messages in found.items():
            history = self._history_of(target) if isinstance(target, TableId) else target
            if isinstance(history, TableId) and history != target:
                others = with_histories.get(history, [])
                with_histories[history] = sorted([*others, *messages], key=lambda each: each.offset())
        return with_histories

    def _history_of(self, table: TableId) -> TableId | Rejected:
        """The table beside a table; a history has none, and is its own."""
        history = self._histories.get(table)
        if history is None:
            beside = table.stream.endswith(HISTORY_SUFFIX)
            stream = parse_stream(table.stream if beside else table.stream + HISTORY_SUFFIX)
            history = stream if isinstance(stream, Rejected) else TableId(table.tenant, stream)
            if len(self._histories) >= NAMES_MAX:
                self._histories.clear()
            self._histories[table] = history
        return history
