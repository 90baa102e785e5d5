"""The ingester on one node: worker processes read and write, this process commits; a lease makes a second node a hot standby.

When a worker dies, or this process does, all of the node starts again together: nobody goes on with what a dead one believed.
"""

import multiprocessing
import os
import signal
import socket
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import structlog

from ingest.committer import Committer
from ingest.dead_letter import DeadLetters
from ingest.lease import NodeLease
from ingest.link import Counts, Failed, FromWorker, Grown, GrowTables, Opened, OpenTables, Report, Settled, Stop, Submit
from ingest.worker import run_worker
from lake import metrics
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.errors import FatalError, SettingsError, UnavailableError
from lake.settings import IngestSettings
from lake.storage import open_storage

WAIT_IDLE_S = 0.5
WAIT_BUSY_S = 0.02
RESTART_AFTER_S = 2.0
log = structlog.get_logger()


@dataclass
class Seat:
    """A worker process and this end of its pipe."""

    process: BaseProcess
    pipe: Connection
    report: Report | None = None
    has_left: bool = False


class NodeRestart(UnavailableError):
    """A worker ended; all processes of the node start again."""


@dataclass
class LocalEngine:
    """One node. `status` may be asked from other threads."""

    settings: IngestSettings
    _seats: list[Seat] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _restarts: int = 0
    _role: str = "starting"

    def __post_init__(self) -> None:
        if not self.settings.topics:
            raise SettingsError("no input topics are set; add [[ingest.topics]] with a name to the settings file, or set FIRN_INGEST_TOPICS")
        token = self.settings.catalog_token
        self._catalog = CatalogClient(self.settings.catalog_uri, token=token.get_secret_value() if token else None)
        self._storage = open_storage()

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then flushes and leaves. Raises FatalError for what a person has to mend."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        warehouse = self.settings.warehouse or self._catalog.warehouse
        if not warehouse:
            raise SettingsError("the catalog does not say where tables go; set FIRN_INGEST_WAREHOUSE to a location like s3://bucket/prefix")
        DeadLetters(self.settings, self._storage, warehouse).ensure_topic()
        lease = NodeLease(self._catalog, self.settings, holder=f"{socket.gethostname()}:{os.getpid()}")
        while not self._stopping.is_set():
            self._role = "standby"
            if not lease.acquire(self._stopping):
                return
            try:
                self._run_generation(warehouse, lease)
            except UnavailableError as error:
                self._restarts += 1
                log.warning("node.restarts", reason=str(error), restarts=self._restarts)
                self._stopping.wait(RESTART_AFTER_S)
            finally:
                self._end_workers()
                lease.release()
        log.info("ingest.stopped")

    def _stop(self, number: int, _: FrameType | None) -> None:
        log.info("ingest.stopping", signal=signal.Signals(number).name, within_s=self.settings.shutdown_s)
        self._stopping.set()
        # The last flush may hang on a broken catalog or broker; past the time given, leaving it to the marks is safe.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(max(1, int(self.settings.shutdown_s)))

    # ---- one generation of workers

    def _run_generation(self, warehouse: str, lease: NodeLease) -> None:
        committer = Committer(self._catalog, self._storage, warehouse, SystemClock(), self.settings.commit_timeout_s)
        self._seats = [self._start_worker(index, warehouse) for index in range(self.settings.workers)]
        self._role = "active"
        log.info("ingest.running", topics=[topic.name for topic in self.settings.topics], workers=len(self._seats), lease=lease.token)
        told = False
        while not all(seat.has_left for seat in self._seats):
            if self._stopping.is_set() and not told:
                self._tell_all(Stop())
                told = True
            lease.check()
            self._listen(committer, WAIT_IDLE_S if committer.is_idle else WAIT_BUSY_S)
            self._settle(committer)

    def _start_worker(self, index: int, warehouse: str) -> Seat:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=run_worker, args=(self.settings, index, warehouse, theirs), name=f"worker-{index}", daemon=True)
        process.start()
        theirs.close()
        return Seat(process, ours)

    def _listen(self, committer: Committer, timeout_s: float) -> None:
        pipes = {seat.pipe: at for at, seat in enumerate(self._seats) if not seat.has_left}
        for ready in wait(list(pipes), timeout_s):
            at = pipes[ready]  # type: ignore[index]
            try:
                message: FromWorker = self._seats[at].pipe.recv()
            except (EOFError, OSError):
                self._left(at)
                continue
            self._handle(committer, at, message)

    def _left(self, at: int) -> None:
        seat = self._seats[at]
        seat.has_left = True
        seat.process.join(timeout=5.0)
        if not self._stopping.is_set() or seat.process.exitcode != 0:
            raise NodeRestart(f"worker {at} ended with exit code {seat.process.exitcode}")

    def _handle(self, committer: Committer, at: int, message: FromWorker) -> None:
        seat = self._seats[at]
        match message:
            case OpenTables(tables):
                seat.pipe.send(Opened({table: committer.view(table) for table in tables}))
            case GrowTables(names):
                seat.pipe.send(Grown({table: committer.grow(table, new) for table, new in names.items()}))
            case Submit(flushes):
                committer.submit(at, flushes)
            case Report():
                seat.report = message
                self._measure(message)
            case Failed(sentence, fatal):
                raise FatalError(sentence) if fatal else NodeRestart(sentence)

    def _settle(self, committer: Committer) -> None:
        if committer.is_idle:
            return
        outcomes: dict[int, list[Any]] = {}
        with metrics.ROUND_SECONDS.time():
            settled = committer.round()
        for worker, table, outcome, view in settled:
            outcomes.setdefault(worker, []).append((table, outcome, view))
        for worker, entries in outcomes.items():
            self._seats[worker].pipe.send(Settled(entries))
        if outcomes:
            log.info("commit.done", tables=sum(map(len, outcomes.values())))

    def _tell_all(self, message: Stop) -> None:
        for seat in self._seats:
            if not seat.has_left:
                seat.pipe.send(message)

    def _end_workers(self) -> None:
        for seat in self._seats:
            seat.pipe.close()  # a worker that reads end-of-file leaves at once
            seat.process.join(timeout=1.0)
            if seat.process.is_alive():
                seat.process.kill()
                seat.process.join()
        self._seats = []

    # ---- what it says of itself

    def _measure(self, report: Report) -> None:
        _count(report.counts)
        reports = [seat.report for seat in self._seats if seat.report is not None]
        metrics.BUFFERED_BYTES.set(sum(r.buffered_bytes + r.in_flight_bytes for r in reports))
        metrics.BUFFERED_TABLES.set(sum(r.buffered_tables for r in reports))
        for partition in report.partitions:
            lag = max(0, partition.end - (partition.stored if partition.stored is not None else partition.routed))
            metrics.LAG_RECORDS.labels(partition.topic, str(partition.partition)).set(lag)

    @property
    def ready(self) -> bool:
        """Whether every worker reads; a standby is ready to take over."""
        return self._role == "standby" or (bool(self._seats) and all(seat.report is not None for seat in self._seats))

    def status(self) -> dict[str, Any]:
        """What the node holds and how far it is, per partition: offsets routed, stored in the group, and at the end."""
        reports = [seat.report for seat in self._seats if seat.report is not None]
        return {
            "role": self._role,
            "ready": self.ready,
            "restarts": self._restarts,
            "buffered_bytes": sum(r.buffered_bytes for r in reports),
            "in_flight_bytes": sum(r.in_flight_bytes for r in reports),
            "buffered_tables": sum(r.buffered_tables for r in reports),
            "partitions": [
                {"topic": p.topic, "partition": p.partition, "routed": p.routed, "stored": p.stored, "end": p.end} for r in reports for p in r.partitions
            ],
        }


def _count(counts: Counts) -> None:
    for topic, number in counts.delivered.items():
        metrics.RECORDS_DELIVERED.labels(topic).inc(number)
    for reason, number in counts.dead.items():
        metrics.RECORDS_DEAD.labels(reason).inc(number)
    for topic, number in counts.expired.items():
        metrics.RECORDS_EXPIRED.labels(topic).inc(number)
    metrics.RECORDS_ABSORBED.inc(counts.absorbed)
    metrics.ROWS_WITH_ERRORS.inc(counts.rows_with_errors)
