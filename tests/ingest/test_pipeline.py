"""What a worker flushes to let the group's offsets move on."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingest.commit.flush_lifecycle import WRITE_RETRIES
from ingest.model.link import Outcome, TableView, WrittenFlush
from ingest.model.source import Source
from ingest.model.trouble import Cause, Trouble
from ingest.node.pipeline import Pipeline
from ingest.route.buffer import RawRecord
from ingest.write.flush_writer import Flush, Written
from lake.marks import NO_MARKS, Range, TopicPartition
from lake.settings import IngestSettings, TopicSettings
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock

FAR = 1_000
TABLES = [TableId(TenantId(f"t{number}"), "logs") for number in range(30)]
SLOW, *OTHERS = TABLES
VIEW = TableView("u", "file:///t", b"{}", NO_MARKS)
TROUBLE = Trouble(Cause.STORAGE, "no room")


class Writer:
    """Writes nothing, and says that it has. `hot`: a table whose open file is large enough. `fails`: no file
    can be written."""

    hot: TableId | None = None
    fails = False

    def write(self, flushes: Sequence[Flush], *_: Any) -> Written:
        if self.fails:
            return Written(stuck=[(flush, TROUBLE) for flush in flushes])
        return Written(
            [
                WrittenFlush(f.table, "u", {TopicPartition("id", 0): Range(0, 1)}, [], 1, {}, 0)
                for f in flushes
            ]
        )

    def abort(self, _: TableId) -> None: ...

    def acknowledged(self) -> None: ...

    def append(self, *_: Any) -> None: ...

    def take_hot(self, _: TableId) -> None: ...

    def hot_bytes(self, table: TableId) -> int:
        return 1 << 40 if table == self.hot else 0


class Worker:
    """A pipeline whose flushes are noted, and land when a test says so."""

    def __init__(self) -> None:
        self.flushed: list[TableId] = []
        self.stuck: list[TableId] = []
        self.parked: list[tuple[int, TableId, str]] = []
        self.clock, self.writer, self.offset = FakeClock(), Writer(), 0
        source = Source("t", "id", 0, "json", "UTC")
        topics = SimpleNamespace(
            assignment=SimpleNamespace(sources=[source], numbers={("t", 0): 0}, place=lambda _: None),
            check_identity=lambda: None,
        )
        link = SimpleNamespace(
            submit=lambda flushes: self.flushed.extend(flush.table for flush in flushes),
            stuck=lambda table, _: self.stuck.append(table),
        )
        parked_topic = SimpleNamespace(
            send=lambda _, record, table, parking: self.parked.append((record.offset, table, parking)),
            flush=lambda: None,
        )
        settings = IngestSettings.load(
            topics=(TopicSettings(name="t"),), flush__replay_records_max=FAR, flush__interval_s=3_600.0
        )
        parts: Any = (
            settings,
            topics,
            link,
            self.writer,
            parked_topic,
            self.clock,
            1 << 40,
        )
        self.pipeline = Pipeline(*parts)
        self.pipeline.opened(dict.fromkeys(TABLES, VIEW), [])

    def take(self, table: TableId, size: int = 10) -> None:
        """A message comes."""
        self.pipeline.buffers.add(table, self.clock.s, *RawRecord(0, self.offset, 0, None, (), b"x" * size))
        self.offset += 1
        self.pipeline.offsets.routed[0] = self.offset

    def pass_by(self, count: int) -> None:
        """So many messages come that are stored elsewhere."""
        self.offset += count
        self.pipeline.offsets.routed[0] = self.offset

    def look(self) -> None:
        self.pipeline.durable_offsets()  # looks for what is behind
        self.pipeline.flush_due()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_table_that_holds_back_the_offset_is_flushed(worker: Worker) -> None:
    """Whatever its age."""
    worker.take(SLOW)
    worker.pass_by(FAR - 1)
    worker.look()
    assert worker.flushed == []
    worker.pass_by(1)
    worker.look()
    assert worker.flushed == [SLOW]


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


def test_a_table_that_is_due_for_two_reasons_is_flushed_once(worker: Worker) -> None:
    """It holds back the offset, and its open file is large enough."""
    worker.take(SLOW, 64 * 1024 * 1024)
    worker.writer.hot = SLOW
    worker.pass_by(FAR)
    worker.pipeline.durable_offsets()
    cast("Any", worker.pipeline).buffers.pack = lambda _: None
    worker.look()
    assert worker.flushed == [SLOW]


# ---- the life of a flush, as this runner lives it


def test_a_flush_that_cannot_be_written_is_tried_again_after_a_pause(worker: Worker) -> None:
    """The main process is told each time; meanwhile what comes waits behind it, and the offset stays."""
    worker.take(SLOW)
    worker.writer.fails = True
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.look()
    assert (worker.stuck, worker.flushed) == ([SLOW], [])
    assert worker.pipeline.durable_offsets() == {0: 0}
    worker.clock.s += WRITE_RETRIES.first_s
    worker.look()
    assert worker.stuck == [SLOW, SLOW]
    worker.writer.fails = False
    worker.clock.s += WRITE_RETRIES.max_s
    worker.look()
    assert worker.flushed == [SLOW]
    worker.pipeline.settle([(SLOW, Outcome.DONE, VIEW)])
    assert worker.pipeline.durable_offsets() == {0: 1}


def test_a_flush_to_be_redone_is_handed_over_again_before_the_next_one(worker: Worker) -> None:
    """At once, and what came meanwhile stays behind it."""
    worker.take(SLOW)
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.pipeline.settle([(SLOW, Outcome.REDO, VIEW)])
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW]
    assert worker.pipeline.durable_offsets() == {0: 0}
    worker.pipeline.settle([(SLOW, Outcome.DONE, VIEW)])
    assert worker.pipeline.durable_offsets() == {0: 1}
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW, SLOW]


def test_a_parked_table_parks_its_flush_before_its_buffer(worker: Worker) -> None:
    """In the order of their offsets; once it is released it begins anew."""
    worker.take(SLOW)
    worker.pipeline.flush_all()
    worker.take(SLOW)
    worker.pipeline.park({SLOW: "parking"})
    assert worker.parked == [(0, SLOW, "parking"), (1, SLOW, "parking")]
    assert worker.pipeline.is_idle
    assert worker.pipeline.durable_offsets() == {0: 2}
    worker.pipeline.release({SLOW: VIEW})
    worker.take(SLOW)
    worker.pipeline.flush_all()
    assert worker.flushed == [SLOW, SLOW]
