"""What the driver of the Spark engine knows of tables and offsets. Pure but for the topics and the link: no
Spark, no thread.

A job is a batch (what waits in the input topics; everything that is read there is written, or is left) or a
repetition: the same offsets again, for the tables alone whose records were left. One job runs at a time,
while the flushes of the job before it are committed.

    in flight   a table's flush is with the committer
    next        the flush of a later batch: it waits for the one in flight, then starts where that ends
    behind      records were left, from known offsets on: the table is not known yet, takes no rows now, or
                changed under its flush. Batches leave its further records too, until a repetition has caught
                up with them, so the order of a table's records is kept
    parked      its records go to the parking topic, by tasks; only those of a table that is not behind do,
                and only where each partition is one task's, so there is no gap in the topic either
    held        its records are left

Tasks cut and write; the life of a flush begins here with what all tasks of a job have written of a table. One
to be redone is given up, and its records are read again: they are in no buffer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from ingest.commit.flush_lifecycle import WRITE_RETRIES, Flushes
from ingest.kafka.offsets import Offsets
from ingest.kafka.progress import progress, store_offsets
from ingest.keys.joined_flushes import join_keyed
from ingest.model.fault_point import reach
from ingest.model.link import Counts, NewColumn, Outcome, Report, TableView, WrittenFlush
from ingest.node.engines.spark_plan import Capacity, Lag, OffsetRange, Spread, plan, waiting
from ingest.node.engines.spark_task_spec import Firsts, RoutingDecisions, TaskFlush, TaskResult
from ingest.node.engines.spark_topics import PlannedTopics
from ingest.node.pipeline import POSTPONED, CommitLink
from ingest.node.refused_streams import RefusedTables
from ingest.node.worker_tables import WorkerTable, WorkerTables
from ingest.write.flush_writer import TABLE_DELETED, FlushWriter
from lake.clock import Clock
from lake.errors import Rejected
from lake.marks import Range, TopicPartition
from lake.settings import IngestSettings
from lake.tenant import TableId

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Job:
    """Ranges per task. `skipped`, `only`, `hands_on`: as in a TaskOrder."""

    number: int
    tasks: Sequence[Sequence[OffsetRange]]
    skipped: frozenset[TableId]
    only: Firsts | None
    hands_on: bool = False

    @property
    def in_pieces(self) -> bool:
        """Whether several tasks may have records of one partition and table, so that nobody knows whose come
        first."""
        return any(each.whole for task in self.tasks for each in task)

    @property
    def starts(self) -> dict[int, int]:
        """The lowest offset per source."""
        starts: dict[int, int] = {}
        for each in (each for task in self.tasks for each in task):
            starts[each.source] = min(each.start, starts.get(each.source, each.start))
        return starts


@dataclass(slots=True)
class Backlog:
    """Records of a table that were left. `dead_letter`: they are to become dead letters."""

    first_offsets: dict[int, int]
    dead_letter: Rejected | None = None
    tries: int = 0
    not_before_s: float = 0.0

    def join(self, firsts: Mapping[int, int]) -> None:
        """More was left."""
        self.first_offsets |= {
            number: min(offset, self.first_offsets.get(number, offset)) for number, offset in firsts.items()
        }


@dataclass(slots=True)
class TableFlush:
    """What all tasks of a job have written of a table, as it may be committed."""

    flush: WrittenFlush
    first_offsets: dict[int, int]

    @property
    def table(self) -> TableId:
        return self.flush.table


@dataclass(slots=True)
class SparkTable(WorkerTable):
    """The entry of a table. `next`: its flush that waits for the one in flight. `ends`: where the last flush
    that was collected ends."""

    next: TableFlush | None = None
    ends: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class SparkLine:
    """A `Line` of worker.py whose work is done by jobs: `next_job`, then `collect`."""

    settings: IngestSettings
    topics: PlannedTopics
    link: CommitLink
    writer: FlushWriter  # of the drains
    clock: Clock
    slots: int
    bytes_max: int = 0  # what jobs hold is the executors'
    offsets: Offsets = field(default_factory=Offsets)
    job: Job | None = None  # the one that runs
    _tables: WorkerTables[SparkTable] = field(default_factory=lambda: WorkerTables(SparkTable))
    _flushes: Flushes[TableFlush] = field(default_factory=Flushes)
    _backlog: dict[TableId, Backlog] = field(default_factory=dict)
    _refused: RefusedTables = field(init=False)
    _jobs: int = 0
    _spread: Spread = field(default_factory=Spread)  # of the last batch that several tasks have read
    _waits_since_s: float | None = None  # since when something waits in the topics
    _stalled_since_s: float | None = (
        None  # when the last batch was read, while tables are left or late and nothing was settled since
    )
    _counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._refused = RefusedTables(self.clock)

    # ---- jobs

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.slots, self.settings.spark.task_records_max, self.settings.spark.task_bytes_max)

    def next_job(self) -> Job | None:
        """The job to run now, if there is one; none may be running."""
        assert self.job is None
        self.job = self._repetition() or self._batch()
        return self.job

    def _repetition(self) -> Job | None:
        now_s = self.clock.monotonic_s()
        due = {
            table: backlog
            for table, backlog in self._backlog.items()
            if backlog.not_before_s <= now_s and self._may_repeat(table, backlog)
        }
        self._ask_for(self._backlog)
        if not due:
            return None
        starts = Backlog({})
        for backlog in due.values():
            starts.join(backlog.first_offsets)
        pieces = [
            self.topics.piece(n, start, self.offsets.routed[n]) for n, start in starts.first_offsets.items()
        ]
        return self._job(pieces, {table: dict(backlog.first_offsets) for table, backlog in due.items()})

    def _may_repeat(self, table: TableId, backlog: Backlog) -> bool:
        entry = self._tables[table]
        if table in self._flushes or entry.is_held:
            return False
        return entry.view is not None or bool(entry.parking) or backlog.dead_letter is not None

    def _batch(self) -> Job | None:
        now_s = self.clock.monotonic_s()
        lags = [self.topics.lag(number, start) for number, start in self.offsets.routed.items()]
        if self._is_far_behind():
            self._dead_letter_postponed()
            return None
        if not any(lag.records for lag in lags):
            self._waits_since_s = None
            return None
        if self._stalled_since_s is not None and now_s - self._stalled_since_s < WRITE_RETRIES.max_s:
            return None
        self._waits_since_s = self._waits_since_s if self._waits_since_s is not None else now_s
        if (
            now_s - self._waits_since_s < self.settings.flush.interval_s
            and waiting(lags, self.capacity) < self.slots
        ):
            return None
        self._waits_since_s = None
        return self._job(lags, None)

    def _job(self, lags: Sequence[Lag], only: Firsts | None) -> Job:
        self._jobs += 1
        skipped = set[TableId]()
        if only is None:
            skipped = {*self._backlog, *(flush.table for flush in self._next())}
        any_parked = self._tables.any_parked
        if any_parked:  # each partition's in the order of its offsets
            lags = [replace(lag, measured=False) for lag in lags]
        tasks = plan(lags, self.capacity)
        whole = all(lag.measured for lag in lags if lag.records)  # none of them may have to end early
        hands_on = (
            only is None and not any_parked and len(tasks) > 1 and self._spread.pays_to_hand_on and whole
        )
        if hands_on:
            tasks = [[replace(each, whole=True) for each in ranges] for ranges in tasks]
        return Job(self._jobs, tasks, frozenset(skipped), only, hands_on)

    def _is_far_behind(self) -> bool:
        """Reading on has an end where what was left would have to be read from too far back."""
        self.offsets.lowest(self._waiting())
        return bool(self.offsets.behind(self.settings.flush.replay_records_max))

    def _dead_letter_postponed(self) -> None:
        """New tables beyond the limit must not stop those that are there."""
        for table, backlog in self._backlog.items():
            if self._tables[table].is_postponed and backlog.dead_letter is None:
                log.error("records.not_taken", table=str(table), reason=POSTPONED.detail)
                backlog.dead_letter = POSTPONED

    def _next(self) -> list[TableFlush]:
        """Flushes that wait for the one of their table in flight."""
        entries = [self._tables[flush.table] for flush in self._flushes]
        return [entry.next for entry in entries if entry.next is not None]

    def _waiting(self) -> list[TableFlush | Backlog]:
        return [*self._flushes, *self._next(), *self._backlog.values()]

    # ---- what tasks ask

    def decisions(self, tables: Sequence[TableId]) -> tuple[RoutingDecisions, bool]:
        """Where records of tables go that a task of the running job has met, and whether that is known of all
        of them."""
        job = self.job
        assert job is not None
        views, parked = dict[TableId, TableView](), dict[TableId, str]()
        dead_lettered, unknown = dict[TableId, Rejected](), list[TableId]()
        in_pieces = job.in_pieces
        for table in tables:
            entry, backlog = self._tables[table], self._backlog.get(table)
            if entry.is_held or (job.only is None and backlog is not None):
                continue
            if entry.parking:
                if not in_pieces:  # else it was parked since the job began
                    parked[table] = entry.parking
            elif backlog is not None and backlog.dead_letter is not None:
                dead_lettered[table] = backlog.dead_letter
            elif entry.view is not None:
                views[table] = entry.view
            elif (why := self._refused.why(table)) is not None:
                dead_lettered[table] = why
            else:
                unknown.append(table)
        self._ask_for(unknown)
        is_decided = all(self._tables[table].is_postponed for table in unknown)
        return RoutingDecisions(views, parked, dead_lettered), is_decided

    def _ask_for(self, tables: Iterable[TableId]) -> None:
        if new := self._tables.ask(tables):
            self.link.open(new)

    # ---- what tasks have done

    def collect(self, results: Sequence[TaskResult]) -> None:
        """Takes the results of the job, one of each task; what may be committed goes to the committer."""
        job, self.job = self.job, None
        assert job is not None
        for result in results:
            self._count(result)
        if job.only is None and len(job.tasks) > 1:
            small = [table for result in results for table in result.small]
            self._spread = Spread(len(small), len(set(small)), sum(result.small_bytes for result in results))
        left = self._left(results)
        self._note_left(job, results, left)
        reach("job_collected")
        by_table = _by_table(results)
        ready = [self._ready(job, table, parts) for table, parts in by_table.items() if table not in left]
        self._submit([flush for flush in ready if flush is not None])
        if job.only is None:
            is_stalled = bool(self._backlog or self._next())
            self._stalled_since_s = self.clock.monotonic_s() if is_stalled else None

    def _ready(self, job: Job, table: TableId, parts: Sequence[TaskFlush]) -> TableFlush | None:
        """What the tasks have written of a table as one flush that may be committed now. None where another
        one is under way, after which it comes, or where it does not fit the table and is left."""
        first_offsets = _lowest(parts)
        flush = self._fitting(job, table, _one_flush([part.flush for part in parts]))
        if flush is None:
            self._leave(table, first_offsets)
            return None
        entry = self._tables[table]
        entry.ends |= {topic_partition: r.end for topic_partition, r in flush.ranges.items()}
        if table in self._flushes:
            entry.next = TableFlush(flush, first_offsets)
            return None
        return TableFlush(flush, first_offsets)

    def _left(self, results: Sequence[TaskResult]) -> dict[TableId, Backlog]:
        left: dict[TableId, Backlog] = {}
        for table, firsts in (entry for result in results for entry in result.left.items()):
            left.setdefault(table, Backlog({})).join(firsts)
        for each in (each for result in results for each in result.flushes):
            if (
                each.flush.table in left
            ):  # of one task only: its files are nobody's, all of it is written again
                left[each.flush.table].join(each.first_offsets)
        return left

    def _note_left(self, job: Job, results: Sequence[TaskResult], left: Mapping[TableId, Backlog]) -> None:
        ends = {number: self._read_to(job, results, number) for number in job.starts}
        if job.only is None:
            self.offsets.routed |= ends
        else:
            for table in job.only:
                if table not in left:
                    self._caught_up(table, ends)
        for table, backlog in left.items():
            self._leave(table, backlog.first_offsets)
        for table, trouble in (entry for result in results for entry in result.stuck):
            backlog = self._backlog[table]
            backlog.tries += 1
            backlog.not_before_s = self.clock.monotonic_s() + WRITE_RETRIES.delay_s(backlog.tries)
            self.link.stuck(table, trouble)

    def _read_to(self, job: Job, results: Sequence[TaskResult], number: int) -> int:
        """Only ranges that are a partition's only one may end early, so the highest offset read has
        everything below it."""
        return max(
            (each.end for result in results for each in result.read if each.source == number),
            default=job.starts[number],
        )

    def _caught_up(self, table: TableId, ends: Mapping[int, int]) -> None:
        """All that a repetition has read of a table is dealt with; what it did not come to stays."""
        backlog = self._backlog[table]
        read_to = {n: max(first, ends.get(n, first)) for n, first in backlog.first_offsets.items()}
        left = {n: offset for n, offset in read_to.items() if offset < self.offsets.routed[n]}
        if left:
            backlog.first_offsets = left
        else:
            del self._backlog[table]

    def _fitting(self, job: Job, table: TableId, flush: WrittenFlush | None) -> WrittenFlush | None:
        """A flush as it may be committed after what was handed over before it: it starts where that ends.
        None: its records have to be read again."""
        entry = self._tables[table]
        if flush is None or entry.parking or (job.only is None and table in self._backlog):
            return None
        if job.only is not None:
            return flush
        ends, begins = (
            entry.ends,
            {self._topic_partition(number): start for number, start in job.starts.items()},
        )
        if any(ends.get(topic_partition, 0) > begins[topic_partition] for topic_partition in flush.ranges):
            return None
        return replace(
            flush,
            ranges={
                topic_partition: Range(max(r.start, ends.get(topic_partition, 0)), r.end)
                for topic_partition, r in flush.ranges.items()
            },
        )

    def _topic_partition(self, number: int) -> TopicPartition:
        return self.topics.assignment.topic_partition(number)

    def _submit(self, ready: Sequence[TableFlush]) -> None:
        for each in ready:
            self._flushes.begin(each)
            self._flushes.submitted(each.table, each.flush.rows)
        self.link.submit([each.flush for each in ready])
        reach("handed_over")

    def _leave(self, table: TableId, firsts: Mapping[int, int]) -> None:
        self._backlog.setdefault(table, Backlog({})).join(firsts)

    def _count(self, result: TaskResult) -> None:
        self._counts.add(result.counts)
        for number, (records, size_bytes) in result.record_bytes.items():
            self.topics.note(number, records, size_bytes)

    # ---- what the main process says

    def discover(self) -> Mapping[TopicPartition, int]:
        found = self.topics.discover()
        self.offsets.routed |= {number: self.topics.positions[number] for number in found}
        return {self._topic_partition(number): self.topics.first(number) for number in found}

    def opened(
        self,
        views: Mapping[TableId, TableView],
        postponed: Sequence[TableId],
        refused: Mapping[TableId, Rejected],
    ) -> None:
        self._tables.opened(views, postponed)
        self._refused.note(refused)
        for tenant, streams in Counter(table.tenant for table in refused).items():
            log.warning("records.over_limit", tenant=tenant.name, streams=streams)
        for table, why in refused.items():
            self._tables.pop(table, None)
            if table in self._backlog:
                self._backlog[table].dead_letter = why
        for table in views:
            self._refused.pop(table, None)
            backlog = self._backlog.get(table)
            if backlog is not None and backlog.dead_letter is not TABLE_DELETED:
                backlog.dead_letter = None

    def settle(self, outcomes: Iterable[tuple[TableId, Outcome, TableView]]) -> None:
        ready = []
        self._stalled_since_s = None
        for table, outcome, view in outcomes:
            if table not in self._flushes:
                continue
            entry = self._tables[table]
            entry.view = view
            flush = self._flushes.settled(table, outcome).cut
            if outcome is not Outcome.DONE:
                self._flushes.give_up(table)  # one to be redone
                self._take_back(entry, flush)
            elif entry.next is not None:
                ready.append(entry.next)
                entry.next = None
            if outcome is Outcome.DEAD_LETTER:
                self._backlog[table].dead_letter = TABLE_DELETED
        if ready:
            self._submit(ready)

    def _take_back(self, entry: SparkTable, flush: TableFlush | None) -> None:
        """A table's flush, with the next, is not committed: the records are read again."""
        for each in (flush, entry.next):
            if each is not None:
                self._leave(each.table, each.first_offsets)
        entry.next = None
        entry.ends.clear()

    def park(self, parkings: Mapping[TableId, str]) -> None:
        for table, parking in parkings.items():
            self._tables.park(table, parking)
            self._take_back(self._tables[table], self._flushes.give_up(table))
            if table in self._backlog:
                self._backlog[table].not_before_s = 0.0
            reach("parked_in_flight")

    def hold(self, table: TableId) -> None:
        self._tables[table].is_held = True

    def release(self, views: Mapping[TableId, TableView]) -> None:
        self._tables.release(views)

    def forget(self, tables: Iterable[TableId]) -> None:
        """Where something is under way the entry stays; a job that runs may bring more of a table."""
        for table in () if self.job is not None else tables:
            entry = self._tables.get(table)
            is_free = table not in self._flushes and table not in self._backlog
            if entry is not None and entry.is_idle and entry.next is None and is_free:
                del self._tables[table]

    # ---- offsets

    @property
    def is_idle(self) -> bool:
        return self.job is None and not len(self._flushes)

    def durable_offsets(self, _: float, /) -> dict[int, int]:
        moved = self.offsets.to_store(self.offsets.lowest(self._waiting()), self.clock.monotonic_s())
        if moved:
            self.writer.acknowledged()
            if self._tables.any_parked:
                reach("parked_acknowledged")
        return moved

    def store(self, moved: Mapping[int, int], checkpoint: str) -> None:
        store_offsets(self.topics, self.offsets, moved, checkpoint, self.clock.monotonic_s())

    def report(self) -> Report:
        return Report(progress(self.topics, self.offsets), 0, 0, len(self._backlog), self._take_counts())

    def _take_counts(self) -> Counts:
        counts, self._counts = self._counts, Counts()
        counts.add(self.writer.take_counts())
        counts.expired = self.topics.take_expired()
        return counts


def _by_table(results: Sequence[TaskResult]) -> dict[TableId, list[TaskFlush]]:
    """The parts of each table's flush, of all tasks."""
    parts: dict[TableId, list[TaskFlush]] = defaultdict(list)
    for each in (each for result in results for each in result.flushes):
        parts[each.flush.table].append(each)
    return parts


def _lowest(parts: Sequence[TaskFlush]) -> dict[int, int]:
    lowest = Backlog({})
    for part in parts:
        lowest.join(part.first_offsets)
    return lowest.first_offsets


def _one_flush(flushes: Sequence[WrittenFlush]) -> WrittenFlush | None:
    """One flush of a table; None where tasks wrote for different states of it, or by different keys."""
    ranges: dict[TopicPartition, Range] = {}
    new: dict[str, NewColumn] = {}
    for flush in flushes:
        for topic_partition, (start, end) in flush.ranges.items():
            other = ranges.get(topic_partition, Range(start, end))
            ranges[topic_partition] = Range(min(start, other.start), max(end, other.end))
        if flush.uuid != flushes[0].uuid or any(
            new.get(name, column) != column for name, column in flush.new.items()
        ):
            return None
        new |= flush.new
    files = [file for flush in flushes for file in flush.files]
    rows = sum(flush.rows for flush in flushes)
    try:
        keyed = join_keyed(flushes)
    except ValueError:
        return None
    widened = {name: kind for flush in flushes for name, kind in flush.widened.items()}
    value_bytes = sum(flush.value_bytes for flush in flushes)
    joined = replace(flushes[0], ranges=ranges, files=files, rows=rows, new=new, widened=widened, keyed=keyed)
    return replace(joined, value_bytes=value_bytes)
