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
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from ingest.kafka.offsets import Offsets
from ingest.kafka.progress import progress, store_offsets
from ingest.model.fault_point import reach
from ingest.model.link import Counts, Outcome, Report, TableView, WrittenFlush
from ingest.node.engines.spark_plan import Capacity, Lag, OffsetRange, Spread, plan, waiting
from ingest.node.engines.spark_task_spec import Firsts, RoutingDecisions, TaskFlush, TaskResult
from ingest.node.engines.spark_topics import PlannedTopics
from ingest.node.pipeline import AGAIN, POSTPONED, CommitLink
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
    """What all tasks of a job have written of a table; None where they wrote for different states of it."""

    flush: WrittenFlush | None
    first_offsets: dict[int, int]


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
    _views: dict[TableId, TableView] = field(default_factory=dict)
    _asked: set[TableId] = field(default_factory=set)
    _postponed: set[TableId] = field(default_factory=set)
    _parked: dict[TableId, str] = field(default_factory=dict)
    _held: set[TableId] = field(default_factory=set)
    _in_flight: dict[TableId, TableFlush] = field(default_factory=dict)
    _later: dict[TableId, TableFlush] = field(default_factory=dict)
    _backlog: dict[TableId, Backlog] = field(default_factory=dict)
    _ends: dict[TableId, dict[TopicPartition, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # where the last flush of a table ends
    _jobs: int = 0
    _spread: Spread = field(default_factory=Spread)  # of the last batch that several tasks have read
    _waits_since_s: float | None = None  # since when something waits in the topics
    _stalled_since_s: float | None = (
        None  # when the last batch was read, while tables are left or late and nothing was settled since
    )
    _counts: Counts = field(default_factory=Counts)

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
        self._ask_for(table for table in self._backlog if table not in self._parked)
        starts: dict[int, int] = {}
        for backlog in due.values():
            starts |= {
                number: min(offset, starts.get(number, offset))
                for number, offset in backlog.first_offsets.items()
            }
        only = {table: dict(backlog.first_offsets) for table, backlog in due.items()}
        return (
            self._job(
                [self.topics.piece(n, start, self.offsets.routed[n]) for n, start in starts.items()], only
            )
            if only
            else None
        )

    def _may_repeat(self, table: TableId, backlog: Backlog) -> bool:
        on_the_way = table in self._in_flight or table in self._later or table in self._held
        return not on_the_way and (
            table in self._views or table in self._parked or backlog.dead_letter is not None
        )

    def _batch(self) -> Job | None:
        now_s = self.clock.monotonic_s()
        lags = [self.topics.lag(number, start) for number, start in self.offsets.routed.items()]
        if self._is_far_behind():
            self._dead_letter_postponed()
            return None
        if not any(lag.records for lag in lags):
            self._waits_since_s = None
            return None
        if self._stalled_since_s is not None and now_s - self._stalled_since_s < AGAIN.max_s:
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
        skipped = {*self._backlog, *self._later} if only is None else set[TableId]()
        if self._parked:  # each partition's in the order of its offsets
            lags = [replace(lag, measured=False) for lag in lags]
        tasks = plan(lags, self.capacity)
        whole = all(lag.measured for lag in lags if lag.records)  # none of them may have to end early
        hands_on = (
            only is None and not self._parked and len(tasks) > 1 and self._spread.pays_to_hand_on and whole
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
        for table in self._postponed & self._backlog.keys():
            if self._backlog[table].dead_letter is None:
                log.error("records.not_taken", table=str(table), reason=POSTPONED.detail)
                self._backlog[table].dead_letter = POSTPONED

    def _waiting(self) -> list[TableFlush | Backlog]:
        return [*self._in_flight.values(), *self._later.values(), *self._backlog.values()]

    # ---- what tasks ask

    def decisions(self, tables: Sequence[TableId]) -> tuple[RoutingDecisions, bool]:
        """Where records of tables go that a task of the running job has met, and whether that is known of all
        of them."""
        assert self.job is not None
        only = self.job.only
        views, parked, dead_lettered = (
            dict[TableId, TableView](),
            dict[TableId, str](),
            dict[TableId, Rejected](),
        )
        left = {table for table in tables if table in self._held or (only is None and table in self._backlog)}
        if self.job.in_pieces:  # it was parked since the job began
            left |= {table for table in tables if table in self._parked}
        for table in [table for table in tables if table not in left]:
            backlog = self._backlog.get(table)
            if table in self._parked:
                parked[table] = self._parked[table]
            elif backlog is not None and backlog.dead_letter is not None:
                dead_lettered[table] = backlog.dead_letter
            elif table in self._views:
                views[table] = self._views[table]
        decided = len(left) + len(views) + len(parked) + len(dead_lettered)
        unknown = [
            table
            for table in tables
            if table not in left and table not in views and table not in parked and table not in dead_lettered
        ]
        self._ask_for(unknown)
        return RoutingDecisions(views, parked, dead_lettered), decided == len(tables) or all(
            table in self._postponed for table in unknown
        )

    def _ask_for(self, tables: Iterable[TableId]) -> None:
        new = [table for table in tables if table not in self._views and table not in self._asked]
        if new:
            self._asked.update(new)
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
        ready = []
        for table, part in _merged(results).items():
            if table in left:
                continue
            part.flush = self._fitting(job, table, part)
            if part.flush is None:
                self._leave(table, part.first_offsets)
                continue
            self._ends[table] |= {place: r.end for place, r in part.flush.ranges.items()}
            if table in self._in_flight:
                self._later[table] = part
            else:
                ready.append((table, part))
        self._submit(ready)
        if job.only is None:
            self._stalled_since_s = self.clock.monotonic_s() if self._backlog or self._later else None

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
            backlog.not_before_s = self.clock.monotonic_s() + AGAIN.delay_s(backlog.tries)
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

    def _fitting(self, job: Job, table: TableId, part: TableFlush) -> WrittenFlush | None:
        """A flush as it may be committed after what was handed over before it: it starts where that ends.
        None: its records have to be read again."""
        flush = part.flush
        if flush is None or table in self._parked or (job.only is None and table in self._backlog):
            return None
        if job.only is not None:
            return flush
        ends, begins = self._ends[table], {self._place(number): start for number, start in job.starts.items()}
        if any(ends.get(place, 0) > begins[place] for place in flush.ranges):
            return None
        return replace(
            flush,
            ranges={
                place: Range(max(r.start, ends.get(place, 0)), r.end) for place, r in flush.ranges.items()
            },
        )

    def _place(self, number: int) -> TopicPartition:
        return self.topics.assignment.place(number)

    def _submit(self, ready: Sequence[tuple[TableId, TableFlush]]) -> None:
        self._in_flight.update(ready)
        self.link.submit([part.flush for _, part in ready if part.flush is not None])
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
        return {self._place(number): self.topics.first(number) for number in found}

    def opened(self, views: Mapping[TableId, TableView], postponed: Sequence[TableId]) -> None:
        self._postponed.update(postponed)
        self._postponed.difference_update(views)
        self._asked.difference_update(views)
        for table in [
            table
            for table in views
            if table in self._backlog and self._backlog[table].dead_letter is POSTPONED
        ]:
            self._backlog[table].dead_letter = None
        self._views.update((table, view) for table, view in views.items() if table not in self._parked)

    def settle(self, outcomes: Iterable[tuple[TableId, Outcome, TableView]]) -> None:
        ready = []
        self._stalled_since_s = None
        for table, outcome, view in outcomes:
            flush = self._in_flight.pop(table, None)
            if flush is None:
                continue
            self._views[table] = view
            later = self._later.pop(table, None)
            if outcome is Outcome.DONE:
                ready += [(table, later)] if later is not None else []
                continue
            self._take_back(table, flush, later)
            if outcome is Outcome.DEAD_LETTER:
                self._backlog[table].dead_letter = TABLE_DELETED
        if ready:
            self._submit(ready)

    def _take_back(self, table: TableId, *flushes: TableFlush | None) -> None:
        """Flushes that are not committed: their records are read again."""
        self._ends.pop(table, None)
        for flush in flushes:
            if flush is not None:
                self._leave(table, flush.first_offsets)

    def park(self, parkings: Mapping[TableId, str]) -> None:
        for table, parking in parkings.items():
            self._parked[table] = parking
            self._held.discard(table)
            self._views.pop(table, None)
            self._asked.discard(table)
            self._postponed.discard(table)
            self._take_back(table, self._in_flight.pop(table, None), self._later.pop(table, None))
            if table in self._backlog:
                self._backlog[table].not_before_s = 0.0
            reach("parked_in_flight")

    def hold(self, table: TableId) -> None:
        self._held.add(table)

    def release(self, views: Mapping[TableId, TableView]) -> None:
        for table, view in views.items():
            self._parked.pop(table, None)
            self._held.discard(table)
            self._views[table] = view

    # ---- offsets

    @property
    def is_idle(self) -> bool:
        return self.job is None and not self._in_flight and not self._later

    def durable_offsets(self) -> dict[int, int]:
        moved = self.offsets.to_store(self.offsets.lowest(self._waiting()), self.clock.monotonic_s())
        if moved:
            self.writer.acknowledged()
            if self._parked:
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


def _merged(results: Sequence[TaskResult]) -> dict[TableId, TableFlush]:
    """One flush of each table."""
    parts: dict[TableId, list[TaskFlush]] = defaultdict(list)
    for each in (each for result in results for each in result.flushes):
        parts[each.flush.table].append(each)
    return {
        table: TableFlush(_one_flush([each.flush for each in of_table]), _lowest(of_table))
        for table, of_table in parts.items()
    }


def _lowest(parts: Sequence[TaskFlush]) -> dict[int, int]:
    lowest = Backlog({})
    for part in parts:
        lowest.join(part.first_offsets)
    return lowest.first_offsets


def _one_flush(flushes: Sequence[WrittenFlush]) -> WrittenFlush | None:
    ranges: dict[TopicPartition, Range] = {}
    new: dict[str, int] = {}
    for flush in flushes:
        for place, (start, end) in flush.ranges.items():
            other = ranges.get(place, Range(start, end))
            ranges[place] = Range(min(start, other.start), max(end, other.end))
        if flush.uuid != flushes[0].uuid or any(
            new.get(name, column_id) != column_id for name, column_id in flush.new.items()
        ):
            return None
        new |= flush.new
    files = [file for flush in flushes for file in flush.files]
    return replace(flushes[0], ranges=ranges, files=files, rows=sum(flush.rows for flush in flushes), new=new)
