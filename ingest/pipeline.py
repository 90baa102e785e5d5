"""The line from Kafka to the tables, in one place.

    consumer -> router -> buffer -> (decoder, row, converter) -> writer -> committer -> offsets

The order of durability of a flush; each step is complete before the next begins:

    1  data files are synced
    2  dead letters are acknowledged by the broker (acks=all)
    3  tables are committed, each with its marks
    4  the group's offsets are stored

A crash before 3 leaves files nobody refers to. A crash between 2 and 3 repeats dead letters with the same coordinates.
A crash between 3 and 4 reads messages again, which the marks then skip.
"""

from collections.abc import Iterable, Sequence

import structlog
from confluent_kafka import Message

from ingest.buffer import Buffers, RawRecord
from ingest.committer import Committer, Flush, Written, schema_for
from ingest.consumer import InputTopics
from ingest.converter import ConverterLimits, convert
from ingest.dead_letter import DeadLetters
from ingest.offsets import Offsets
from ingest.router import Envelope, Router
from ingest.row import TimeLimits
from ingest.shape import Shapes
from ingest.writer import write_files
from lake import metrics
from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.commit import TableState
from lake.errors import Reason, Rejected, SettingsError
from lake.marks import TopicPartition
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

log = structlog.get_logger()


class Pipeline:
    """All stages in one process. Not thread-safe: one thread runs `take` and `flush`."""

    def __init__(self, settings: IngestSettings, topics: InputTopics, catalog: CatalogClient, storage: AnyStorage, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._storage = storage
        self._clock = clock
        self._routers = {topic.name: Router(topic) for topic in settings.topics}
        self._limits = _limits(settings)
        self._shapes = Shapes()
        warehouse = settings.warehouse or catalog.warehouse
        if not warehouse:
            raise SettingsError("the catalog does not say where tables go; set FIRN_INGEST_WAREHOUSE to a location like s3://bucket/prefix")
        self.dead_letters = DeadLetters(settings, storage, warehouse)
        self.committer = Committer(catalog, storage, warehouse, clock, self._write, self.dead_letters.flush, settings.commit_timeout_s)
        self.buffers = Buffers()
        self.offsets = Offsets()

    def discover(self) -> None:
        """Takes up new partitions."""
        for number in self._topics.discover():
            self.offsets.routed[number] = self._topics.positions[number]

    def take(self, messages: Iterable[Message]) -> None:
        """Routes delivered messages into their tables' buffers or to the dead letters."""
        now_s = self._clock.monotonic_s()
        numbers = self._topics.assignment.numbers
        for message in messages:
            number = numbers[message.topic(), message.partition()]
            _, timestamp_ms = message.timestamp()
            record = RawRecord(number, message.offset(), timestamp_ms, message.key(), message.headers() or (), message.value())
            target = self._route(message.topic(), record)
            if isinstance(target, Rejected):
                self._bury(record, target, None)
            else:
                self.buffers.add(target, record, now_s)
            self.offsets.routed[number] = record.offset + 1
            metrics.RECORDS_DELIVERED.labels(message.topic()).inc()

    def _route(self, topic: str, record: RawRecord) -> TableId | Rejected:
        if not record.value:
            return Rejected(Reason.EMPTY, "the message has no value")
        if len(record.value) > self._settings.record_bytes_max:
            return Rejected(Reason.TOO_LARGE, f"{len(record.value)} bytes, record_bytes_max is {self._settings.record_bytes_max}")
        return self._routers[topic].route(Envelope(topic, record.key, record.headers, record.value))

    def flush_due(self) -> None:
        """Flushes what is due by age, size or memory."""
        s = self._settings
        due = self.buffers.due(self._clock.monotonic_s(), interval_s=s.flush_interval_s, flush_bytes=s.flush_bytes, bytes_max=s.buffer_bytes_max)
        if due:
            self.flush(due)

    def flush_all(self) -> None:
        """Flushes everything that waits, at shutdown."""
        self.flush([buffer.table for buffer in self.buffers])

    def flush(self, tables: Sequence[TableId]) -> None:
        """Flushes these tables in the order of durability that the module's docstring numbers."""
        with metrics.FLUSH_SECONDS.time():
            flushes = [self._cut(table) for table in tables]
            self.committer.commit(flushes)  # 1 and 2 inside, before each attempt of 3
            self.store_offsets()  # 4
        log.info("flush.done", tables=len(flushes), rows=sum(f.written.rows for f in flushes if f.written))

    def store_offsets(self) -> None:
        """Stores the group's offsets, once all dead letters sent so far are acknowledged."""
        now_s = self._clock.monotonic_s()
        moved = self.offsets.to_store(self.offsets.lowest(self.buffers), now_s)
        if moved:
            self.dead_letters.flush()
            self._topics.commit_group(moved)
            self.offsets.note_stored(moved, now_s)

    def _cut(self, table: TableId) -> Flush:
        buffer = self.buffers.take(table)
        sources = self._topics.assignment.sources
        ends = {TopicPartition(sources[n].topic_id, sources[n].partition): self.offsets.routed[n] for n in set(buffer.sources)}
        return Flush(table, buffer, ends)

    def _write(self, flush: Flush, state: TableState) -> Written:
        """Converts a flush for the table as it is, writes its files, buries what cannot be stored (once, however often it is written)."""
        sources = self._topics.assignment.sources
        marks = [state.marks.of(TopicPartition(source.topic_id, source.partition)) for source in sources]
        converted = convert(flush.buffer, sources, state.schema, marks, self._limits, self._shapes)
        if not flush.dead_lettered:
            for at, rejected in converted.rejected:
                self._bury(flush.buffer.record(at), rejected, flush.table)
            flush.dead_lettered = True
            metrics.RECORDS_ABSORBED.inc(converted.absorbed)
            metrics.ROWS_WITH_ERRORS.inc(converted.rows_with_errors)
        schema = schema_for(state, converted.new)
        files = write_files(self._storage, state.location, converted.rows, schema) if converted.rows.num_rows else []
        return Written(files, schema, state, converted.rows.num_rows)

    def _bury(self, record: RawRecord, rejected: Rejected, table: TableId | None) -> None:
        source = self._topics.assignment.sources[record.source]
        name = None if table is None else str(table)
        self.dead_letters.send(source, record.offset, record.timestamp_ms, record.key, record.headers, record.value, rejected, name)


def _limits(settings: IngestSettings) -> ConverterLimits:
    accept = settings.late_limit == "accept"
    late_us = None if isinstance(settings.late_limit, str) else int(settings.late_limit * 1_000_000)
    return ConverterLimits(settings.depth_max, settings.columns_max, TimeLimits(late_us, None if accept else int(settings.ahead_limit_s * 1_000_000)))
