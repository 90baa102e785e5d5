"""A worker process: owns some of the partitions, runs the pipeline, talks to the node's committer through one pipe."""

import gc
import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NoReturn, TypeVar

import structlog

from ingest.consumer import InputTopics
from ingest.dead_letter import DeadLetters
from ingest.link import Failed, FromWorker, Grown, GrowTables, Opened, OpenTables, Partition, Report, Settled, Stop, Submit, TableView, ToWorker, WrittenFlush
from ingest.pipeline import Pipeline
from lake.clock import Clock, SystemClock
from lake.errors import FatalError, FirnError
from lake.logs import configure_logs
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId

POLL_S = 0.1
DISCOVER_EVERY_S = 20.0
STORE_OFFSETS_EVERY_S = 5.0
REPORT_EVERY_S = 1.0
COLLECT_EVERY_S = 30.0
log = structlog.get_logger()
Answer = TypeVar("Answer", Opened, Grown)


class PipeLink:
    """The committer at the other end of a pipe. A broken pipe means the node is gone: the process ends at once, the marks know the rest."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._inbox: list[Settled] = []
        self.stopping = False

    def open(self, tables: Sequence[TableId]) -> Mapping[TableId, TableView]:
        return self._ask(OpenTables(tables), Opened).views

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        return self._ask(GrowTables(names), Grown).schemas

    def submit(self, flushes: Sequence[WrittenFlush]) -> None:
        if flushes:
            self.send(Submit(flushes))

    def send(self, message: FromWorker) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            _leave_at_once()

    def settled(self, timeout_s: float) -> list[Settled]:
        """What has come in, waiting at most so long for the first."""
        try:
            while self._pipe.poll(0 if self._inbox else timeout_s):
                self._sort(self._pipe.recv())
        except (EOFError, OSError):
            _leave_at_once()
        inbox, self._inbox = self._inbox, []
        return inbox

    def _ask(self, question: FromWorker, kind: type[Answer]) -> Answer:
        self.send(question)
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                _leave_at_once()
            if isinstance(message, kind):
                return message
            self._sort(message)

    def _sort(self, message: ToWorker) -> None:
        if isinstance(message, Settled):
            self._inbox.append(message)
        elif isinstance(message, Stop):
            self.stopping = True


def _leave_at_once() -> NoReturn:
    os._exit(1)


def run_worker(settings: IngestSettings, index: int, warehouse: str, pipe: Connection) -> None:
    """The body of a worker process; ends after `Stop`, or with `Failed` sent for a person to read."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the node's main process says when to stop
    configure_logs("ingest")
    link = PipeLink(pipe)
    try:
        Worker(settings, index, warehouse, link, SystemClock()).run()
    except FirnError as error:
        log.critical("worker.failed", worker=index, reason=str(error))
        link.send(Failed(str(error), isinstance(error, FatalError)))


class Worker:
    """The loop: take, hand over what is due, store offsets, report."""

    def __init__(self, settings: IngestSettings, index: int, warehouse: str, link: PipeLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._topics = InputTopics(settings, index, settings.workers)
        storage = open_storage()
        bytes_max = settings.buffer_bytes_max // settings.workers
        self._pipeline = Pipeline(settings, self._topics, link, DeadLetters(settings, storage, warehouse), storage, clock, bytes_max)
        self._next: dict[str, float] = {}

    def run(self) -> None:
        self._pipeline.discover()
        gc.disable()  # what the line makes dies by its reference count
        gc.freeze()
        while not self._link.stopping:
            self._settle(0)
            if self._pipeline.is_full:
                self._settle(POLL_S)
            else:
                self._pipeline.take(self._topics.poll(POLL_S))
            self._pipeline.flush_due()
            self._duties()
        while not (self._pipeline.is_idle and not len(self._pipeline.buffers)):
            self._pipeline.flush_all()
            self._settle(POLL_S)
        self._pipeline.store_offsets()
        self._report()
        self._topics.close()

    def _settle(self, timeout_s: float) -> None:
        for message in self._link.settled(timeout_s):
            self._pipeline.settle(message.outcomes)

    def _duties(self) -> None:
        if self._is_time("report", REPORT_EVERY_S):
            self._report()
        if self._is_time("offsets", STORE_OFFSETS_EVERY_S):
            self._pipeline.store_offsets()
        if self._is_time("discover", DISCOVER_EVERY_S):
            self._pipeline.discover()
        if self._is_time("collect", COLLECT_EVERY_S):
            gc.collect()

    def _is_time(self, duty: str, every_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._next.setdefault(duty, now_s if duty == "report" else now_s + every_s):
            return False
        self._next[duty] = now_s + every_s
        return True

    def _report(self) -> None:
        pipeline, offsets = self._pipeline, self._pipeline.offsets
        partitions = [
            Partition(source.topic, source.partition, offsets.routed[number], offsets.stored.get(number), self._topics.end(number))
            for number, source in enumerate(self._topics.assignment.sources)
        ]
        self._link.send(Report(partitions, pipeline.buffers.size_bytes, pipeline.in_flight_bytes, len(pipeline.buffers), pipeline.counts()))
