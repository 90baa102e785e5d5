"""A worker's line from Kafka to written files, in one place; what it writes, the node's one committer commits.

    consumer -> router -> buffer -> (shape | decoder, row) -> converter -> writer -> link ~> committer -> offsets

The order of durability of a flush; each step is complete before the next begins:

    1  data files are synced
    2  dead letters are acknowledged by the broker (acks=all)
    3  tables are committed, each with its marks (committer.py)
    4  the group's offsets are stored

A crash before 3 leaves files nobody refers to. A crash between 2 and 3 repeats dead letters with the same coordinates.
A crash between 3 and 4 reads messages again, which the marks then skip.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Message

from ingest.buffer import Buffers, RawRecord, TableBuffer
from ingest.consumer import InputTopics
from ingest.converter import Converted, ConverterLimits, convert
from ingest.dead_letter import DeadLetters
from ingest.formats.rejected_record import RejectedRecord
from ingest.link import Counts, Outcome, TableView, WrittenFlush, shared_schema
from ingest.offsets import Offsets
from ingest.router import Envelope, Router
from ingest.row import TimeLimits
from ingest.shape import Shapes
from ingest.writer import write_files
from lake.clock import Clock
from lake.errors import Reason, Rejected
from lake.marks import Range, TopicPartition
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

# Tables written together: their files are synced by one call and their new columns asked for in one question.
GROUP_TABLES = 256
GROUP_BYTES = 64 * 1024 * 1024


class CommitLink(Protocol):
    """The committer as a worker sees it."""

    def open(self, tables: Sequence[TableId]) -> Mapping[TableId, TableView]:
        """Views of tables; those that do not exist yet get their uuid and location."""

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        """Schemas with columns for new names (name -> original path)."""

    def submit(self, flushes: Sequence[WrittenFlush]) -> None:
        """Hands flushes over; what becomes of them comes by `Pipeline.settle`."""


@dataclass(slots=True)
class Flush:
    """Messages cut from one table's buffer. `ends`: per topic-partition the offset after the last message fully routed at the cut."""

    table: TableId
    buffer: TableBuffer
    ends: Mapping[TopicPartition, int]
    dead_lettered: bool = False


class Pipeline:
    """The stages of one worker. Not thread-safe: one thread calls everything."""

    def __init__(
        self, settings: IngestSettings, topics: InputTopics, link: CommitLink, dead_letters: DeadLetters, storage: AnyStorage, clock: Clock, bytes_max: int
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._link = link
        self._dead_letters = dead_letters
        self._storage = storage
        self._clock = clock
        self._bytes_max = bytes_max
        self._routers = {topic.name: Router(topic) for topic in settings.topics}
        self._limits = _limits(settings)
        self._shapes = Shapes()
        self._views: dict[TableId, TableView] = {}
        self._in_flight: dict[TableId, Flush] = {}
        self.buffers = Buffers()
        self.offsets = Offsets()
        self._delivered: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        self._absorbed = self._rows_with_errors = 0

    # ---- in

    def discover(self) -> None:
        """Takes up new partitions."""
        for number in self._topics.discover():
            self.offsets.routed[number] = self._topics.positions[number]

    def take(self, messages: Iterable[Message]) -> None:
        """Routes delivered messages into their tables' buffers or to the dead letters."""
        now_s, numbers, routed = self._clock.monotonic_s(), self._topics.assignment.numbers, self.offsets.routed
        for message in messages:
            topic = message.topic()
            number, offset = numbers[topic, message.partition()], message.offset()
            record = RawRecord(number, offset, message.timestamp()[1], message.key(), message.headers() or (), message.value())
            target = self._route(topic, record)
            if isinstance(target, Rejected):
                self._bury(record, target, None)
            else:
                self.buffers.add(target, record, now_s)
            routed[number] = offset + 1
            self._delivered[topic] += 1

    def _route(self, topic: str, record: RawRecord) -> TableId | Rejected:
        if not record.value:
            return Rejected(Reason.EMPTY, "the message has no value")
        if len(record.value) > self._settings.record_bytes_max:
            return Rejected(Reason.TOO_LARGE, f"{len(record.value)} bytes, record_bytes_max is {self._settings.record_bytes_max}")
        return self._routers[topic].route(Envelope(topic, record.key, record.headers, record.value))

    # ---- out

    @property
    def in_flight_bytes(self) -> int:
        return sum(flush.buffer.size_bytes for flush in self._in_flight.values())

    @property
    def is_full(self) -> bool:
        """Whether the memory budget is used up: nothing more is taken until a flush is settled."""
        return self.buffers.size_bytes + self.in_flight_bytes >= self._bytes_max

    @property
    def is_idle(self) -> bool:
        return not self._in_flight

    def flush_due(self) -> None:
        """Hands over what is due by age, size or memory."""
        s = self._settings
        excess = self.buffers.size_bytes - self._bytes_max // 2
        due = self.buffers.due(self._clock.monotonic_s(), interval_s=s.flush_interval_s, flush_bytes=s.flush_bytes, excess_bytes=excess, busy=self._in_flight)
        self._flush(due)

    def flush_all(self) -> None:
        """Hands over everything that waits and is not behind a flush in flight."""
        self._flush([buffer.table for buffer in self.buffers if buffer.table not in self._in_flight])

    def settle(self, outcomes: Iterable[tuple[TableId, Outcome, TableView]]) -> None:
        """Takes note of what became of flushes; those to be redone are written again for the table as it is now."""
        again = []
        for table, outcome, view in outcomes:
            self._views[table] = view
            if outcome is Outcome.DONE:
                del self._in_flight[table]
            else:
                again.append(self._in_flight[table])
        self._hand_over(again)

    def store_offsets(self) -> None:
        """Stores the group's offsets, once all dead letters sent so far are acknowledged."""
        now_s = self._clock.monotonic_s()
        waiting = [*self.buffers, *(flush.buffer for flush in self._in_flight.values())]
        if moved := self.offsets.to_store(self.offsets.lowest(waiting), now_s):
            self._dead_letters.flush()
            self._topics.commit_group(moved)  # 4
            self.offsets.note_stored(moved, now_s)

    def _flush(self, tables: Sequence[TableId]) -> None:
        group: list[Flush] = []
        for table in tables:
            flush = self._in_flight[table] = self._cut(table)
            group.append(flush)
            if len(group) >= GROUP_TABLES or sum(f.buffer.size_bytes for f in group) >= GROUP_BYTES:
                self._hand_over(group)
                group = []
        self._hand_over(group)

    def _cut(self, table: TableId) -> Flush:
        buffer = self.buffers.take(table)
        sources = self._topics.assignment.sources
        ends = {TopicPartition(sources[n].topic_id, sources[n].partition): self.offsets.routed[n] for n in set(buffer.sources)}
        return Flush(table, buffer, ends)

    def _hand_over(self, flushes: Sequence[Flush]) -> None:
        """Writes flushes, makes files and dead letters durable, gives them to the committer."""
        if not flushes:
            return
        self._topics.check_identity()
        views = self._open(flushes)
        converted = [self._convert(flush, views[flush.table]) for flush in flushes]
        new = {flush.table: result.new for flush, result in zip(flushes, converted, strict=True) if result.new}
        schemas = self._link.grow(new) if new else {}
        written = [
            self._write(flush, result, views[flush.table], schemas.get(flush.table))
            for flush, result in zip(flushes, converted, strict=True)
            if result.rows.num_rows
        ]
        for flush, result in zip(flushes, converted, strict=True):
            if not result.rows.num_rows:
                del self._in_flight[flush.table]  # all absorbed or dead letters: nothing to commit, least of all a new table
        self._storage.sync([file.uri for flush in written for file in flush.files])  # 1
        self._dead_letters.flush()  # 2
        self._link.submit(written)

    def _open(self, flushes: Sequence[Flush]) -> Mapping[TableId, TableView]:
        if unknown := [flush.table for flush in flushes if flush.table not in self._views]:
            self._views.update(self._link.open(unknown))
        return self._views

    def _convert(self, flush: Flush, view: TableView) -> Converted:
        """Converts a flush for the table as it is and buries what cannot be stored (once, however often it is written)."""
        sources = self._topics.assignment.sources
        marks = [view.marks.of(TopicPartition(source.topic_id, source.partition)) for source in sources]
        converted = convert(flush.buffer, sources, view.log_schema, marks, self._limits, self._shapes)
        if not flush.dead_lettered:
            for at, rejected in converted.rejected:
                self._bury(flush.buffer.record(at), rejected, flush.table)
            flush.dead_lettered = True
            self._absorbed += converted.absorbed
            self._rows_with_errors += converted.rows_with_errors
        return converted

    def _write(self, flush: Flush, converted: Converted, view: TableView, schema_json: bytes | None) -> WrittenFlush:
        schema = view.log_schema if schema_json is None else shared_schema(schema_json)
        files = write_files(self._storage, view.location, converted.rows, schema)
        ranges = {p: Range(min(view.marks.of(p), end), end) for p, end in flush.ends.items()}
        new = {name: schema.by_name[name].id for name in converted.new}
        return WrittenFlush(flush.table, view.uuid, ranges, files, converted.rows.num_rows, new)

    def _bury(self, record: RawRecord, rejected: Rejected, table: TableId | None) -> None:
        source = self._topics.assignment.sources[record.source]
        name = None if table is None else str(table)
        self._dead[rejected.reason.value] += 1
        value, index = (rejected.value, rejected.index) if isinstance(rejected, RejectedRecord) else (record.value, None)
        self._dead_letters.send(source, record.offset, record.timestamp_ms, record.key, record.headers, value, rejected, name, index)

    def counts(self) -> Counts:
        """What was counted since the last call."""
        counts = Counts(dict(self._delivered), dict(self._dead), self._absorbed, self._rows_with_errors, self._topics.take_expired())
        self._delivered, self._dead = Counter(), Counter()
        self._absorbed = self._rows_with_errors = 0
        return counts


def _limits(settings: IngestSettings) -> ConverterLimits:
    late_us = None if isinstance(settings.late_limit, str) else int(settings.late_limit * 1_000_000)
    ahead_us = None if isinstance(settings.late_limit, str) else int(settings.ahead_limit_s * 1_000_000)
    return ConverterLimits(settings.depth_max, settings.columns_max, TimeLimits(late_us, ahead_us))
