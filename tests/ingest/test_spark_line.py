"""What the driver of the Spark engine makes of results and of what the main process says, without Spark:
order, repetitions, group offsets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model.link import Outcome, TableView, WrittenFlush
from ingest.model.trouble import Cause, Trouble
from ingest.node.engines.spark_line import Job, SparkLine
from ingest.node.engines.spark_plan import OffsetRange
from ingest.node.engines.spark_task_spec import RoutingDecisions, TaskFlush, TaskResult
from ingest.node.engines.spark_topics import PlannedTopics
from ingest.write.flush_writer import TABLE_DELETED, FlushWriter
from lake.errors import Reason, Rejected
from lake.marks import Marks, Range, TopicPartition
from lake.retention_policies import BELIEVED_S
from lake.settings import IngestSettings, TopicSettings
from lake.storage import open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.fake_link import FakeLink

PLACE = TopicPartition("id", 0)
TOPICS = (TopicSettings(name="t"),)
A, B = TableId(TenantId("a"), "logs"), TableId(TenantId("b"), "logs")


@dataclass
class Driven:
    """A line with its fakes."""

    line: SparkLine
    broker: FakeBroker
    link: FakeLink
    clock: FakeClock

    def grow_topic(self, end: int) -> None:
        """Messages have come up to an offset."""
        self.broker.partitions["t", 0].end = end
        self.line.topics.look()

    def batch(self, end: int) -> Job:
        """The job that reads up to an offset."""
        self.grow_topic(end)
        self.clock.s += 10
        self.line.next_job()
        self.clock.s += 10
        job = self.line.job or self.line.next_job()
        assert job is not None
        assert job.only is None
        return job

    def lowest(self) -> int:
        return self.line.offsets.lowest(self.line._waiting())[0]


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Driven:
    """Nothing read yet; both tables are known, and records have a hundred bytes."""
    settings, link, clock, broker = (
        IngestSettings.load(flush__interval_s=1, topics=TOPICS),
        FakeLink(),
        FakeClock(),
        FakeBroker(),
    )
    broker.install(monkeypatch)
    for topic in ("t", settings.internal_topics.dead_letters):
        broker.create_topic(topic)
    letters = DeadLetters(settings, open_storage(), "file:///w")
    line = SparkLine(
        settings,
        PlannedTopics(settings),
        link,
        FlushWriter(settings, link, letters, open_storage()),
        clock,
        slots=2,
    )
    line.discover()
    line.topics.note(0, 1, 100)
    line.opened({A: view(0), B: view(0)}, [], {})
    return Driven(line, broker, link, clock)


def view(mark: int, uuid: str = "u") -> TableView:
    """A table as it is when it has committed everything below an offset."""
    return TableView(uuid, "file:///w", b"{}", Marks({PLACE: mark} if mark else {}))


def written(table: TableId, start: int, end: int, first: int, uuid: str = "u") -> TaskFlush:
    """A task's flush with some rows."""
    return TaskFlush(WrittenFlush(table, uuid, {PLACE: Range(start, end)}, [], 1, {}), {0: first})


def read(
    start: int, end: int, *flushes: TaskFlush, left: Mapping[TableId, int] | None = None, **more: Any
) -> TaskResult:
    """A task's result."""
    return TaskResult(
        [OffsetRange(0, start, end)],
        flushes,
        {table: {0: first} for table, first in (left or {}).items()},
        **more,
    )


def test_a_later_batch_starts_where_the_one_in_flight_ends(driven: Driven) -> None:
    """It waits for it, although its task saw the table before that was committed; the group's offset does not
    pass what is on its way."""
    line, link = driven.line, driven.link
    driven.batch(10)
    line.collect([read(0, 10, written(A, 0, 10, 3))])
    driven.batch(20)
    line.collect([read(10, 20, written(A, 0, 20, 12))])
    assert [flush.ranges for flush in link.submitted] == [{PLACE: Range(0, 10)}]
    assert driven.lowest() == 3
    line.settle([(A, Outcome.DONE, view(10))])
    assert [flush.ranges for flush in link.submitted[1:]] == [{PLACE: Range(10, 20)}]
    assert driven.lowest() == 12
    line.settle([(A, Outcome.DONE, view(20))])
    assert (driven.lowest(), line.is_idle) == (20, True)


def test_a_flush_to_be_redone_takes_the_later_one_with_it(driven: Driven) -> None:
    """Both are read again, for that table alone; others go on."""
    line = driven.line
    driven.batch(10)
    line.collect([read(0, 10, written(A, 0, 10, 3), written(B, 0, 10, 1))])
    driven.batch(20)
    line.collect([read(10, 20, written(A, 0, 20, 12))])
    line.settle([(A, Outcome.REDO, view(5, "new")), (B, Outcome.DONE, view(10))])
    job = line.next_job()
    assert job is not None
    assert (job.only, job.tasks) == ({A: {0: 3}}, [[OffsetRange(0, 3, 20)]])
    assert line.decisions([A])[0].views == {A: view(5, "new")}
    line.collect([read(3, 20, written(A, 5, 20, 3, "new"))])
    assert driven.link.submitted[-1].ranges == {PLACE: Range(5, 20)}
    line.settle([(A, Outcome.DONE, view(20, "new"))])
    assert driven.lowest() == 20


def test_tasks_that_met_different_states_of_a_table_do_it_again(driven: Driven) -> None:
    """One flush per table and job, or none."""
    driven.batch(10)
    driven.line.collect([read(0, 10, written(A, 0, 5, 0), written(A, 0, 10, 6, "other"))])
    assert driven.link.submitted == []
    assert driven.lowest() == 0


def test_what_one_task_left_all_tasks_left(driven: Driven) -> None:
    """Rows beyond a gap must not be committed."""
    driven.batch(10)
    driven.line.collect([read(0, 5, left={A: 2}), read(5, 10, written(A, 0, 10, 6), written(B, 0, 10, 7))])
    assert [flush.table for flush in driven.link.submitted] == [B]
    assert driven.lowest() == 2


def test_a_stuck_table_is_told_and_tried_again_later(driven: Driven) -> None:
    """Its further records are left too, until a repetition has caught up."""
    line, trouble = driven.line, Trouble(Cause.STORAGE, "no")
    driven.batch(10)
    line.collect([read(0, 10, left={A: 2}, stuck=[(A, trouble)])])
    assert driven.link.told == [(A, trouble)]
    assert line.next_job() is None
    driven.clock.s += 1
    job = line.next_job()
    assert job is not None
    assert job.only == {A: {0: 2}}
    line.collect([read(2, 10, left={A: 2}, stuck=[(A, trouble)])])
    driven.grow_topic(20)
    driven.clock.s += 0.3
    assert line.next_job() is None
    line.settle([])
    line._backlog[A].not_before_s = 1e9
    assert driven.batch(20).skipped == {A}


def test_a_parked_table_parks_what_it_is_behind_with_before_what_comes(driven: Driven) -> None:
    """A task of a batch never parks beyond records that were not parked yet."""
    line = driven.line
    driven.batch(10)
    line.collect([read(0, 10, written(A, 0, 10, 3))])
    driven.batch(20)
    line.park({A: "p"})
    assert line.decisions([A]) == (line.decisions([B])[0].__class__(), True)  # left
    line.collect([read(10, 20, left={A: 12})])
    job = line.next_job()
    assert job is not None
    assert job.only == {A: {0: 3}}
    assert line.decisions([A])[0].parked == {A: "p"}
    line.collect([read(3, 20)])
    assert driven.lowest() == 20
    driven.batch(30)
    assert line.decisions([A])[0].parked == {A: "p"}
    line.hold(A)
    assert line.decisions([A]) == (line.decisions([])[0], True)
    line.collect([read(20, 30, left={A: 21})])
    assert line.next_job() is None
    line.release({A: view(20)})
    job = line.next_job()
    assert job is not None
    assert job.only == {A: {0: 21}}


def test_a_flush_of_a_table_that_was_parked_meanwhile_is_not_committed(driven: Driven) -> None:
    """Its task had asked before."""
    line = driven.line
    driven.batch(10)
    line.park({A: "p"})
    line.collect([read(0, 10, written(A, 0, 10, 3))])
    assert driven.link.submitted == []
    job = line.next_job()
    assert job is not None
    assert job.only == {A: {0: 3}}
    line.collect([read(3, 7)])  # it did not come to the end
    job = line.next_job()
    assert job is not None
    assert (job.only, driven.lowest()) == ({A: {0: 7}}, 7)


def test_tasks_that_share_a_partition_park_nothing(driven: Driven) -> None:
    """The later piece could reach the parking topic before the earlier one: what comes is left, and parked by
    jobs that share none."""
    line = driven.line
    job = driven.batch(200_000)
    assert job.in_pieces
    line.park({A: "p"})
    assert line.decisions([A]) == (line.decisions([])[0], True)
    line.collect([read(0, 100_000, left={A: 5}), read(100_000, 200_000, left={A: 100_001})])
    repetition = line.next_job()
    assert repetition is not None
    assert (repetition.only, repetition.tasks) == ({A: {0: 5}}, [[OffsetRange(0, 5, 200_000)]])
    assert line.decisions([A])[0].parked == {A: "p"}
    line.collect([read(5, 200_000)])
    assert not driven.batch(400_000).in_pieces


def test_a_batch_hands_on_when_the_one_before_it_was_spread(driven: Driven) -> None:
    """All of its ranges are read to their ends, for others write what is handed on; not while a table is
    parked, nor for what is read again."""
    line = driven.line
    many = [TableId(TenantId(f"t{at}"), "logs") for at in range(500)]
    assert not driven.batch(100_000).hands_on
    line.collect(
        [
            read(0, 50_000, small=many, small_bytes=1_000_000),
            read(50_000, 100_000, small=many, small_bytes=1_000_000),
        ]
    )
    job = driven.batch(200_000)
    assert job.hands_on
    assert all(each.whole for task in job.tasks for each in task)
    line.collect(
        [
            read(100_000, 150_000, small=many, small_bytes=1_000_000),
            read(150_000, 200_000, left={A: 160_000}),
            TaskResult(),
        ]
    )
    assert driven.lowest() == 160_000
    repetition = line.next_job()
    assert repetition is not None
    assert not repetition.hands_on
    line.collect([read(160_000, 200_000)])
    assert not driven.batch(300_000).hands_on, "the last one was not spread"


def test_records_of_a_dropped_table_become_dead_letters(driven: Driven) -> None:
    """Where its owner wants that."""
    line = driven.line
    driven.batch(10)
    line.collect([read(0, 10, written(A, 0, 10, 3))])
    line.settle([(A, Outcome.DEAD_LETTER, view(0))])
    assert line.next_job() is not None
    assert line.decisions([A])[0].dead_lettered == {A: TABLE_DELETED}
    line.collect([read(3, 10)])
    assert driven.lowest() == 10


def test_records_of_a_stream_that_is_refused_become_dead_letters(driven: Driven) -> None:
    """Of a batch whose task asks while it runs, of records that were left, and for a minute of all that come;
    then it is asked anew. Where the stream may be after all, they are rows."""
    line, new, why = (
        driven.line,
        TableId(TenantId("a"), "new"),
        Rejected(Reason.OVER_LIMIT, "as many as it may"),
    )
    driven.batch(10)
    assert line.decisions([new]) == (RoutingDecisions({}, {}, {}), False)
    line.opened({}, [], {new: why})
    assert line.decisions([new]) == (RoutingDecisions({}, {}, {new: why}), True)
    line.collect([read(0, 10)])
    driven.clock.s += BELIEVED_S
    driven.batch(20)
    assert line.decisions([new]) == (RoutingDecisions({}, {}, {}), False)
    line.collect([read(10, 20, left={new: 12})])
    line.opened({}, [], {new: why})
    repetition = line.next_job()
    assert repetition is not None
    assert repetition.only == {new: {0: 12}}
    assert line.decisions([new])[0].dead_lettered == {new: why}
    line.opened({new: view(0)}, [], {})
    assert line.decisions([new])[0].views == {new: view(0)}
    line.collect([read(12, 20, written(new, 12, 20, 12))])
    assert driven.link.submitted[-1].table == new


def test_a_table_that_is_gone_is_forgotten_between_jobs(driven: Driven) -> None:
    """Where a job runs, or a flush is under way, the entry stays."""
    line = driven.line
    driven.batch(10)
    line.forget([A, B])
    assert line.decisions([A, B])[0].views == {A: view(0), B: view(0)}
    line.collect([read(0, 10, written(A, 0, 10, 3))])
    line.forget([A, B])
    driven.batch(20)
    assert line.decisions([A, B])[0].views == {A: view(0)}
    assert driven.link.asked == [B]
