"""What tasks of the Spark engine read, write and hand on, without Spark and Kafka: every record goes one way,
once."""

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message

from ingest.model.link import TableView, WrittenFlush
from ingest.model.source import Source
from ingest.model.table_retention import TableRetention
from ingest.node.engines.spark_plan import SMALL_BYTES, OffsetRange
from ingest.node.engines.spark_task import Done, Task, TaskTools
from ingest.node.engines.spark_task_spec import RoutingDecisions, TaskResult, TaskSetup, TaskSpec
from ingest.route.buffer import TableBuffer
from ingest.route.routes import Routes
from lake.log_schema import LogSchema, WantedColumn, new_log_schema
from lake.marks import NO_MARKS, Range, TopicPartition
from lake.settings import IngestSettings, StorageSettings, TopicSettings
from lake.storage import local_path
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker

SOURCES = [Source("t", "id", partition, "json") for partition in range(3)]
SETTINGS = IngestSettings(topics=(TopicSettings(name="t", format="json"),))
SMALL, LARGE, AWAY = "abcdef", "large", "away"
BAD = b'{"n":'


class World:
    """A topic on brokers in memory, and where its records go."""

    def __init__(self, folder: Path, broker: FakeBroker) -> None:
        self.folder, self.schema, self._broker = folder, new_log_schema(), broker
        broker.create_topic("t", 3)
        for topic in (SETTINGS.internal_topics.dead_letters, SETTINGS.internal_topics.parked):
            broker.create_topic(topic)
        for partition in range(3):
            for number in range(600):
                self._append(number, partition)
        self.messages = broker.messages("t")
        self.tools = TaskTools(
            TaskSetup(SETTINGS, StorageSettings(), f"file://{folder}", ("127.0.0.1", 1), b"")
        )

    def _append(self, number: int, partition: int) -> None:
        if number % 100 == 50:
            self._broker.append("t", b"{}", partition=partition)  # belongs to nobody
            return
        tenant = AWAY if number % 40 == 7 else LARGE if number % 2 else SMALL[number // 2 % len(SMALL)]
        body = orjson.dumps({"n": number, "text": "x" * (2_000 if tenant == LARGE and partition < 2 else 10)})
        if number % 100 == 51:
            tenant, body = SMALL[0], BAD
        self._broker.append("t", body, partition=partition, headers=[("tenant", tenant.encode())])

    def decisions(self, tables: Sequence[TableId]) -> RoutingDecisions:
        return RoutingDecisions({table: self.view(table) for table in tables if table.tenant.name != AWAY})

    def view(self, table: TableId) -> TableView:
        return TableView(
            "u", f"file://{self.folder}/{table.tenant.name}", orjson.dumps(self.schema.json), NO_MARKS
        )

    def retention(self, table: TableId, said: Mapping[str, str], *, anew: bool) -> TableRetention:
        return TableRetention()

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        columns = {name: (100 + len(name), str(path)) for new in names.values() for name, path in new.items()}
        return {
            table: orjson.dumps(LogSchema(self.schema.json).with_strings(columns, 1).json) for table in names
        }

    def task(self, ranges: Sequence[OffsetRange], *, hands_on: bool = False) -> Task:
        return Task(
            TaskSpec(SOURCES, ranges, frozenset(), None, hands_on),
            self.tools,
            self,
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
            (_tenant(m), m.partition(), m.offset())
            for m in self.messages
            if _tenant(m) not in ("", AWAY) and m.value() != BAD
        )

    def bad(self) -> list[tuple[int, int]]:
        return sorted(
            (m.partition(), m.offset()) for m in self.messages if not _tenant(m) or m.value() == BAD
        )

    def letters(self) -> list[tuple[int, int]]:
        """Dead letters by partition and offset."""
        headers = [
            dict(message.headers())
            for message in self._broker.messages(SETTINGS.internal_topics.dead_letters)
        ]
        return sorted((int(each["firn.partition"]), int(each["firn.offset"])) for each in headers)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    broker = FakeBroker()
    broker.install(monkeypatch)
    monkeypatch.setattr("ingest.node.engines.spark_task.configure_logs", lambda _: None)
    return World(tmp_path, broker)


def _tenant(message: Message) -> str:
    headers: dict[str, bytes] = dict(message.headers() or ())
    return headers.get("tenant", b"").decode()


def _flushes(results: Iterable[TaskResult]) -> list[WrittenFlush]:
    return [each.flush for result in results for each in result.flushes]


def _sent(done: Done) -> list[TableBuffer]:
    """What it hands on, as it arrives elsewhere."""
    return [pickle.loads(pickle.dumps(buffer)) for buffer in done.handed_on]


def test_a_task_writes_all_that_it_reads(world: World) -> None:
    """Rows, dead letters, and what is left of a table that takes nothing; tables of which it has little are
    named."""
    result = world.task([OffsetRange(n, 0, 600) for n in range(3)]).run().result
    assert world.rows([result]) == world.good()
    assert world.letters() == world.bad()
    assert result.left == {TableId(TenantId(AWAY), "logs"): {0: 7, 1: 7, 2: 7}}
    assert {table.tenant.name for table in result.small} == {*SMALL, AWAY}
    assert 0 < result.small_bytes < SMALL_BYTES * len(result.small)


def test_a_task_masks_what_it_reads_and_counts_it_once(world: World) -> None:
    """By the rules of the topic; a task that reads records again for a table that was redone counts none."""
    rule = {"name": "texts", "action": "drop", "fields": ["text"]}
    masked = {"name": "t", "format": "json", "masking": {"rules": [rule]}}
    world.tools.routes = Routes(IngestSettings.load(topics=[masked]))
    result = world.task([OffsetRange(0, 0, 600)]).run().result
    (file, *_) = next(flush for flush in _flushes([result]) if flush.table.tenant.name == LARGE).files
    names = pq.read_schema(local_path(file.uri)).names
    assert "n" in names
    assert "text" not in names
    assert result.counts.masked_values == {("t", "texts", "drop"): 600 - 6 - 6}
    assert result.counts.withheld == {"t": 6}
    again = TaskSpec(SOURCES, [OffsetRange(0, 0, 600)], frozenset(), {}, False)
    assert not Task(again, world.tools, world).run().result.counts.masked_values


def test_what_is_handed_on_is_one_flush_of_each_table(world: World) -> None:
    """Two tasks read pieces of the same partitions: small tables end in one file, large parts stay with their
    tasks, nothing is there twice or missing."""
    pieces = [
        [OffsetRange(0, 0, 600, True), OffsetRange(1, 0, 300, True)],
        [OffsetRange(1, 300, 600, True), OffsetRange(2, 0, 600, True)],
    ]
    read = [world.task(ranges, hands_on=True).run() for ranges in pieces]
    received = [buffer for done in reversed(read) for buffer in _sent(done)]
    written = world.task([each for ranges in pieces for each in ranges]).write(received)
    results = [*(done.result for done in read), written.result]
    assert world.rows(results) == world.good()
    assert world.letters() == world.bad()
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
