"""A worker's line from Kafka to written files, in one place; what it writes, the node's one committer
commits.

    consumer -> router -> buffer -> (shape | decoder, row) -> converter -> writer -> link ~> committer ->
    offsets

The order of durability of a flush; each step is complete before the next begins:

    1  data files are synced
    2  dead letters of its table, and of none, are acknowledged by the broker (acks=all); for 4 all dead
       letters and parked messages
    3  tables are committed, each with its marks (committer.py)
    4  the group's offsets are stored

A crash before 3 leaves files nobody refers to. A crash between 2 and 3 repeats dead letters with the same
coordinates. A crash between 3 and 4 reads messages again, which the marks then skip.

A table is live, parked (its messages go to the parking topic) or held (they wait in its buffer until the node
knows whether it is live again); `worker_tables.py` has an entry of each. What becomes of a part of a buffer
once it is cut, `flush_lifecycle.py` says.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from math import inf
from sys import maxsize
from typing import Protocol

import structlog
from confluent_kafka import Message

from ingest.commit.flush_lifecycle import Flushes
from ingest.core.consumption import Group, GroupedRun
from ingest.kafka.acknowledged_offsets import AcknowledgedOffsets
from ingest.kafka.consumer import InputTopics
from ingest.kafka.kafka_reader import topic_partition_of
from ingest.kafka.offsets import Offsets
from ingest.kafka.progress import progress, store_offsets
from ingest.model.fault_point import reach
from ingest.model.link import Counts, Outcome, Report, TableView, WrittenFlush
from ingest.model.source import Source
from ingest.model.tenant_rate import Rates
from ingest.model.trouble import Trouble
from ingest.node.refused_streams import RefusedStreams
from ingest.node.worker_tables import WorkerTable, WorkerTables
from ingest.parking.parked_topic import ParkedTopic
from ingest.route.buffer import RawRecord, TableBuffer, records_in, records_of
from ingest.route.buffers import LARGE_BYTES, Buffers, FlushRules
from ingest.route.due_tables import DueTables
from ingest.route.routes import Routes
from ingest.write.flush_writer import TABLE_DELETED, ColumnLink, Flush, FlushWriter, cut_flush, grouped
from lake.clock import Clock, epoch_ms
from lake.errors import Reason, Rejected, UnavailableError
from lake.limits import PERCENT_MAX
from lake.marks import TopicPartition
from lake.settings import IngestSettings
from lake.tenant import TableId, TenantId

# A table for which so much waits is hot: it is converted while more comes.
HOT_PART_BYTES = 32 * 1024 * 1024
# Beyond a quarter of the memory what is in files already is packed: before a table is flushed early.
PACKED_BEYOND = 4
# At most and at least so many tables are flushed until more is read; between them as many as take so long.
TABLES_AT_ONCE, TABLES_MIN, FLUSHES_S = 512, 16, 1.0
# For so long what waits for refused tables becomes dead letters, until others are read and flushed.
DEAD_LETTERS_S = 0.2
POSTPONED = Rejected(
    Reason.UNSTORABLE,
    "the node's memory is full of records for new tables, more than tables.new_per_minute allows",
)
log = structlog.get_logger()


class CommitLink(ColumnLink, Protocol):
    """The node's main process as a worker sees it."""

    def open(self, tables: Sequence[TableId]) -> None:
        """Asks for tables met for the first time; `Pipeline.opened` gets the answer."""

    def submit(self, flushes: Sequence[WrittenFlush]) -> None:
        """Hands flushes over; what becomes of them comes by `Pipeline.settle`."""

    def stuck(self, table: TableId, trouble: Trouble) -> None:
        """Tells of a flush that could not be written."""


class Pipeline:
    """The stages of one worker. Not thread-safe: one thread calls everything."""

    def __init__(
        self,
        settings: IngestSettings,
        topics: InputTopics,
        link: CommitLink,
        writer: FlushWriter,
        parked_topic: ParkedTopic,
        clock: Clock,
        bytes_max: int,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._link = link
        self._writer = writer
        self._parked_topic = parked_topic
        self._clock = clock
        self.bytes_max = bytes_max
        self._routes = Routes(settings, writer.rates, clock)
        self._rules = FlushRules(
            settings.flush.interval_s,
            settings.flush.cold_interval_s,
            settings.flush.bytes,
        )
        self._tables = WorkerTables(WorkerTable)
        self._flushes: Flushes[Flush] = Flushes()
        self.buffers = Buffers(
            min(LARGE_BYTES, settings.flush.bytes), partial(self._share_bytes, writer.rates)
        )
        self.offsets = Offsets()
        self._acknowledged = AcknowledgedOffsets(self.offsets, (writer, parked_topic))
        self._counts = Counts()
        self._refused = RefusedStreams(self.buffers, clock, self._dead_letter_all)
        self._due = DueTables(self.buffers)
        self._at_once = min(TABLES_AT_ONCE, 4 * TABLES_MIN)

    # ---- in

    def discover(self) -> Mapping[TopicPartition, int]:
        """Takes up new partitions; where their ingestion began."""
        found = self._topics.discover()
        self.offsets.routed |= {number: self._topics.positions[number] for number in found}
        return {
            self._topics.assignment.topic_partition(number): self._topics.first(number) for number in found
        }

    def take(self, messages: Iterable[Message], runs: Iterable[GroupedRun] = ()) -> None:
        """Routes delivered messages, and then those that the core has sorted, into their tables' buffers, to
        the parking topic or to the dead letters."""
        for (topic, partition), run in groupby(messages, topic_partition_of):
            self._take_run(topic, self._topics.assignment.numbers[topic, partition], list(run))
        for sorted_run in runs:
            self._take_sorted(sorted_run)
        self._step_over()
        self._ask_for_new()

    def _take_run(self, topic: str, number: int, messages: Sequence[Message]) -> None:
        """Routes messages of one topic-partition, then adds them to their tables' buffers: messages of one
        table cost less together."""
        full = self._put_all(topic, number, messages)
        self._routed(number, messages[-1].offset() + 1, len(messages), full)

    def _take_sorted(self, run: GroupedRun) -> None:
        """The same of messages that come sorted. Those that the core leaves are runs of their own, or no
        table takes them: the order within a table stays."""
        topic, full = self._topics.assignment.sources[run.source].topic, list[TableId | Rejected]()
        now_s = self._clock.monotonic_s()
        for group in run.groups:
            if group.name < 0:
                left = list(self._topics.messages_of(run.source, group))
                full += self._put_all(topic, run.source, left)
                continue
            target = self._routes.target_of_group(topic, group)
            if self._put_group(target, now_s, run.source, group) >= self._settings.flush.bytes:
                full.append(target)
            reach("routed_in_batch")
        self._routed(run.source, run.next_offset, run.messages, full)

    def _put_all(self, topic: str, number: int, messages: Sequence[Message]) -> list[TableId | Rejected]:
        """Routes messages, and puts them where they go; those that are full then."""
        return [
            target
            for target, some in self._routes.sort(topic, messages).items()
            if self._put(target, number, some) >= self._settings.flush.bytes
        ]

    def _routed(
        self, number: int, next_offset: int, messages: int, full: Iterable[TableId | Rejected]
    ) -> None:
        self.offsets.routed[number] = next_offset
        self._counts.delivered[self._topics.assignment.sources[number].topic] += messages
        for target in full:
            self._roll_over(target)

    def _step_over(self) -> None:
        """Behind what has been routed there may be batches that nobody can read: a dead letter each, and
        reading goes on behind them."""
        for number, unreadable in self._topics.step_over(self.offsets.routed):
            source = self._topics.assignment.sources[number]
            self._writer.dead_letter_range(number, source, unreadable, epoch_ms(self._clock.now()))
            self.offsets.routed[number] = unreadable.end
            self._counts.delivered[source.topic] += unreadable.offsets

    def _put(self, target: TableId | Rejected, number: int, messages: Sequence[Message]) -> int:
        """Where messages go; the bytes that wait for their table then."""
        if isinstance(target, Rejected) or self._is_parking(target):
            return self._put_aside(target, records_of(number, messages))
        if self._refused and (why := self._refusal(target)) is not None:
            return self._dead_letter_records(why, target, records_of(number, messages))
        return self.buffers.extend(target, self._clock.monotonic_s(), number, messages)

    def _put_group(self, target: TableId | Rejected, now_s: float, number: int, group: Group) -> int:
        if isinstance(target, Rejected) or self._is_parking(target):
            return self._put_aside(target, records_in(group.rows, group.values, group.envelopes))
        if self._refused and (why := self._refusal(target)) is not None:
            return self._dead_letter_records(
                why, target, records_in(group.rows, group.values, group.envelopes)
            )
        return self.buffers.append(
            target, now_s, number, group.first_offset, group.rows, group.values, group.envelopes
        )

    def _is_parking(self, table: TableId) -> bool:
        entry = self._tables.get(table)
        return entry is not None and entry.is_parking

    def _put_aside(self, target: TableId | Rejected, records: Iterable[RawRecord]) -> int:
        """To the dead letters, or to the parking topic; nothing waits then."""
        for record in records:
            if isinstance(target, Rejected):
                self._writer.dead_letter(record, self._source(record), target, None)
            else:
                self._park_record(target, self._tables[target].parking, record)
        return 0

    def _dead_letter_records(self, why: Rejected, table: TableId, records: Iterable[RawRecord]) -> int:
        """To the dead letters of a table; nothing waits then."""
        for record in records:
            self._writer.dead_letter(record, self._source(record), why, table)
        return 0

    def _roll_over(self, table: TableId | Rejected) -> None:
        """A full buffer does not wait for the end of the batch."""
        if isinstance(table, TableId) and self._may_flush(table):
            self._flush([table], [])
            reach("rolled_over_in_batch")

    def _source(self, record: RawRecord) -> Source:
        return self._topics.assignment.sources[record.source]

    def _ask_for_new(self) -> None:
        """Asks at a table's first message, so that the answer is there when its buffer is due."""
        started = self.buffers.take_started()
        if new := self._tables.ask(started):
            self._link.open(new)
        for table in started:
            if self._tables[table].is_unknown:
                self.buffers.note_known(table, is_known=False)

    def opened(
        self,
        views: Mapping[TableId, TableView],
        postponed: Sequence[TableId],
        refused: Mapping[TableId, Rejected],
    ) -> None:
        """Takes note of tables that were asked for. What waits for refused ones becomes dead letters when
        others are flushed, and so does what comes for them within the next minute."""
        self._tables.opened(views, postponed)
        self._refused.spare(views)
        self._refused.note(refused)
        for table in views:
            self.buffers.note_known(table, is_known=True)
        for table in refused:
            self._tables.pop(table, None)

    def _dead_letter_refused(self, for_s: float) -> None:
        for table in self._refused.dead_letter_waiting(for_s):
            self._tables.pop(table, None)

    def _refusal(self, table: TableId) -> Rejected | None:
        """Why nothing of a table is taken."""
        return None if table in self._tables else self._refused.why(table)

    # ---- out

    @property
    def is_full(self) -> bool:
        """Whether the memory budget is used up: nothing more is taken until a flush is settled."""
        return self.buffers.size_bytes + self._flushes.size_bytes >= self.bytes_max

    @property
    def is_idle(self) -> bool:
        return not len(self._flushes)

    def flush_due(self) -> None:
        """Hands over what is due by age, size, memory, or because it holds back the group offset of a
        partition for too long."""
        now_s = self._clock.monotonic_s()
        self.buffers.pack_beyond(self.bytes_max // PACKED_BEYOND - self._flushes.size_bytes)
        if self._due.is_outdated(now_s):
            excess = self.buffers.size_bytes - self.bytes_max // 2
            due = self.buffers.due(now_s, self._rules, excess_bytes=excess, may_flush=self._may_flush)
            self._due.look(due, now_s, self._clock.monotonic_s())
        urgent = [*self._holding_back(), *self._append_hot()]
        others = self._due.take(self._at_once)
        tables = [table for table in dict.fromkeys([*urgent, *others]) if self._may_flush(table)]
        self._counts.early.update(why for table in tables if (why := others.get(table)))
        self._flush(tables, self._flushes.due(now_s))
        if self._due:
            self._adapt(self._clock.monotonic_s() - now_s)
        self._dead_letter_refused(DEAD_LETTERS_S)
        if self.is_full:
            self._dead_letter_postponed()

    def _share_bytes(self, rates: Rates | None, tenant: TenantId) -> int:
        """How many bytes may wait for the tables of a tenant."""
        percent = None if rates is None else rates.memory_percent(tenant.namespace).most
        return maxsize if percent is None else self.bytes_max * percent // PERCENT_MAX

    def _adapt(self, took_s: float) -> None:
        """More tables are due than were flushed. Others wait meanwhile for what is not read: of a slow disk
        fewer are flushed at once."""
        change = 0.5 if took_s > FLUSHES_S else 2.0 if took_s < FLUSHES_S / 4 else 1.0
        self._at_once = min(TABLES_AT_ONCE, max(TABLES_MIN, round(self._at_once * change)))

    def flush_all(self) -> None:
        """Hands over everything that waits and is not behind a flush in flight."""
        self._dead_letter_refused(inf)
        ready = [buffer.table for buffer in self.buffers if self._may_flush(buffer.table)]
        self._flush(ready, self._flushes.due(inf))

    def _may_flush(self, table: TableId) -> bool:
        entry = self._tables.get(table)
        return entry is not None and entry.takes_rows and table not in self._flushes

    def _holding_back(self) -> list[TableId]:
        """Tables whose oldest record is too far behind; one whose flush is under way already is not hurried
        by flushing others."""
        records_max = self._settings.flush.replay_records_max
        oldest = {number: self.buffers.oldest(number) for number in self.offsets.behind(records_max)}
        held = [
            buffer.table
            for n, buffer in oldest.items()
            if buffer is not None and self.offsets.routed[n] - buffer.first_offsets[n] > records_max
        ]
        return [table for table in held if self._may_flush(table)]

    def _append_hot(self) -> list[TableId]:
        """Adds what waits for hot tables to their open files; returns those whose files are large enough."""
        full = []
        part_bytes = max(LARGE_BYTES, min(HOT_PART_BYTES, self.bytes_max // 8))
        for buffer in self.buffers.large:
            table, entry = buffer.table, self._tables[buffer.table]
            if entry.view is None or entry.is_held or buffer.open_bytes < part_bytes:
                continue
            self._writer.append(buffer, self._topics.assignment.sources, entry.view)
            self.buffers.close_part(table)
            if self._writer.hot_bytes(table) >= self._settings.flush.file_bytes and self._may_flush(table):
                full.append(table)
        return full

    def _dead_letter_postponed(self) -> None:
        """New tables beyond the limit must not stop those that are there: first those of the tenant for
        which most waits."""
        postponed = defaultdict[TenantId, list[TableBuffer]](list)
        for buffer in self.buffers:
            if self._tables[buffer.table].is_postponed:
                postponed[buffer.table.tenant].append(buffer)
        waiting = {tenant: sum(each.size_bytes for each in some) for tenant, some in postponed.items()}
        for tenant in sorted(postponed, key=lambda tenant: -waiting[tenant]):
            if not self.is_full:
                break
            for table in [buffer.table for buffer in postponed[tenant]]:
                log.error("records.not_taken", table=str(table), reason=POSTPONED.detail)
                self._dead_letter_all(self.buffers.take(table), POSTPONED)

    def _dead_letter_all(self, buffer: TableBuffer, why: Rejected) -> None:
        self._writer.dead_letter_all(buffer, self._topics.assignment.sources, why)

    def settle(self, outcomes: Iterable[tuple[TableId, Outcome, TableView]]) -> None:
        """Takes note of what became of flushes; those to be redone are written again for the table as it is
        now."""
        again = []
        for table, outcome, view in outcomes:
            self._tables[table].view = view
            flush = self._flushes.settled(table, outcome).cut
            if outcome is Outcome.REDO:
                again.append(flush)
            elif outcome is Outcome.DEAD_LETTER:
                self._dead_letter_all(flush.buffer, TABLE_DELETED)
            else:
                self._writer.committed(flush.buffer, self._topics.assignment.sources, view)
        self._flush([], again)

    def _flush(self, tables: Sequence[TableId], again: Sequence[Flush]) -> None:
        for group in grouped(chain(again, map(self._cut, tables))):
            self._hand_over(group)

    def _cut(self, table: TableId) -> Flush:
        buffer = self.buffers.take(table)
        flush = cut_flush(buffer, self._topics.assignment.sources, self.offsets.routed.__getitem__)
        flush.hot = self._writer.take_hot(table)
        self._flushes.begin(flush, buffer.size_bytes)
        return flush

    def _hand_over(self, flushes: Sequence[Flush]) -> None:
        """Writes flushes, makes files and dead letters durable, gives them to the committer."""
        try:
            self._topics.check_identity()
        except UnavailableError as error:
            log.warning("flush.waits", reason=str(error), tables=len(flushes))
            for flush in flushes:
                self._flushes.delay(flush.table, self._clock.monotonic_s())
            return
        views = self._tables.views_of(flush.table for flush in flushes)
        written = self._writer.write(flushes, self._topics.assignment.sources, views)  # 1, 2
        reach("dead_letters_acknowledged")
        self._flushes.written(written, self._clock.monotonic_s())
        for flush, trouble in written.stuck:
            self._link.stuck(flush.table, trouble)
        self._link.submit(written.flushes)
        reach("handed_over")

    # ---- parking

    def park(self, parkings: Mapping[TableId, str]) -> None:
        """Sends the tables' messages to the parking topic from here on: those in flight and buffered first,
        in the order of their offsets."""
        self._refused.spare(parkings)
        for table, parking in parkings.items():
            self._tables.park(table, parking)
            flush = self._flushes.give_up(table)
            unfinished = [flush.buffer] if flush is not None else []
            self._writer.abort(table)
            if flush is not None and flush.hot is not None:
                flush.hot.discard()
            if table in self.buffers:
                unfinished.append(self.buffers.take(table))
            for record in (record for buffer in unfinished for record in buffer.alive()):
                self._park_record(table, parking, record)
            reach("parked_in_flight")

    def _park_record(self, table: TableId, parking: str, record: RawRecord) -> None:
        self._parked_topic.send(self._source(record), record, table, parking)
        self._counts.parked += 1

    def hold(self, table: TableId) -> None:
        """Returns when all that was parked of the table is acknowledged; what comes now waits in its
        buffer."""
        self._tables[table].is_held = True
        self._parked_topic.flush()

    def release(self, views: Mapping[TableId, TableView]) -> None:
        """The tables take rows again."""
        self._tables.release(views)

    def forget(self, tables: Iterable[TableId]) -> None:
        """The tables are gone. One that has records goes on with what is known of it: the committer will say
        what has become of it."""
        for table in tables:
            entry = self._tables.get(table)
            if (
                entry is not None
                and entry.is_idle
                and table not in self.buffers
                and table not in self._flushes
            ):
                del self._tables[table]

    # ---- offsets

    def durable_offsets(self, wait_s: float) -> dict[int, int]:
        """Group offsets that have moved, all they stand on being durable; they may be stored once the node is
        known to hold its lease still. Acknowledgements are waited for so long at most."""
        low = self.offsets.lowest(chain(self.buffers, self._flushes))
        moved = self._acknowledged.moved(low, self._clock.monotonic_s(), wait_s)
        if moved and self._tables.any_parked:
            reach("parked_acknowledged")
        return moved

    def store(self, moved: Mapping[int, int], checkpoint: str) -> None:
        """Stores group offsets; where Kafka does not take them now, later ones will do."""
        store_offsets(self._topics, self.offsets, moved, checkpoint, self._clock.monotonic_s())

    def report(self) -> Report:
        """How far it is, what it holds, and what was counted since the last call."""
        return Report(
            progress(self._topics, self.offsets),
            self.buffers.size_bytes,
            self._flushes.size_bytes,
            len(self.buffers),
            self._take_counts(),
        )

    def _take_counts(self) -> Counts:
        counts, self._counts = self._counts, Counts()
        counts.add(self._writer.take_counts())
        counts.add(self._routes.take_masked())
        counts.expired = self._topics.take_expired()
        counts.unforeseen += self._topics.take_unforeseen()
        return counts
