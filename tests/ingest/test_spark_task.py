"""What tasks of the Spark engine read, write and hand on, without Spark and Kafka: every record goes one way,
once."""

import pickle
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pyarrow.parquet as pq

from ingest.kafka.kafka_reader import KafkaPartition
from ingest.kafka.unreadable import UnreadableRange
from ingest.model.link import TableView, WrittenFlush
from ingest.model.source import Source
from ingest.node.engines.spark_plan import SMALL_BYTES, OffsetRange
from ingest.node.engines.spark_task import Done, Task
from ingest.node.engines.spark_task_spec import RoutingDecisions, TaskResult, TaskSpec
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.route.routes import Routes
from lake.log_schema import LogSchema, new_log_schema
from lake.marks import NO_MARKS, Range, TopicPartition
from lake.settings import IngestSettings, TopicSettings
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId

SOURCES = [Source("t", "id", partition, "json") for partition in range(3)]
SETTINGS = IngestSettings(topics=(TopicSettings(name="t", format="json"),))
SMALL, LARGE, AWAY = "abcdef", "large", "away"


@dataclass(frozen=True)
class FakeMessage:
    """A message of the topic."""

    at: tuple[int, int]
    tenant: str
    body: bytes

    def __len__(self) -> int:
        return len(self.body)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> None: ...

    def headers(self) -> list[tuple[str, bytes]]:
        return [("tenant", self.tenant.encode())] if self.tenant else []

    def value(self) -> bytes:
        return self.body


@dataclass
class Letters:
    """Dead letters by partition and offset."""

    sent: list[tuple[int, int]] = field(default_factory=list)

    def send(self, source: Source, record: RawRecord, *_: object) -> None:
        self.sent.append((source.partition, record.offset))

    def flush(self) -> None: ...


class World:
    """A topic, and where its records go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.letters, self.schema = folder, Letters(), new_log_schema()
        self.messages = [self._message(number, partition) for partition in range(3) for number in range(600)]
        tools = {
            "setup": SimpleNamespace(settings=SETTINGS),
            "storage": open_storage(),
            "dead_letters": self.letters,
            "reader": self,
        }
        self.tools = SimpleNamespace(**tools, parked_topic=Letters(), routes=Routes(SETTINGS))

    def _message(self, number: int, partition: int) -> FakeMessage:
        if number % 100 == 50:
            return FakeMessage((partition, number), "", b"{}")  # belongs to nobody
        if number % 100 == 51:
            return FakeMessage((partition, number), SMALL[0], b'{"n":')
        tenant = AWAY if number % 40 == 7 else LARGE if number % 2 else SMALL[number // 2 % len(SMALL)]
        body = orjson.dumps({"n": number, "text": "x" * (2_000 if tenant == LARGE and partition < 2 else 10)})
        return FakeMessage((partition, number), tenant, body)

    def read_runs(
        self, ranges: Mapping[KafkaPartition, tuple[int, int]], fetch_bytes: int
    ) -> Generator[list[FakeMessage]]:
        assert fetch_bytes > 0
        asked = {partition.partition: bounds for partition, bounds in ranges.items()}
        there = [
            m
            for m in self.messages
            if m.partition() in asked and asked[m.partition()][0] <= m.offset() < asked[m.partition()][1]
        ]
        for _, run in groupby(there, lambda m: (m.partition(), m.offset() // 50)):
            yield list(run)

    def take_unreadable(self) -> list[UnreadableRange]:
        return []

    def decisions(self, tables: Sequence[TableId]) -> RoutingDecisions:
        return RoutingDecisions({table: self.view(table) for table in tables if table.tenant.name != AWAY})

    def view(self, table: TableId) -> TableView:
        return TableView(
            "u", f"file://{self.folder}/{table.tenant.name}", orjson.dumps(self.schema.json), NO_MARKS
        )

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        columns = {name: (100 + len(name), path) for new in names.values() for name, path in new.items()}
        return {
            table: orjson.dumps(LogSchema(self.schema.json).with_strings(columns, 1).json) for table in names
        }

    def task(self, ranges: Sequence[OffsetRange], *, hands_on: bool = False) -> Task:
        return Task(
            TaskSpec(SOURCES, ranges, frozenset(), None, hands_on),
            cast("Any", self.tools),
            cast("Any", self),
        )

    def rows(self, results: Iterable[TaskResult]) -> Counter[tuple[str, int, int]]:
        """Tenant, partition and offset of every row of every file that a result names."""
        found: Counter[tuple[str, int, int]] = Counter()
        for flush in _flushes(results):
            for file in flush.files:
                table = pq.read_table(local_path(file.uri))
                found.update(
                    (flush.table.tenant.name, row["_topic_partition"], row["_offset"])
                    for row in table.select(["_topic_partition", "_offset"]).to_pylist()
                )
        return found

    def good(self) -> Counter[tuple[str, int, int]]:
        return Counter(
            (m.tenant, *m.at) for m in self.messages if m.tenant not in ("", AWAY) and m.body != b'{"n":'
        )

    def bad(self) -> list[tuple[int, int]]:
        return sorted(m.at for m in self.messages if not m.tenant or m.body == b'{"n":')


def _flushes(results: Iterable[TaskResult]) -> list[WrittenFlush]:
    return [each.flush for result in results for each in result.flushes]


def _sent(done: Done) -> list[TableBuffer]:
    """What it hands on, as it arrives elsewhere."""
    return [pickle.loads(pickle.dumps(buffer)) for buffer in done.handed_on]


def test_a_task_writes_all_that_it_reads(tmp_path: Path) -> None:
    """Rows, dead letters, and what is left of a table that takes nothing; tables of which it has little are
    named."""
    world = World(tmp_path)
    result = world.task([OffsetRange(n, 0, 600) for n in range(3)]).run().result
    assert world.rows([result]) == world.good()
    assert sorted(world.letters.sent) == world.bad()
    assert result.left == {TableId(TenantId(AWAY), "logs"): {0: 7, 1: 7, 2: 7}}
    assert {table.tenant.name for table in result.small} == {*SMALL, AWAY}
    assert 0 < result.small_bytes < SMALL_BYTES * len(result.small)


def test_what_is_handed_on_is_one_flush_of_each_table(tmp_path: Path) -> None:
    """Two tasks read pieces of the same partitions: small tables end in one file, large parts stay with their
    tasks, nothing is there twice or missing."""
    world = World(tmp_path)
    pieces = [
        [OffsetRange(0, 0, 600, True), OffsetRange(1, 0, 300, True)],
        [OffsetRange(1, 300, 600, True), OffsetRange(2, 0, 600, True)],
    ]
    read = [world.task(ranges, hands_on=True).run() for ranges in pieces]
    received = [buffer for done in reversed(read) for buffer in _sent(done)]
    written = world.task([each for ranges in pieces for each in ranges]).write(received)
    results = [*(done.result for done in read), written.result]
    assert world.rows(results) == world.good()
    assert sorted(world.letters.sent) == world.bad()
    assert {flush.table.tenant.name for done in read for flush in _flushes([done.result])} == {LARGE}
    assert (written.handed_on, written.result.read) == ((), ())
    assert written.result.left == {TableId(TenantId(AWAY), "logs"): {0: 7, 1: 7, 2: 7}}
    small = {flush.table.tenant.name: flush for flush in _flushes([written.result])}
    assert set(small) >= set(SMALL)
    for name in SMALL:
        assert len(small[name].files) == 1
        assert small[name].ranges == {
            TopicPartition("id", partition): Range(0, 600) for partition in range(3)
        }
