"""A worker process: owns some of the partitions, runs the pipeline, drains parked tables, talks to the node's main process through one pipe."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import NoReturn

import structlog

from ingest.consumer import InputTopics
from ingest.dead_letter import DeadLetters
from ingest.drain import Drain, drain_trouble
from ingest.fault_point import reach
from ingest.flush_writer import FlushWriter
from ingest.link import (
    Budget,
    Confirmed,
    Drained,
    Durable,
    Failed,
    FromWorker,
    Grown,
    GrowTables,
    Held,
    Hold,
    Opened,
    OpenTables,
    Park,
    Partition,
    Release,
    Report,
    Settled,
    Stop,
    StopDraining,
    Stuck,
    Submit,
    ToWorker,
    WrittenFlush,
)
from ingest.link import Drain as DrainOrder
from ingest.parked_topic import ParkedTopic
from ingest.pipeline import Pipeline
from ingest.trouble import Trouble
from lake.clock import Clock, SystemClock
from lake.errors import FatalError, FirnError, UnavailableError
from lake.logs import configure_logs
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId

POLL_S = 0.1
FLUSH_EVERY_S = 0.05
DISCOVER_EVERY_S = 20.0
STORE_OFFSETS_EVERY_S = 5.0
REPORT_EVERY_S = 1.0
COLLECT_EVERY_S = 30.0
# Of the time that SIGTERM leaves; what cannot be written by then is read again after the next start.
STOP_SHARE = 0.7
log = structlog.get_logger()


class PipeLink:
    """The main process at the other end of a pipe. A broken pipe means the node is gone: the process ends at once, the marks know the rest.

    A thread reads the pipe all the time. When both ends write into full pipes at once, one of them has to go on reading, or both wait for ever.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._arrived: SimpleQueue[ToWorker] = SimpleQueue()
        self._inbox: list[ToWorker] = []
        threading.Thread(target=self._read, name="link", daemon=True).start()

    def open(self, tables: Sequence[TableId]) -> None:
        self.send(OpenTables(tables))

    def grow(self, names: Mapping[TableId, Mapping[str, str]]) -> Mapping[TableId, bytes]:
        self.send(GrowTables(names))
        while not isinstance(message := self._arrived.get(), Grown):
            self._inbox.append(message)
        return message.schemas

    def submit(self, flushes: Sequence[WrittenFlush]) -> None:
        if flushes:
            self.send(Submit(flushes))

    def stuck(self, table: TableId, trouble: Trouble) -> None:
        self.send(Stuck(table, trouble))

    def send(self, message: FromWorker) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            _leave_at_once()

    def received(self, timeout_s: float) -> list[ToWorker]:
        """What has come in, waiting at most so long for the first."""
        inbox, self._inbox = self._inbox, []
        with suppress(Empty):
            if timeout_s and not inbox:
                inbox.append(self._arrived.get(timeout=timeout_s))
            while True:
                inbox.append(self._arrived.get_nowait())
        return inbox

    def _read(self) -> None:
        while True:
            try:
                self._arrived.put(self._pipe.recv())
            except (EOFError, OSError):
                _leave_at_once()


def _leave_at_once() -> NoReturn:
    os._exit(1)


def run_worker(settings: IngestSettings, index: int, warehouse: str, parked: Mapping[TableId, str], pipe: Connection) -> None:
    """The body of a worker process; ends after `Stop`, or with `Failed` sent for a person to read. `parked`: tables and their parkings at start."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the node's main process says when to stop
    configure_logs("ingest")
    link = PipeLink(pipe)
    try:
        Worker(settings, index, warehouse, parked, link, SystemClock()).run()
    except FirnError as error:
        log.critical("worker.failed", worker=index, reason=str(error))
        link.send(Failed(str(error), isinstance(error, FatalError)))


class Worker:
    """The loop: listen, take, hand over what is due, drain, store offsets, report."""

    def __init__(self, settings: IngestSettings, index: int, warehouse: str, parked: Mapping[TableId, str], link: PipeLink, clock: Clock) -> None:
        self._settings = settings
        self._link = link
        self._clock = clock
        self._topics = InputTopics(settings, index, settings.workers)
        self._storage = open_storage()
        self._writer = FlushWriter(settings, link, DeadLetters(settings, self._storage, warehouse), self._storage)
        parked_topic = ParkedTopic(settings, self._storage, warehouse)
        bytes_max = settings.buffer_bytes_max // settings.workers
        self._pipeline = Pipeline(settings, self._topics, link, self._writer, parked_topic, clock, bytes_max)
        self._pipeline.park(parked)
        self._drains: dict[TableId, Drain] = {}
        self._durable: tuple[int, Mapping[int, int]] = (0, {})
        self._stop_by_s: float | None = None
        self._next: dict[str, float] = {}

    def run(self) -> None:
        self._pipeline.discover()
        gc.disable()  # what the line makes dies by its reference count
        gc.freeze()
        while self._stop_by_s is None:
            self._listen(0)
            if self._pipeline.is_full:
                self._listen(POLL_S)
            else:
                self._pipeline.take(self._topics.poll(POLL_S))
            if self._is_time("flush", FLUSH_EVERY_S):
                self._pipeline.flush_due()
            self._drain()
            self._duties()
        self._write_the_rest(self._stop_by_s)
        self._topics.close()

    def _write_the_rest(self, until_s: float) -> None:
        while not (self._pipeline.is_idle and not len(self._pipeline.buffers)) and self._clock.monotonic_s() < until_s:
            self._pipeline.flush_all()
            self._listen(POLL_S)
        for _ in range(2):  # offsets that wait for their confirmation, and the last ones
            self._say_durable()
            while self._durable[1] and self._clock.monotonic_s() < until_s:
                self._listen(POLL_S)
        self._report()

    # ---- what the main process says

    def _listen(self, timeout_s: float) -> None:
        for message in self._link.received(timeout_s):
            self._handle(message)

    def _handle(self, message: ToWorker) -> None:
        pipeline = self._pipeline
        match message:
            case Opened(views, postponed):
                pipeline.opened(views, postponed)
            case Settled():
                self._settle(message)
            case Park(parkings):
                self._stop_draining(parkings)
                pipeline.park(parkings)
            case Hold(table, number):
                pipeline.hold(table)
                self._link.send(Held(table, number))
                reach("held")
            case Release(views):
                pipeline.release(views)
            case DrainOrder(table):
                self._drains[table] = Drain(message, self._settings, self._storage, self._writer, self._link.submit)
            case StopDraining(table):
                self._stop_draining([table])
            case Confirmed(number, witness):
                if number == self._durable[0]:
                    pipeline.store(self._durable[1], witness)
                    self._durable = (number, {})
            case Budget(size_bytes):
                pipeline.bytes_max = size_bytes
            case Stop():
                self._stop_by_s = self._clock.monotonic_s() + self._settings.shutdown_s * STOP_SHARE

    def _settle(self, message: Settled) -> None:
        live = []
        for table, outcome, view in message.outcomes:
            if (drain := self._drains.get(table)) is None:
                live.append((table, outcome, view))
            else:
                self._guarded(drain, partial(drain.settled, outcome, view))
        self._pipeline.settle(live)

    # ---- draining

    def _drain(self) -> None:
        for drain in list(self._drains.values()):
            if self._guarded(drain, drain.step):
                self._stop_draining([drain.order.table])
                self._link.send(Drained(drain.order.table, drain.order.number))

    def _guarded(self, drain: Drain, work: Callable[[], bool | None]) -> bool:
        try:
            return bool(work())
        except FirnError as error:
            self._stop_draining([drain.order.table])
            self._link.send(Drained(drain.order.table, drain.order.number, drain_trouble(error)))
            return False

    def _stop_draining(self, tables: Iterable[TableId]) -> None:
        for table in tables:
            if (drain := self._drains.pop(table, None)) is not None:
                drain.close()

    # ---- duties

    def _duties(self) -> None:
        if self._is_time("report", REPORT_EVERY_S):
            self._report()
        if self._is_time("offsets", STORE_OFFSETS_EVERY_S):
            self._say_durable()
        if self._is_time("discover", DISCOVER_EVERY_S):
            self._discover()
        if self._is_time("collect", COLLECT_EVERY_S):
            gc.collect()

    def _discover(self) -> None:
        try:
            self._pipeline.discover()
        except UnavailableError as error:
            log.warning("partitions.not_looked_for", reason=str(error))

    def _say_durable(self) -> None:
        """Offsets are stored once it is certain that no other node had taken over when all they stand on was acknowledged."""
        if self._durable[1]:
            return
        number = self._durable[0] + 1
        self._durable = (number, self._pipeline.durable_offsets())
        if self._durable[1]:
            self._link.send(Durable(number))

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
