"""The driver of the Spark engine: to the node's main process it is a worker like any other, whose work is
done by the tasks of Spark jobs.

    look how far the topics go -> plan -> job (a thread waits for it; meanwhile this one answers tasks and the
    main process) -> collect -> hand over

The main process is the same for both engines: lease, committer, parking. So this process holds nothing that
its death could lose.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import structlog

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.aside import Aside
from ingest.model.fault_point import reach
from ingest.model.link import Grown, GrowTables, Hold
from ingest.node.engines.spark_cluster import SparkCluster
from ingest.node.engines.spark_driver_rpc import DriverRpcServer, Question
from ingest.node.engines.spark_line import Job, SparkLine
from ingest.node.engines.spark_task import read_tasks, run_tasks, write_tasks
from ingest.node.engines.spark_task_spec import (
    WRITING,
    AskRetention,
    AskRouting,
    FetchTaskSpec,
    JobOver,
    TaskResult,
    TaskSetup,
    TaskSpec,
)
from ingest.node.engines.spark_topics import PlannedTopics
from ingest.node.worker import PipeLink, Worker, ignore_signals, run_worker
from ingest.parking.parked_topic import PARKED_FOLDER
from ingest.write.catalog_retentions import CatalogRetentions
from ingest.write.flush_writer import FlushWriter
from lake.clock import SystemClock
from lake.errors import FatalError, UnavailableError
from lake.settings import IngestSettings, StorageSettings
from lake.storage import open_storage
from lake.tenant import TableId

# How long a task's question may wait for tables that are not known yet; then their records are left for
# later.
ROUTING_WAIT_S = 5.0
LOOK_EVERY_S = 0.2
JOB_POLL_S = 0.02
log = structlog.get_logger()


@dataclass(slots=True)
class RunningJob:
    """The job that Spark works on. `asking`: questions about tables that wait for an answer, and until
    when."""

    future: Future[list[TaskResult]]
    began_s: float
    asking: list[tuple[Any, AskRouting, float]] = field(default_factory=list)


@dataclass(slots=True)
class CoreNotice:
    """Says once that tasks do without the native core of their driver."""

    is_told: bool = False

    def tell(self, results: Sequence[TaskResult]) -> None:
        """Looks at the results of a job."""
        reasons = sorted({each.without_core for each in results if each.without_core is not None})
        if reasons and not self.is_told:
            self.is_told = True
            log.warning(
                "tasks.in_python",
                reasons=reasons,
                advice="all is written, and slower; FIRN_CORE of the executors can name a library of theirs",
            )


class SparkWorker(Worker):
    """Plans, has Spark run, collects."""

    def __init__(
        self, settings: IngestSettings, warehouse: str, parked: Mapping[TableId, str], link: PipeLink
    ) -> None:
        clock, storage = SystemClock(), open_storage()
        self._topics = PlannedTopics(settings)
        self._cluster = SparkCluster(settings)
        ignore_signals()  # Spark takes SIGINT for itself
        self._rpc = DriverRpcServer(self._cluster.host)
        bare = settings.changed(
            catalog__token=None, control__token=None, http__token=None
        )  # no task needs them
        self._setup = TaskSetup(
            bare, StorageSettings.load(), warehouse, self._rpc.address, self._rpc.key, self._cluster.core
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="job")
        letters = DeadLetters(settings, storage, warehouse)
        self._retentions = CatalogRetentions.of(settings, clock)
        writer = FlushWriter(settings, link, letters, storage, retentions=self._retentions, clock=clock)
        self._spark_line = SparkLine(settings, self._topics, link, writer, clock, self._cluster.slots)
        self._spark_line.park(parked)
        self._running: RunningJob | None = None
        self._holds: list[Hold] = []
        self._collected: list[TaskResult] | None = None
        self._notice = CoreNotice()
        super().__init__(
            settings, link, self._spark_line, writer, Aside.of(storage, warehouse, PARKED_FOLDER), clock
        )

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._rpc.close()
            self._cluster.close()
            self._topics.close()

    def _work(self) -> None:
        self._attend()
        if self._running is None and self._collected is None and self._is_time("look", LOOK_EVERY_S):
            self._begin()

    def _finish(self) -> bool:
        self._attend()
        return self._spark_line.is_idle

    def _attend(self) -> None:
        """Answers tasks, takes the job's results when they are there."""
        if self._running is None and self._collected is None:
            self._listen(self._poll_s)
            return
        for peer, question in self._rpc.questions(JOB_POLL_S):
            self._answer(peer, question)
        if self._running is not None:
            self._answer_routing(self._running)
            self._end(self._running)
        if self._collected is not None and self._is_time("collect_job", LOOK_EVERY_S):
            self._collect()

    # ---- jobs

    def _begin(self) -> None:
        try:
            self._topics.look()
        except UnavailableError as error:
            log.warning("topics.not_looked_at", reason=str(error))
            return
        job = self._spark_line.next_job()
        if job is None:
            return
        self._running = RunningJob(self._pool.submit(self._run_job, job), self._clock.monotonic_s())

    def _run_job(self, job: Job) -> list[TaskResult]:
        """In a thread."""
        if not job.hands_on:
            return self._cluster.run(len(job.tasks), partial(run_tasks, self._setup, job.number))
        read, write = (
            partial(read_tasks, self._setup, job.number, len(job.tasks)),
            partial(write_tasks, self._setup, job.number),
        )
        return self._cluster.run_in_two(len(job.tasks), read, write)

    def _end(self, running: RunningJob) -> None:
        if not running.future.done():
            return
        results = running.future.result()
        refused = next((result.refused for result in results if result.refused is not None), None)
        if refused is not None:
            raise FatalError(refused)
        self._notice.tell(results)
        reach("job_ended")
        self._running, self._collected = None, results
        wall_s = self._clock.monotonic_s() - running.began_s
        task_s = sum(
            max((each.seconds for each in results if bool(each.read) is reads), default=0.0)
            for reads in (True, False)
        )
        handed_on = any(not result.read for result in results)
        records = sum(sum(result.counts.delivered.values()) for result in results)
        log.info(
            "job.ended",
            tasks=len(results),
            records=records,
            wall_s=round(wall_s, 3),
            task_s=round(task_s, 3),
            handed_on=handed_on,
        )
        self._collect()

    def _collect(self) -> None:
        """Hands over, once it is certain that all was read from the topics it was planned for."""
        assert self._collected is not None
        try:
            self._topics.check_identity()
        except UnavailableError as error:
            log.warning("flush.waits", reason=str(error))
            return
        self._spark_line.collect(self._collected)
        self._collected = None
        holds, self._holds = self._holds, []
        for hold in holds:
            super()._hold(hold)

    def _hold(self, message: Hold) -> None:
        """A task of the running job may be parking records of the table: it is held when the job has ended,
        which is when they are acknowledged."""
        if self._running is None and self._collected is None:
            super()._hold(message)
        else:
            self._spark_line.hold(message.table)
            self._holds.append(message)

    # ---- tasks

    def _answer(self, peer: Any, question: Question) -> None:
        job, running = self._spark_line.job, self._running
        match question:
            case GrowTables(names):
                self._rpc.answer(peer, Grown(self._link.grow(names)))
            case AskRetention(table, said, anew):
                self._rpc.answer(peer, self._retentions.retention(table, said, anew=anew))
            case FetchTaskSpec(number, task) if (
                job is not None and running is not None and job.number == number
            ):
                ranges = [each for task in job.tasks for each in task] if task == WRITING else job.tasks[task]
                order = TaskSpec(
                    list(self._topics.assignment.sources),
                    ranges,
                    job.skipped,
                    job.only,
                    job.hands_on and task != WRITING,
                )
                self._rpc.answer(peer, order)
            case AskRouting(number) if job is not None and running is not None and job.number == number:
                running.asking.append((peer, question, self._clock.monotonic_s() + ROUTING_WAIT_S))
            case _:
                self._rpc.answer(peer, JobOver())

    def _answer_routing(self, running: RunningJob) -> None:
        waiting, running.asking = running.asking, []
        for peer, question, until_s in waiting:
            decisions, decided = self._spark_line.decisions(question.tables)
            if decided or self._clock.monotonic_s() >= until_s:
                self._rpc.answer(peer, decisions)
            else:
                running.asking.append((peer, question, until_s))


def run_spark_worker(
    pipe: Connection, settings: IngestSettings, index: int, warehouse: str, parked: Mapping[TableId, str]
) -> None:
    """The body of the process. `parked`: tables and their parkings at start."""
    run_worker(pipe, index, partial(SparkWorker, settings, warehouse, parked))
