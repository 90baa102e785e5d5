"""What an executor runs: reads its ranges, routes, writes one flush per table with the same stages as a
worker process, tells what it has done.

A task that dies or is tried twice leaves files that nobody refers to, dead letters and parked messages that
are there again under the same coordinates, and nothing else: only what Spark collects is committed.
"""

import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from confluent_kafka import Message

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, topic_partition_of
from ingest.model.fault_point import reach
from ingest.model.source import Source
from ingest.model.table_retention import Retentions
from ingest.model.trouble import Trouble
from ingest.node.engines.spark_driver_rpc import DriverRpcClient
from ingest.node.engines.spark_plan import SMALL_BYTES, OffsetRange
from ingest.node.engines.spark_task_spec import (
    WRITING,
    RoutingDecisions,
    TaskFlush,
    TaskResult,
    TaskSetup,
    TaskSpec,
)
from ingest.parking.parked_topic import ParkedTopic
from ingest.route.buffer import RawRecord, TableBuffer, records_of
from ingest.route.buffers import Buffers
from ingest.route.routes import Routes
from ingest.write.flush_writer import ColumnLink, Flush, FlushWriter, cut_flush, grouped
from lake import native_core
from lake.clock import SystemClock, epoch_ms
from lake.errors import FatalError, Rejected
from lake.logs import configure_logs
from lake.storage import open_storage
from lake.tenant import TableId

# A table for which so much waits is converted while more comes; they are looked for whenever half as much has
# come.
HOT_PART_BYTES = 32 * 1024 * 1024
CONSUME_WAIT_S = 0.05
# A task reads much of few partitions.
TASK_FETCH_BYTES = 4 * 1024 * 1024
# The size of every so-manieth record is noted, for plans to come.
SAMPLE_EVERY = 16


def run_tasks(setup: TaskSetup, job: int, tasks: Iterable[int]) -> Iterator[TaskResult]:
    """For `mapPartitions` over the numbers of a job's tasks."""
    for task in tasks:
        yield _run_task(setup, job, task).result


def read_tasks(
    setup: TaskSetup, job: int, writers: int, tasks: Iterable[int]
) -> Iterator[tuple[int, TaskResult | TableBuffer]]:
    """The same for a job that hands on: results, and what is handed on, each with the number of the task that
    is to have it."""
    for task in tasks:
        done = _run_task(setup, job, task)
        yield task, done.result
        for buffer in done.handed_on:
            yield crc32(str(buffer.table).encode()) % writers, buffer


def write_tasks(
    setup: TaskSetup, job: int, received: Iterable[tuple[int, TaskResult | TableBuffer]]
) -> Iterator[TaskResult]:
    """For `mapPartitions` over what was handed on: results pass, the rest is written."""
    buffers: list[TableBuffer] = []
    for _, each in received:
        if isinstance(each, TaskResult):
            yield each
        else:
            buffers.append(each)
    if buffers:
        yield _run_task(setup, job, WRITING, buffers).result


class Done(NamedTuple):
    """What a task has done, and what others are to write."""

    result: TaskResult
    handed_on: Sequence[TableBuffer] = ()


def _run_task(setup: TaskSetup, job: int, task: int, received: Sequence[TableBuffer] = ()) -> Done:
    global _tools  # noqa: PLW0603 - Spark keeps the process for further tasks, and clients of Kafka are costly to begin with
    with closing(DriverRpcClient(setup.address, setup.key, job)) as link:
        order = link.order(task)
        tools, _tools = _tools, None  # a task that fails leaves none behind
        if tools is None or tools.setup != setup:
            use_core(setup)
            tools = TaskTools(setup)
        try:
            done = (
                Task(order, tools, link).run()
                if task != WRITING
                else Task(order, tools, link).write(received)
            )
        except FatalError as error:
            return Done(TaskResult(refused=str(error)))
        _tools = tools
        return done._replace(result=replace(done.result, without_core=without_core(setup)))


def use_core(setup: TaskSetup) -> None:
    """Has this process do as the driver does, unless `FIRN_CORE` of the executor's own environment says
    what: its packages lie in an archive, beside which no library was built. Before anything asks for it."""
    from pyspark import SparkFiles

    if not os.environ.get(native_core.CORE_VARIABLE):
        path = SparkFiles.get(setup.core) if setup.core else native_core.OFF
        os.environ[native_core.CORE_VARIABLE] = path


def without_core(setup: TaskSetup) -> str | None:
    """Why the core of the driver does not serve here: another kind of processor, say."""
    core = native_core.load()
    return core.reason if setup.core and isinstance(core, native_core.Absent) else None


class TaskTools:
    """What tasks of one process share."""

    def __init__(self, setup: TaskSetup) -> None:
        configure_logs("ingest")
        self.setup = setup
        self.storage = open_storage(setup.storage)
        self.dead_letters = DeadLetters(setup.settings, self.storage, setup.warehouse)
        self.parked_topic = ParkedTopic(setup.settings, self.storage, setup.warehouse)
        self.reader = KafkaReader(setup.settings, CONSUME_WAIT_S)
        self.routes = Routes(setup.settings)


_tools: TaskTools | None = None


class Driver(ColumnLink, Retentions, Protocol):
    """The driver as a task sees it; `DriverRpcClient` is its end of the line."""

    def decisions(self, tables: Sequence[TableId]) -> RoutingDecisions:
        """Where the records of tables go."""


class Task:
    """One task, once. Raises UnavailableError where Kafka or the driver is gone (Spark tries again),
    FatalError for what a person has to mend."""

    def __init__(self, order: TaskSpec, tools: TaskTools, link: Driver) -> None:
        self._order = order
        self._tools = tools
        self._link = link
        self._writer = FlushWriter(
            tools.setup.settings, link, tools.dead_letters, tools.storage, retentions=link
        )
        self._numbers = {(s.topic, s.partition): number for number, s in enumerate(order.sources)}
        self._buffers = Buffers()
        self._decisions: dict[TableId, RoutingDecisions] = {}
        self._next = {each.source: each.start for each in order.ranges}
        self._left: dict[TableId, dict[int, int]] = {}
        self._stuck: list[tuple[TableId, Trouble]] = []
        self._flushes: list[TaskFlush] = []
        self._records: Counter[int] = Counter()  # by source
        self._samples: dict[int, list[int]] = defaultdict(list)  # sizes of some of them
        self._parked = self._unspooled_bytes = 0
        self._clock = SystemClock()

    def run(self) -> Done:
        """Reads its ranges, and writes what is not handed on."""
        began_s = self._clock.monotonic_s()
        gc.disable()  # as in a worker process
        try:
            self._read()
            small = [buffer.table for buffer in self._buffers if buffer.raw_bytes < SMALL_BYTES]
            small_bytes = sum(buffer.raw_bytes for buffer in self._buffers if buffer.raw_bytes < SMALL_BYTES)
            handed_on = [self._buffers.take(table) for table in small] if self._order.hands_on else []
            for buffer in handed_on:
                buffer.close_part()
                buffer.pack()
            self._finish()
        finally:
            gc.enable()
        read = [OffsetRange(each.source, each.start, self._next[each.source]) for each in self._order.ranges]
        return Done(
            replace(self._result(began_s), read=read, small=small, small_bytes=small_bytes), handed_on
        )

    def write(self, received: Iterable[TableBuffer]) -> Done:
        """Writes what others have handed on: of each table the part of all tasks as one. All ranges of the
        job were read to their ends."""
        began_s = self._clock.monotonic_s()
        gc.disable()
        try:
            for each in self._order.ranges:
                self._next[each.source] = max(each.end, self._next[each.source])
            parts: dict[TableId, list[TableBuffer]] = defaultdict(list)
            for buffer in received:
                parts[buffer.table].append(buffer)
            for table, buffers in parts.items():
                for record in sorted(
                    (record for buffer in buffers for record in buffer.alive()), key=_topic_partition
                ):
                    self._buffers.add(table, 0.0, *record)
                buffers.clear()
            self._finish()
        finally:
            gc.enable()
        return Done(self._result(began_s))

    def _result(self, began_s: float) -> TaskResult:
        samples = {number: (len(sizes), sum(sizes)) for number, sizes in self._samples.items()}
        counts = self._writer.take_counts()
        counts.parked = self._parked
        masked = self._tools.routes.take_masked()
        if self._order.only is None:  # else another task has counted them
            counts.add(masked)
        for number, records in self._records.items() if self._order.only is None else ():
            counts.delivered[self._order.sources[number].topic] += records
        seconds = self._clock.monotonic_s() - began_s
        return TaskResult(
            flushes=self._flushes,
            left=self._left,
            stuck=self._stuck,
            counts=counts,
            record_bytes=samples,
            seconds=seconds,
        )

    # ---- in

    def _read(self) -> None:
        sources, ranges = self._order.sources, self._order.ranges
        partitions = {
            each.source: KafkaPartition(
                sources[each.source].topic, sources[each.source].topic_id, sources[each.source].partition
            )
            for each in ranges
        }
        may_end = not any(each.whole for each in ranges)
        asked = {partitions[each.source]: (each.start, each.end) for each in ranges}
        with closing(self._tools.reader.read_runs(asked, TASK_FETCH_BYTES)) as runs:
            self._take(runs, self._tools.setup.settings.spark.task_bytes_max if may_end else None)

    def _take(self, runs: Iterable[Sequence[Message]], bytes_max: int | None) -> None:
        """Routes messages until there are no more, or until so many bytes wait."""
        for run in runs:
            topic, partition = topic_partition_of(run[0])
            self._dead_letter_unreadable()
            self._take_run(topic, self._numbers[topic, partition], run)
            if bytes_max is not None and self._buffers.size_bytes >= bytes_max:
                return
        self._dead_letter_unreadable()
        self._next |= {
            each.source: each.end for each in self._order.ranges
        }  # below an end there may be nothing but control records

    def _take_run(self, topic: str, number: int, messages: Sequence[Message]) -> None:
        """Routes messages of one topic-partition."""
        for target, routed in self._tools.routes.sort(topic, messages).items():
            self._put(target, number, routed)
        self._next[number] = messages[-1].offset() + 1
        self._records[number] += len(messages)
        self._samples[number] += [len(message) for message in messages if not message.offset() % SAMPLE_EVERY]

    def _dead_letter_unreadable(self) -> None:
        """What the reader has stepped over before the run that came last: a dead letter each, of which one
        task has to take care."""
        for unreadable in self._tools.reader.take_unreadable():
            number = self._numbers[unreadable.topic, unreadable.partition]
            if self._order.only is None:
                self._writer.dead_letter_range(
                    number, self._order.sources[number], unreadable, epoch_ms(self._clock.now())
                )
            self._next[number] = unreadable.end
            self._records[number] += unreadable.offsets

    def _put(self, target: TableId | Rejected, number: int, messages: Sequence[Message]) -> None:
        order = self._order
        if order.only is not None:
            start = order.only.get(target, {}).get(number) if isinstance(target, TableId) else None
            messages = [message for message in messages if start is not None and message.offset() >= start]
            if isinstance(target, TableId) and messages:
                self._add(target, number, messages)
        elif isinstance(target, Rejected):
            for record in records_of(number, messages):
                self._writer.dead_letter(record, self._source(record), target, None)
        elif target in order.skipped:
            self._left.setdefault(target, {}).setdefault(number, messages[0].offset())
        else:
            self._add(target, number, messages)

    def _add(self, table: TableId, number: int, messages: Sequence[Message]) -> None:
        before_bytes = self._buffers.size_bytes
        self._buffers.extend(table, 0.0, number, messages)
        self._unspooled_bytes += self._buffers.size_bytes - before_bytes
        if self._unspooled_bytes >= HOT_PART_BYTES // 2:
            self._unspooled_bytes = 0
            self._append_hot()

    def _append_hot(self) -> None:
        hot = [buffer for buffer in self._buffers.large if buffer.open_bytes >= HOT_PART_BYTES]
        self._decide([buffer.table for buffer in hot])
        for buffer in hot:
            if (view := self._decisions[buffer.table].views.get(buffer.table)) is not None:
                self._writer.append(buffer, self._order.sources, view)
                self._buffers.close_part(buffer.table)
                self._buffers.pack_beyond(0)

    def _source(self, record: RawRecord) -> Source:
        return self._order.sources[record.source]

    def _decide(self, tables: Iterable[TableId]) -> None:
        """All records that the task has of a table go one way."""
        if asked := [table for table in tables if table not in self._decisions]:
            decisions = self._link.decisions(asked)
            self._decisions.update(dict.fromkeys(asked, decisions))

    # ---- out

    def _finish(self) -> None:
        tables = [buffer.table for buffer in self._buffers]
        self._decide(tables)
        written = [table for table in tables if table in self._decisions[table].views]
        for table in [table for table in tables if table not in self._decisions[table].views]:
            self._put_aside(table, self._decisions[table])
        for group in grouped(map(self._cut, written)):
            self._write(group)
        self._writer.acknowledged()
        self._tools.parked_topic.flush()
        reach("dead_letters_acknowledged")

    def _put_aside(self, table: TableId, decisions: RoutingDecisions) -> None:
        """The table takes no rows: its records are parked, become dead letters, or are left."""
        buffer = self._buffers.take(table)
        if table in decisions.parked:
            self._park(buffer, decisions.parked[table])
        elif table in decisions.dead_lettered:
            self._writer.dead_letter_all(buffer, self._order.sources, decisions.dead_lettered[table])
        else:
            self._leave(table, buffer.first_offsets)

    def _write(self, flushes: Sequence[Flush]) -> None:
        views = {flush.table: self._decisions[flush.table].views[flush.table] for flush in flushes}
        written = self._writer.write(flushes, self._order.sources, views)  # 1, 2
        firsts = {flush.table: flush.first_offsets for flush in flushes}
        self._flushes += [TaskFlush(flush, firsts[flush.table]) for flush in written.flushes]
        for stuck, trouble in written.stuck:
            self._stuck.append((stuck.table, trouble))
            self._leave(stuck.table, stuck.first_offsets)

    def _cut(self, table: TableId) -> Flush:
        flush = cut_flush(self._buffers.take(table), self._order.sources, self._next.__getitem__)
        flush.hot = self._writer.take_hot(table)
        return flush

    def _park(self, buffer: TableBuffer, parking: str) -> None:
        for record in buffer.alive():
            self._tools.parked_topic.send(self._source(record), record, buffer.table, parking)
            self._parked += 1

    def _leave(self, table: TableId, firsts: Mapping[int, int]) -> None:
        left: dict[int, Any] = self._left.setdefault(table, {})
        left |= {number: min(offset, left.get(number, offset)) for number, offset in firsts.items()}


def _topic_partition(record: RawRecord) -> tuple[int, int]:
    return record.source, record.offset
