"""What a worker flushes to let the group's offsets move on."""

import os
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest

from ingest.commit.flush_lifecycle import WRITE_RETRIES
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.consumer import InputTopics
from ingest.model.link import Outcome, TableView
from ingest.model.tenant_rate import Rates
from ingest.node.pipeline import Pipeline
from ingest.parking.parked_topic import PARKED, ParkedTopic
from ingest.route.routes import rules_to_group
from ingest.write.flush_writer import FlushWriter
from lake.errors import UnavailableError
from lake.log_schema import new_log_schema
from lake.marks import NO_MARKS
from lake.settings import IngestSettings, TopicSettings
from lake.storage import LocalStorage, open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.fake_link import FakeLink

TOPIC = "t"
FAR = 1_000
# A table whose open file has so much is flushed; the worker adds to it what is an eighth of its memory.
HOT_BYTES = 1 << 18
BYTES_MAX = 8 << 20
TABLES = [TableId(TenantId(f"t{number}"), "logs") for number in range(30)]
SLOW, *OTHERS = TABLES


class FailingStorage(LocalStorage):
    """Files of this machine, while it takes any."""

    fails = False

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        if self.fails:
            raise UnavailableError("no room")
        super().write_new(uri, data)


class Worker:
    """A pipeline on brokers in memory, whose flushes are noted; the core sorts what comes, or does not."""

    def __init__(
        self, folder: Path, broker: FakeBroker, *, has_core: bool, rates: Rates | None = None
    ) -> None:
        self.clock, self.link, self.broker = FakeClock(), FakeLink(), broker
        self.settings = settings = IngestSettings.load(
            topics=(TopicSettings(name=TOPIC),),
            flush__replay_records_max=FAR,
            flush__interval_s=3_600.0,
            flush__file_bytes=HOT_BYTES,
        )
        self._parked_topic = settings.internal_topics.parked
        for topic in (TOPIC, settings.internal_topics.dead_letters, self._parked_topic):
            broker.create_topic(topic)
        self.storage, storage, warehouse = FailingStorage(), open_storage(), f"file://{folder}"
        self._topics = InputTopics(settings, rules=rules_to_group(settings) if has_core else {})
        letters = DeadLetters(settings, storage, warehouse)
        self.pipeline = Pipeline(
            settings,
            self._topics,
            self.link,
            FlushWriter(settings, self.link, letters, self.storage, rates=rates),
            ParkedTopic(settings, storage, warehouse),
            self.clock,
            BYTES_MAX,
        )
        self.pipeline.discover()
        schema = orjson.dumps(new_log_schema().json)
        self.view = TableView("u", f"{warehouse}/t", schema, NO_MARKS)
        self.pipeline.opened(dict.fromkeys(TABLES, self.view), [], {})

    @property
    def flushed(self) -> list[TableId]:
        return [flush.table for flush in self.link.submitted]

    @property
    def stuck(self) -> list[TableId]:
        return [table for table, _ in self.link.told]

    @property
    def parked(self) -> list[tuple[int, str, str]]:
        """Offset, tenant and parking of what the parking topic has."""
        headers = [dict(message.headers()) for message in self.broker.messages(self._parked_topic)]
        return [
            (int(each["firn.offset"]), each["firn.tenant"].decode(), each[PARKED].decode())
            for each in headers
        ]

    def take(self, table: TableId, message: str = "m") -> None:
        """A message comes."""
        self.take_bytes(table, orjson.dumps({"message": message}))

    def take_bytes(self, table: TableId, body: bytes) -> None:
        """Whatever it is."""
        headers = [("tenant", table.tenant.name.encode()), ("stream", table.stream.encode())]
        self.broker.append(TOPIC, body, headers=headers)
        self.pipeline.take(*self._topics.take(0.0))

    def pass_by(self, count: int) -> None:
        """So many messages come that are stored elsewhere."""
        for _ in range(count):
            self.broker.append(TOPIC, None)
        while any(taken := self._topics.take(0.0)):
            self.pipeline.take(*taken)

    def look(self) -> None:
        self.pipeline.durable_offsets(1.0)  # looks for what is behind
        self.pipeline.flush_due()


@pytest.fixture(params=["in Python", pytest.param("by the core", marks=pytest.mark.core)])
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Worker:
    broker = FakeBroker()
    broker.install(monkeypatch)
    return Worker(tmp_path, broker, has_core=request.param == "by the core")


def test_a_table_that_holds_back_the_offset_is_flushed(worker: Worker) -> None:
    """Whatever its age."""
    worker.take(SLOW)
    worker.pass_by(FAR - 1)
    worker.look()
    assert worker.flushed == []
    worker.pass_by(1)
    worker.look()
    assert worker.flushed == [SLOW]


def test_where_many_are_due_all_that_wait_are_not_looked_at_for_each_round(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is flushed once, and one look is enough for it."""
    due = Mock(wraps=worker.pipeline.buffers.due)
    monkeypatch.setattr(worker.pipeline.buffers, "due", due)
    monkeypatch.setattr(worker.pipeline, "_at_once", 1)
    monkeypatch.setattr(worker.pipeline, "_adapt", Mock())
    for table in OTHERS:
        worker.take(table)
    worker.clock.s += 100_000.0
    for _ in OTHERS:
        worker.pipeline.flush_due()
    assert len(OTHERS) > 2
    assert worker.flushed == OTHERS
    assert due.call_count == 1


def test_what_is_in_a_hot_tables_file_is_packed_before_any_table_is_flushed_early(worker: Worker) -> None:
    """From a quarter of the memory on, with what is in flight; not before."""
    part = "x" * (BYTES_MAX // 8)
    worker.take(SLOW, part)
    worker.look()
    worker.look()
    assert worker.pipeline.buffers.size_bytes > len(part)
    for _ in range(8):
        worker.take(SLOW, part)
        worker.look()
    worker.look()
    assert worker.flushed == []
    assert worker.pipeline.buffers.size_bytes <= BYTES_MAX // 4
    worker.pipeline.flush_all()
    worker.take(SLOW, part)
    worker.look()
    worker.look()
    assert worker.pipeline.buffers.size_bytes + worker.pipeline._flushes.size_bytes <= BYTES_MAX // 4
    worker.pipeline._writer.abort(SLOW)


def test_a_table_with_little_traffic_waits_three_intervals(worker: Worker) -> None:
    """Where no setting says how long; one with more is flushed after one."""
    worker.take(SLOW)
    worker.take(OTHERS[0], "x" * 64 * 1024)
    worker.clock.s += 3_600.0
    worker.pipeline.flush_due()
    assert worker.flushed == [OTHERS[0]]
    worker.clock.s += 3_600.0
    worker.pipeline.flush_due()
    assert worker.flushed == [OTHERS[0]]
    worker.clock.s += 3_600.0
    worker.pipeline.flush_due()
    assert worker.flushed == [OTHERS[0], SLOW]


def test_tables_that_hold_nothing_back_are_left_alone(worker: Worker) -> None:
    """What holds the offset back is on its way already: to flush one table after the other would give all of
    them tiny files."""
    worker.take(SLOW)
    worker.pass_by(FAR)
    worker.look()
    for table in OTHERS:
        worker.take(table)
    for _ in range(10):
        worker.look()
    assert worker.flushed == [SLOW]


@pytest.mark.long
def test_a_table_that_is_due_for_two_reasons_is_flushed_once(worker: Worker) -> None:
    """It holds back the offset, and its open file is large enough."""
    worker.take(SLOW, os.urandom(4 * HOT_BYTES).hex())
    worker.pass_by(FAR)
    worker.look()
    assert worker.flushed == [SLOW]


# ---- the life of a flush, as this runner lives it


def test_a_flush_that_cannot_be_written_is_tried_again_after_a_pause(worker: Worker) -> None:
    """The main process is told each time; meanwhile what comes waits behind it, and the offset stays."""
    worker.take(SLOW)
    worker.storage.fails = True
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.look()
    assert (worker.stuck, worker.flushed) == ([SLOW], [])
    assert worker.pipeline.durable_offsets(1.0) == {0: 0}
    worker.clock.s += WRITE_RETRIES.first_s
    worker.look()
    assert worker.stuck == [SLOW, SLOW]
    worker.storage.fails = False
    worker.clock.s += WRITE_RETRIES.max_s
    worker.look()
    assert worker.flushed == [SLOW]
    worker.pipeline.settle([(SLOW, Outcome.DONE, worker.view)])
    assert worker.pipeline.durable_offsets(1.0) == {0: 1}


def test_a_flush_to_be_redone_is_handed_over_again_before_the_next_one(worker: Worker) -> None:
    """At once, and what came meanwhile stays behind it."""
    worker.take(SLOW)
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.pipeline.settle([(SLOW, Outcome.REDO, worker.view)])
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW]
    assert worker.pipeline.durable_offsets(1.0) == {0: 0}
    worker.pipeline.settle([(SLOW, Outcome.DONE, worker.view)])
    assert worker.pipeline.durable_offsets(1.0) == {0: 1}
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW, SLOW]


def test_a_parked_table_parks_its_flush_before_its_buffer(worker: Worker) -> None:
    """In the order of their offsets; once it is released it begins anew."""
    worker.take(SLOW)
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.pipeline.park({SLOW: "0-parking"})
    assert worker.pipeline.is_idle
    assert worker.pipeline.durable_offsets(1.0) == {0: 2}
    assert worker.parked == [(offset, SLOW.tenant.name, "0-parking") for offset in (0, 1)]
    worker.pipeline.release({SLOW: worker.view})
    worker.take(SLOW)
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW]


def test_a_table_that_is_gone_is_forgotten_unless_records_of_it_wait(worker: Worker) -> None:
    """Of one that is forgotten the next record asks for the table; one that waits goes on with what is known,
    and the committer will say."""
    worker.take(SLOW)
    worker.pipeline.forget([SLOW, OTHERS[0]])
    worker.take(OTHERS[0])
    assert worker.link.asked == [OTHERS[0]]
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW]
    worker.pipeline.settle([(SLOW, Outcome.DONE, worker.view)])
    worker.pipeline.forget([SLOW])
    worker.take(SLOW)
    assert worker.link.asked == [OTHERS[0], SLOW]


def test_a_parked_table_is_not_forgotten(worker: Worker) -> None:
    """Its messages still go to the parking topic."""
    worker.pipeline.park({SLOW: "p"})
    worker.pipeline.forget([SLOW])
    worker.take(SLOW)
    worker.pipeline.hold(SLOW)
    assert [tenant for _, tenant, _ in worker.parked] == [SLOW.tenant.name]
    assert worker.link.asked == []
