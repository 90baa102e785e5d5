"""Whether a change of a row that became a dead letter may still be applied: not where a later change of its
key, or a truncate, is in its partition.

A later change of the key that made a row is noticed where the replay is committed, too; one that deleted it
has left nothing to notice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from confluent_kafka import Message

from ingest.changes.change import Change, Op
from ingest.convert.read_changes import ReadingTerms, read_change
from ingest.decode.dead_letter import DeadLetter
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader
from ingest.model.source import Source
from ingest.route.routes import Routes
from lake.settings import ChangeOrder, IngestSettings, TopicSettings
from lake.tenant import TableId

TRUNCATE = "a truncate would remove what came since; empty the table at its source"
FOLLOWED = "later changes of its key are in its topic, which it would undo"
# A table, and the key's columns with their values; no columns: a truncate.
Key = tuple[TableId, tuple[tuple[str, str], ...]]
# What orders changes of one key: NULL before everything.
Order = tuple[int, ...]
_NO_ORDER: Order = ()


@dataclass
class LaterChanges:
    """What partitions hold, each read once, from the first dead letter that is asked about."""

    settings: IngestSettings
    reader: KafkaReader
    _last: dict[KafkaPartition, tuple[int, dict[Key, Order]]] = field(default_factory=dict)

    def why_late(
        self, letter: DeadLetter, value: bytes | None, topic: TopicSettings, table: TableId
    ) -> str | None:
        """Why a change is not to be replayed to a table; None where it is, or is no change that can be read.
        Raises RegistryUnavailableError, UnavailableError."""
        changes = topic.changes
        if changes is None or changes.mode in ("history", "first_wins"):
            return None
        source = Source.of(topic, letter.was_topic_id, letter.was_partition)
        change = read_change(letter.key, value, letter.headers, source, self._terms)
        if not isinstance(change, Change):
            return None
        if change.op is Op.TRUNCATE:
            return TRUNCATE
        last = self._last_of(source, letter.was_offset)
        own = _order(change, letter.was_offset, changes.order_by)
        is_late = any(last.get((table, key), own) > own for key in _keys(change))
        return FOLLOWED if is_late or last.get((table, ()), (-1,)) > (letter.was_offset,) else None

    @cached_property
    def _terms(self) -> ReadingTerms:
        return ReadingTerms.of(self.settings)

    @cached_property
    def _routes(self) -> Routes:
        return Routes(self.settings)

    def _last_of(self, source: Source, offset: int) -> Mapping[Key, Order]:
        """The greatest order of each key behind an offset; of a truncate its offset."""
        partition = KafkaPartition(source.topic, source.topic_id, source.partition)
        first, last = self._last.get(partition, (None, {}))
        if first is None or offset < first:
            last = {}
            if partition in self.reader.partitions([source.topic]):
                ends = self.reader.ends([partition])[partition]
                for message in self.reader.read({partition: (max(offset + 1, ends.start), ends.end)}):
                    self._note(message, source, last)
            self._last[partition] = offset, last
        return last

    def _note(self, as_sent: Message, source: Source, last: dict[Key, Order]) -> None:
        (message,) = self._routes.masked(source.topic, [as_sent])
        table = self._routes.target_of(message)
        read = read_change(message.key(), message.value(), message.headers() or (), source, self._terms)
        if not isinstance(table, TableId) or not isinstance(read, Change) or source.changes is None:
            return
        order_by = "offset" if read.op is Op.TRUNCATE else source.changes.order_by
        order = _order(read, message.offset(), order_by)
        for key in [()] if read.op is Op.TRUNCATE else _keys(read):
            last[table, key] = max(order, last.get((table, key), _NO_ORDER))


def _order(change: Change, offset: int, order_by: ChangeOrder) -> Order:
    if order_by == "offset":
        return (offset,)
    if order_by == "position":
        return change.position or _NO_ORDER
    return _NO_ORDER if change.time_us is None else (change.time_us,)


def _keys(change: Change) -> list[tuple[tuple[str, str], ...]]:
    """The keys that a change is about."""
    cells = [change.key] if change.old_key is None else [change.key, change.old_key]
    return [tuple(sorted((name, str(value)) for name, value in each.values.items())) for each in cells]
