"""A worker process as every engine has it: drains parked tables, has offsets stored, talks to the node's main
process through one pipe."""

import gc
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import NoReturn, Protocol

import structlog

from ingest.kafka.aside import Aside
from ingest.kafka.kafka_client import check_left_behind
from ingest.model.fault_point import reach
from ingest.model.link import (
    Begun,
    Budget,
    Confirmed,
    Drained,
    Durable,
    Failed,
    Forget,
    FromWorker,
    Grown,
    GrowTables,
    Held,
    Hold,
    Opened,
    OpenTables,
    Outcome,
    Park,
    Release,
    Report,
    Settled,
    Stop,
    StopDraining,
    Stuck,
    Submit,
    TableView,
    ToWorker,
    WrittenFlush,
)
from ingest.model.link import Drain as DrainOrder
from ingest.model.trouble import Trouble
from ingest.parking.drain import Drain, drain_trouble
from ingest.write.flush_writer import FlushWriter
from lake.arrow_start import start_arrow
from lake.clock import Clock
from lake.errors import FatalError, FirnError, Rejected, UnavailableError
from lake.log_schema import WantedColumn
from lake.logs import configure_logs
from lake.marks import TopicPartition
from lake.settings import IngestSettings
from lake.tenant import TableId

POLL_S = 0.1
# While tables are drained, nothing else waits for long, and live records and drains have about as much time
# each.
DRAINING_POLL_S, DRAIN_S = 0.005, 0.1
DISCOVER_EVERY_S = 20.0
STORE_OFFSETS_EVERY_S = 5.0
# For so long all else waits for dead letters and parked messages that offsets stand on.
ACKNOWLEDGED_S = 0.1
REPORT_EVERY_S = 1.0
COLLECT_EVERY_S = 30.0
# Of the time that SIGTERM leaves; what cannot be written by then is read again after the next start.
STOP_SHARE = 0.7
log = structlog.get_logger()


class PipeLink:
    """The main process at the other end of a pipe. A broken pipe means the node is gone: the process ends at
    once, the marks know the rest.

    A thread reads the pipe all the time. When both ends write into full pipes at once, one of them has to go
    on reading, or both wait for ever.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._arrived: SimpleQueue[ToWorker] = SimpleQueue()
        self._inbox: list[ToWorker] = []
        threading.Thread(target=self._read, name="link", daemon=True).start()

    def open(self, tables: Sequence[TableId]) -> None:
        self.send(OpenTables(tables))

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
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


def run_worker(pipe: Connection, index: int, make: Callable[[PipeLink], "Worker"]) -> None:
    """The body of a worker process; ends after `Stop`, or with `Failed` sent for a person to read."""
    ignore_signals()
    configure_logs("ingest")
    start_arrow()
    link = PipeLink(pipe)
    try:
        make(link).run()
    except FirnError as error:
        log.critical("worker.failed", worker=index, reason=str(error))
        link.send(Failed(str(error), isinstance(error, FatalError)))


def ignore_signals() -> None:
    """The node's main process says when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class Line(Protocol):
    """What a worker drives: takes messages in, has them written, knows how far they are durable."""

    bytes_max: int

    def discover(self) -> Mapping[TopicPartition, int]:
        """Takes up new partitions; where their ingestion began. Raises UnavailableError, FatalError."""

    def opened(
        self,
        views: Mapping[TableId, TableView],
        postponed: Sequence[TableId],
        refused: Mapping[TableId, Rejected],
    ) -> None:
        """Takes note of tables that were asked for."""

    def settle(self, outcomes: Iterable[tuple[TableId, Outcome, TableView]]) -> None:
        """Takes note of what became of flushes."""

    def park(self, parkings: Mapping[TableId, str]) -> None:
        """The tables' messages go to the parking topic from here on."""

    def hold(self, table: TableId) -> None:
        """What comes of the table waits from here on."""

    def release(self, views: Mapping[TableId, TableView]) -> None:
        """The tables take rows again."""

    def forget(self, tables: Iterable[TableId]) -> None:
        """The tables are gone."""

    def durable_offsets(self, wait_s: float, /) -> dict[int, int]:
        """Group offsets that have moved, all they stand on being durable; `wait_s`: for how long that may be
        waited for."""

    def store(self, moved: Mapping[int, int], checkpoint: str) -> None:
        """Stores group offsets."""

    def report(self) -> Report:
        """How far it is, what it holds, and what was counted since the last call."""


class Worker(ABC):
    """The loop: listen, work, drain, store offsets, report. What its work is, the engine's own worker
    says."""

    def __init__(
        self,
        settings: IngestSettings,
        link: PipeLink,
        line: Line,
        writer: FlushWriter,
        aside: Aside,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._link = link
        self._line = line
        self._writer = writer
        self._aside = aside
        self._clock = clock
        self._drains: dict[TableId, Drain] = {}
        self._durable: tuple[int, Mapping[int, int]] = (0, {})
        self._stop_by_s: float | None = None
        self._next: dict[str, float] = {}

    def run(self) -> None:
        self._take_up()
        gc.disable()  # what the line makes dies by its reference count
        gc.freeze()
        while self._stop_by_s is None:
            self._listen(0)
            self._work()
            self._drain()
            self._duties()
        self._write_the_rest(self._stop_by_s)

    @abstractmethod
    def _work(self) -> None:
        """Takes some more in, hands over what is due; returns soon."""

    @abstractmethod
    def _finish(self) -> bool:
        """While the node stops: hands over what is left; True when nothing is."""

    def _write_the_rest(self, until_s: float) -> None:
        while not self._finish() and self._clock.monotonic_s() < until_s:
            self._listen(POLL_S)
        for _ in range(2):  # offsets that wait for their confirmation, and the last ones
            self._say_durable(max(0.0, until_s - self._clock.monotonic_s()))
            while self._durable[1] and self._clock.monotonic_s() < until_s:
                self._listen(POLL_S)
        self._report()

    # ---- what the main process says

    def _listen(self, timeout_s: float) -> None:
        for message in self._link.received(timeout_s):
            self._handle(message)

    def _handle(self, message: ToWorker) -> None:
        line = self._line
        match message:
            case Opened(views, postponed, refused):
                line.opened(views, postponed, refused)
            case Settled():
                self._settle(message)
            case Park(parkings):
                self._stop_draining(parkings)
                line.park(parkings)
            case Hold():
                self._hold(message)
            case Release(views):
                line.release(views)
            case Forget(tables):
                line.forget(tables)
            case DrainOrder() | StopDraining():
                self._order(message)
            case Confirmed(number, checkpoint):
                if number == self._durable[0]:
                    line.store(self._durable[1], checkpoint)
                    self._durable = (number, {})
            case Budget(size_bytes):
                line.bytes_max = size_bytes
            case Stop():
                self._stop_by_s = self._clock.monotonic_s() + self._settings.shutdown_s * STOP_SHARE

    def _order(self, message: DrainOrder | StopDraining) -> None:
        if isinstance(message, StopDraining):
            self._stop_draining([message.table])
        else:
            self._drains[message.table] = Drain(
                message, self._settings, self._aside, self._writer, self._link.submit
            )

    def _hold(self, message: Hold) -> None:
        self._line.hold(message.table)
        self._link.send(Held(message.table, message.number))
        reach("held")

    def _settle(self, message: Settled) -> None:
        live = []
        for table, outcome, view in message.outcomes:
            if (drain := self._drains.get(table)) is None:
                live.append((table, outcome, view))
            else:
                self._guarded(drain, partial(drain.settled, outcome, view))
        self._line.settle(live)

    # ---- draining

    @property
    def _poll_s(self) -> float:
        """How long to wait for what may come."""
        return DRAINING_POLL_S if self._drains else POLL_S

    def _drain(self) -> None:
        for_s = DRAIN_S / max(1, len(self._drains))
        for drain in list(self._drains.values()):
            if self._guarded(drain, partial(drain.step, for_s)):
                self._stop_draining([drain.order.table])
                self._link.send(Drained(drain.order.table, drain.order.number, drain.reached))

    def _guarded(self, drain: Drain, work: Callable[[], bool | None]) -> bool:
        try:
            return bool(work())
        except FirnError as error:
            self._stop_draining([drain.order.table])
            self._link.send(Drained(drain.order.table, drain.order.number, trouble=drain_trouble(error)))
            return False

    def _stop_draining(self, tables: Iterable[TableId]) -> None:
        for table in tables:
            if (drain := self._drains.pop(table, None)) is not None:
                drain.close()

    # ---- periodic tasks

    def _duties(self) -> None:
        if self._is_time("report", REPORT_EVERY_S):
            check_left_behind()
            self._report()
        if self._is_time("offsets", STORE_OFFSETS_EVERY_S):
            self._say_durable(ACKNOWLEDGED_S)
        if self._is_time("discover", DISCOVER_EVERY_S):
            self._discover()
        if self._is_time("collect", COLLECT_EVERY_S):
            gc.collect()

    def _discover(self) -> None:
        try:
            self._take_up()
        except UnavailableError as error:
            log.warning("partitions.not_looked_for", reason=str(error))

    def _take_up(self) -> None:
        if firsts := {
            topic_partition: first for topic_partition, first in self._line.discover().items() if first
        }:
            self._link.send(Begun(firsts))

    def _say_durable(self, wait_s: float) -> None:
        """Offsets are stored once it is certain that no other node had taken over when all they stand on was
        acknowledged."""
        if self._durable[1]:
            return
        number = self._durable[0] + 1
        self._durable = (number, self._line.durable_offsets(wait_s))
        if self._durable[1]:
            self._link.send(Durable(number))

    def _is_time(self, task: str, every_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._next.setdefault(task, now_s if task == "report" else now_s + every_s):
            return False
        self._next[task] = now_s + every_s
        return True

    def _report(self) -> None:
        self._link.send(self._line.report())
