"""The past of a topic into tables, by the stages that live records pass: the control flow.

    backfill_offsets -> kafka_reader -> routes -> buffer -> (shape | decoder, row) -> converter -> writer ->
    committer, with `backfill_topic_ledger`

A live mark of a table covers `[first, next)`. What lies before `first` is for a backfill to bring in, what
lies from there on is live ingestion's, in its buffers, parked, or a dead letter. Where a table has no mark,
and for records that go to no table, `first` is where the group began to read.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

from confluent_kafka import Message

from ingest.backfill.backfill_commits import BackfillCommits, ChangedMeanwhileError
from ingest.backfill.backfill_offsets import TopicRange
from ingest.backfill.backfill_report import TopicReport
from ingest.backfill.backfill_topic_ledger import TopicLedger
from ingest.kafka.kafka_reader import KafkaReader
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from ingest.route.routes import Routes
from ingest.write.flush_writer import Flush
from lake.clock import SystemClock, epoch_ms
from lake.commit import TableState
from lake.errors import Rejected
from lake.marks import Range, TopicPartition
from lake.settings import TopicSettings
from lake.tenant import TableId

BATCH_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class _Share:
    """What of a partition is this backfill's to bring into a table: all below `limit`, but for what is
    `filled`."""

    limit: int
    filled: Sequence[Range]

    def has(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.filled)


@dataclass
class TopicBackfill:
    """One run over some partitions of one topic."""

    topic: TopicSettings
    ranges: Sequence[TopicRange]
    reader: KafkaReader
    routes: Routes
    commits: BackfillCommits
    ledger: TopicLedger
    report: TopicReport
    _numbers: dict[int, int] = field(default_factory=dict)  # of the sources, by partition
    _next: list[int] = field(default_factory=list)  # per source, the offset after the last one routed
    _shares: dict[TableId, list[_Share]] = field(default_factory=dict)  # per source

    def run(self) -> None:
        """Reads all ranges. Raises FirnError where it cannot go on."""
        for number, each in enumerate(self.ranges):
            partition = each.partition
            self._numbers[partition.partition] = number
            self._next.append(each.start)
            self.commits.sources.append(Source.of(self.topic, partition.topic_id, partition.partition))
        with closing(
            self.reader.read({each.partition: (each.start, each.end) for each in self.ranges})
        ) as messages:
            while batch := list(islice(messages, BATCH_RECORDS)):
                self.commits.keep_alive()
                self._dead_letter_unreadable()
                self._take(batch)
                self.report.show(
                    f"{self.topic.name}, partition {batch[-1].partition()}, offset {batch[-1].offset():,}"
                )
                if self.commits.is_full:
                    self.commits.flush(self)
            self._dead_letter_unreadable()
        self._next = [
            each.end for each in self.ranges
        ]  # below an end there may be nothing but control records
        self.commits.flush(self)
        self.commits.writer.acknowledged()
        counts = self.routes.take_masked()
        self.report.masked, self.report.withheld = counts.masked_messages.total(), counts.withheld.total()
        self._count()

    # ---- in

    def _take(self, batch: Sequence[Message]) -> None:
        """Routes records into their tables' buffers or to the dead letters."""
        routed = [self._routed(message) for message in self.routes.masked(self.topic.name, batch)]
        self._meet({target for _, target in routed if isinstance(target, TableId)} - self._shares.keys())
        for record, target in routed:
            self.report.records += 1
            self._next[record.source] = record.offset + 1
            if isinstance(target, Rejected):
                self._reject(record, target)
                continue
            share = self._shares[target][record.source]
            if record.offset >= share.limit:
                self.report.live += 1
            elif share.has(record.offset):
                self.report.skipped += 1
            elif self.commits.add(target, record):
                self.commits.flush(self, [target])
        self._count()

    def _routed(self, message: Message) -> tuple[RawRecord, TableId | Rejected]:
        number = self._numbers[message.partition()]
        record = RawRecord(
            number,
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.headers() or (),
            message.value(),
        )
        return record, self.routes.target(self.topic.name, record.key, record.headers, record.value)

    def _reject(self, record: RawRecord, rejected: Rejected) -> None:
        if record.offset >= self.ranges[record.source].begun:
            self.report.live += 1
        else:
            self.commits.writer.dead_letter(record, self.commits.sources[record.source], rejected, None)

    def _dead_letter_unreadable(self) -> None:
        """What the reader has stepped over: a dead letter each, as far as live ingestion does not come by
        it."""
        for unreadable in self.reader.take_unreadable():
            number = self._numbers[unreadable.partition]
            own = unreadable.within(unreadable.start, self.ranges[number].begun)
            self.report.records += unreadable.offsets
            self.report.live += unreadable.offsets - max(0, own.offsets)
            if own.offsets > 0:
                self.commits.writer.dead_letter_range(
                    number, self.commits.sources[number], own, epoch_ms(SystemClock().now())
                )

    def _meet(self, tables: Iterable[TableId]) -> None:
        """Learns what tables have."""
        tables = list(tables)
        self.commits.open(tables)
        for table in tables:
            state = self.commits.states.last_known(table)
            assert state is not None
            self.ledger.marks(state)  # from here on nobody else may fill anything
            fill = self.ledger.fill(state)
            self._shares[table] = [
                _Share(self._limit(state, each), fill.of(each.partition.partition)) for each in self.ranges
            ]

    def _limit(self, state: TableState, each: TopicRange) -> int:
        covered = state.marks.covered(TopicPartition(each.partition.topic_id, each.partition.partition))
        return each.begun if covered is None else covered.start

    def _count(self) -> None:
        self.report.offsets = sum(at - each.start for at, each in zip(self._next, self.ranges, strict=True))

    # ---- as the commits ask

    def check(self) -> None:
        """The consumer would go on reading in a topic that was created anew under the same name."""
        if any(each.topic_id != self.ledger.topic_id for each in self.reader.partitions([self.topic.name])):
            raise ChangedMeanwhileError(
                f"topic {self.topic.name} was re-created while it was read; nothing of that was committed"
            )

    def check_state(self, state: TableState, flush: Flush) -> None:
        for topic_partition, end in flush.ends.items():
            covered = state.marks.covered(topic_partition)
            if covered is not None and covered.start < end:
                raise ChangedMeanwhileError(
                    f"ingestion into table {state.name} covers partition {topic_partition.partition} of "
                    f"topic {self.topic.name} from offset {covered.start} on now; run this backfill again"
                )

    def end(self, table: TableId, source: int) -> int:
        return min(self._next[source], self._shares[table][source].limit)
