"""The ingester on one node: worker processes read and write, this process commits; a lease makes a second
node a hot standby, or those of shares have it read a part of the input.

When a worker dies, or this process does, all of the node starts again together: nobody goes on with what a
dead one believed.
"""

import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, ClassVar

import stamina
import structlog

from ingest.commit.checkpoint import CommitCheckpoint, check_checkpoints, parse_checkpoint
from ingest.commit.committer import Committer
from ingest.commit.contested_tables import ContestedTables
from ingest.commit.ledger import LiveMarks
from ingest.commit.second_writer import SecondWriters
from ingest.commit.stream_room import StreamRoom
from ingest.commit.table_states import NewTables, TableStates
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.credential_files import CredentialFiles
from ingest.kafka.group_offsets import store_first_offsets
from ingest.kafka.internal_topic import ensure_topic
from ingest.kafka.kafka_client import check_connection
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.kafka_trouble import KafkaRefusedError
from ingest.keys.key_index_store import KeyIndexStore
from ingest.model.link import Begun, Budget, Counts, Failed, FromWorker, Report, Stop, ToWorker
from ingest.model.parked_record import ParkedRecords
from ingest.model.shares import ALL_SHARES, Shares
from ingest.model.trouble import Troubles
from ingest.node.engines.local_worker import run_local_worker
from ingest.node.engines.worker_process import WorkerProcess, spawn_worker
from ingest.node.node import Node
from ingest.node.node_leases import NodeLeases
from ingest.node.tenant_traffic import TenantTraffic
from ingest.parking.health_probe import HealthProbe
from ingest.parking.left_to_one_node import LeftToOneNode
from ingest.parking.parked_topic import PARTITIONS, parking_begins
from ingest.parking.parking import Parking
from ingest.route.routes import Routes
from ingest.write.catalog_rates import CatalogRates
from lake import metrics, native_core
from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.errors import FatalError, RefusedError, SettingsError, UnavailableError
from lake.lease import control_of, held_lease, lease_name
from lake.relief import Bounds
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId

WAIT_IDLE_S = 0.25
WAIT_BUSY_S = 0.02
RESTART_AFTER_S = 2.0
START_S = 60.0
BUDGET_EVERY_S = 1.0
# How often the files of passwords, certificates and keys are looked at.
CREDENTIALS_EVERY_S = 2.0
THREADS = 24
# The main loop, which waits for nothing that takes long, asks for its lease each time around.
STANDS_STILL_S = 60.0
# What is known of ten thousand tables stays, and is not to be looked through again for every few that change.
COLLECT_OBJECTS = 100_000
# A table the catalog does not answer for in this time is tried again later.
LOAD_TIMEOUT_S = 5.0
# It could not be done, as for every program.
NOT_FLUSHED = 2
log = structlog.get_logger()


def _may_pass(error: Exception) -> bool:
    """Whether services that start together explain it."""
    return isinstance(error, UnavailableError) and not isinstance(error, KafkaRefusedError)


class NodeRestart(UnavailableError):
    """A worker ended, the lease is lost, or there are new credentials; all processes of the node start
    again."""


@dataclass
class LocalEngine:
    """One node. `status` may be asked from other threads. `worker_body`: what a worker process runs.
    `waiting`: workers that the first generation is made of; what it lacks is spawned."""

    worker_body: ClassVar[Callable[..., None]] = staticmethod(run_local_worker)

    settings: IngestSettings
    waiting: list[WorkerProcess] = field(default_factory=list)
    _workers: list[WorkerProcess] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _restarts: int = 0
    _ends: bool = False  # this generation of workers was told to
    _shares: Shares = ALL_SHARES  # its
    _aborted: bool = False  # a worker was: by the client, over a damaged batch
    _role: str = "starting"
    _node: Node | None = None
    _ledger: LiveMarks = field(default_factory=LiveMarks)
    _budget_at_s: float = 0.0
    _credentials: CredentialFiles = field(init=False)  # of this generation's clients
    _credentials_at_s: float = 0.0
    _clock: Clock = field(default_factory=SystemClock)
    _traffic: TenantTraffic = field(init=False)

    def __post_init__(self) -> None:
        self._traffic = TenantTraffic(self._clock, self.settings.node.tenant_metrics_max)
        if not self.settings.topics:
            raise SettingsError(
                "no input topics are set; add [[ingest.topics]] with a name to the settings file, or set "
                "FIRN_INGEST_TOPICS"
            )
        Routes(self.settings)  # a rule that is none is told now, not by a worker once the lease is taken
        check_connection(self.settings)
        token = self.settings.catalog.token
        self._catalog = CatalogClient(
            self.settings.catalog.uri, token=token.get_secret_value() if token else None
        )
        self._storage = open_storage()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="node")

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then flushes and leaves. Raises FatalError for what a person has to
        mend."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        gc.freeze()
        gc.set_threshold(COLLECT_OBJECTS)
        if (warehouse := self._prepared()) is None:
            return
        is_one = self.settings.shares == 1
        leases = NodeLeases(
            self.settings,
            control_of(self.settings, self._catalog) if is_one else self._catalog,
            f"{socket.gethostname()}:{os.getpid()}",
            self._clock,
            STANDS_STILL_S,
        )
        while not self._stopping.is_set():
            self._role, moved = "standby", False
            if not leases.acquire(self._stopping):
                leases.release()
                return
            try:
                self._run_generation(warehouse, leases)
                moved = not self._stopping.is_set()
            except UnavailableError as error:
                self._restarts += 1
                log.warning("node.restarts", reason=str(error), restarts=self._restarts)
                self._stopping.wait(RESTART_AFTER_S)
            finally:
                self._end_workers()
                leases.release(stays=moved)
        log.info("ingest.stopped")

    def _prepared(self) -> str | None:
        """The warehouse, once all that the node needs is there; None where it is stopped before. Credentials
        that Kafka refuses are waited for without an end."""
        while not self._stopping.is_set():
            try:
                return self._prepare_patiently()
            except KafkaRefusedError as error:
                log.warning("node.waits", reason=str(error))
                self._stopping.wait(RESTART_AFTER_S)
            except UnavailableError:
                if not self._stopping.is_set():
                    raise
        return None

    def _prepare_patiently(self) -> str:
        """Services that start together are not all there at once; whoever stops this node meanwhile does not
        wait for them."""
        warehouse = ""
        for attempt in stamina.retry_context(
            on=lambda error: _may_pass(error) and not self._stopping.is_set(),
            attempts=None,
            timeout=START_S,
            wait_max=RESTART_AFTER_S,
        ):
            with attempt:
                warehouse = self._prepare()
        return warehouse

    def _prepare(self) -> str:
        """The warehouse; when it is known, the topics that the node writes to are there, too."""
        warehouse = self.settings.catalog.warehouse or self._catalog.warehouse
        if not warehouse:
            raise SettingsError(
                "the catalog does not say where tables go; set FIRN_INGEST_CATALOG__WAREHOUSE to a "
                "location like s3://bucket/prefix"
            )
        DeadLetters(self.settings, self._storage, warehouse).ensure_topic()
        ensure_topic(self.settings, self.settings.internal_topics.parked, PARTITIONS)
        return warehouse

    def _stop(self, number: int, _: FrameType | None) -> None:
        log.info("ingest.stopping", signal=signal.Signals(number).name, within_s=self.settings.shutdown_s)
        self._stopping.set()
        # The last flush may hang on a broken catalog or broker; past the time given, leaving it to the marks
        # is safe. Nothing stops this timer: what may hang after the flush is given up as well.
        timer = threading.Timer(self.settings.shutdown_s, self._give_up)
        timer.daemon = True
        timer.start()

    def _give_up(self) -> None:
        """Ends this process; workers leave at the end of their pipes."""
        advice = "what was not written is read again after the next start; raise shutdown_s if this repeats"
        log.error("ingest.not_flushed", within_s=self.settings.shutdown_s, advice=advice)
        os._exit(NOT_FLUSHED)

    # ---- one generation of workers

    def _run_generation(self, warehouse: str, leases: NodeLeases) -> None:
        """Works until it is stopped, or until its shares are to move."""
        self._role = "starting"  # no standby any more, and not ready before its workers read
        self._credentials = CredentialFiles(self.settings)  # before they are used
        health_probe = HealthProbe(self._catalog, self._storage, warehouse, self.settings.kafka.group)
        health_probe.settle()
        node = self._node = self._make_node(warehouse, leases, health_probe)
        checkpoints = _stored_checkpoints(KafkaReader(self.settings), self.settings)
        check_checkpoints(checkpoints, self._catalog)
        node.states.newest.found(checkpoints)
        parked = self._load_parked(node)  # before anything is routed
        self._store_first_offsets()
        self._shares, self._ends = leases.shares, False
        self._workers = [
            self.waiting.pop() if self.waiting else spawn_worker() for _ in range(self.settings.workers)
        ]
        self._begin_workers(warehouse, parked)
        self._role = "active"
        log.info(
            "ingest.running",
            topics=[t.name for t in self.settings.topics],
            workers=len(self._workers),
            lease=leases.token,
            parked=len(parked),
            core=native_core.told(),
        )
        while not all(worker.has_left for worker in self._workers):
            if not self._ends and (self._stopping.is_set() or leases.are_moving):
                self._ends = True
                self._tell(None, Stop())
            leases.check()
            self._check_credentials()
            self._listen(node, WAIT_BUSY_S if node.is_busy else WAIT_IDLE_S)
            self._step(node)

    def _check_credentials(self) -> None:
        """Raises NodeRestart where a file holds something else than this generation's clients were made
        with."""
        now_s = self._clock.monotonic_s()
        if now_s - self._credentials_at_s < CREDENTIALS_EVERY_S:
            return
        self._credentials_at_s = now_s
        if changed := self._credentials.changed():
            raise NodeRestart(f"{', '.join(changed)} changed; all clients begin anew with what is there now")

    def _store_first_offsets(self) -> None:
        """Has the group begin where the settings say; of nodes that start together one does, before any of
        them reads."""
        control, reader = control_of(self.settings, self._catalog), KafkaReader(self.settings)
        if self.settings.shares == 1 or control is None:
            store_first_offsets(self.settings, reader)
            return
        name = f"{lease_name(self.settings)}.first-offsets"
        try:
            with held_lease(control, name, "another node has the group begin"):
                store_first_offsets(self.settings, reader)
        except RefusedError as error:
            raise NodeRestart(str(error)) from error

    def _make_node(self, warehouse: str, leases: NodeLeases, health_probe: HealthProbe) -> Node:
        s, (token, *others) = self.settings, leases.fencing_tokens or [""]
        control = control_of(s, self._catalog)
        records = (
            None
            if control is None
            else ParkedRecords(control, timeout_s=s.commit.timeout_s, also_in_force=others)
        )
        states = self._make_states(warehouse, records, token)
        states.parks_itself = leases.shares.are_all
        return Node(
            states,
            self._make_committer(states),
            None if records is None else self._make_parking(records, states, token),
            Troubles(s.tables.park_after_s),
            health_probe,
            leases,
            self._pool,
            self._clock,
            self._tell,
        )

    def _make_states(self, warehouse: str, records: ParkedRecords | None, token: str) -> TableStates:
        self._ledger = LiveMarks()
        return TableStates(
            self._catalog,
            self._storage,
            warehouse,
            records,
            self._pool,
            self._clock,
            LOAD_TIMEOUT_S,
            NewTables(self.settings.tables.new_per_minute, self._clock),
            token,
            self._ledger,
            room=StreamRoom(
                CatalogRates.of(self.settings, self._clock),
                lambda namespace: (name.name for name in self._catalog.tables(namespace)),
                self._clock,
            ),
        )

    def _make_committer(self, states: TableStates) -> Committer:
        s, index = self.settings, self.settings.key_index
        return Committer(
            states,
            self._pool,
            self._clock,
            s.commit.timeout_s,
            s.tables.on_deleted,
            f"{s.kafka.group}@{socket.gethostname()}:{os.getpid()}",
            Bounds(s.commit.snapshots_max, s.commit.manifests_max),
            KeyIndexStore(self._storage, index.folder, index.bytes_max, clock=self._clock),
            second_writers=SecondWriters(others=f"{s.kafka.group}@" if s.shares > 1 else ""),
            contested=ContestedTables(is_shared=not states.parks_itself),
        )

    def _make_parking(
        self, records: ParkedRecords, states: TableStates, token: str
    ) -> Parking | LeftToOneNode:
        s = self.settings
        if not states.parks_itself:
            return LeftToOneNode(records, self._pool, token)
        begins = partial(parking_begins, KafkaReader(s), s.internal_topics.parked)
        return Parking(records, states, self._pool, self._clock, s.workers, token, self._tell, begins)

    def _load_parked(self, node: Node) -> Mapping[TableId, str]:
        try:
            return {} if node.parking is None else node.parking.load()
        except RefusedError as error:
            raise NodeRestart(f"the parked records are not this node's to change: {error}") from error

    def _begin_workers(self, warehouse: str, parked: Mapping[TableId, str]) -> None:
        settings = self.settings.changed(
            kafka__check_crcs=self.settings.kafka.check_crcs and not self._aborted
        )
        shares = () if self._shares == ALL_SHARES else (self._shares,)
        for index, worker in enumerate(self._workers):
            try:
                worker.begin(self.worker_body, settings, index, warehouse, dict(parked), *shares)
            except OSError as error:
                raise NodeRestart(f"worker {index} ended before it had work") from error

    def _listen(self, node: Node, timeout_s: float) -> None:
        pipes = {worker.pipe: at for at, worker in enumerate(self._workers) if not worker.has_left}
        for ready in wait(list(pipes), timeout_s):
            at = pipes[ready]  # type: ignore[index]
            try:
                message: FromWorker = self._workers[at].pipe.recv()
            except (EOFError, OSError):
                self._left(at)
                continue
            self._handle(node, at, message)

    def _left(self, at: int) -> None:
        worker = self._workers[at]
        worker.has_left = True
        worker.process.join(timeout=5.0)
        if (
            worker.process.exitcode == -signal.SIGABRT
            and self.settings.kafka.check_crcs
            and not self._aborted
        ):
            # Behind a wrong checksum librdkafka 2.16 reads on in the middle of the batch, and may end the
            # process for what it finds there.
            self._aborted = True
            log.error(
                "kafka.checksums_off",
                worker=at,
                advice=(
                    "a batch is damaged on a broker's disk; mend that, and start the node again to "
                    "compare checksums"
                ),
            )
        if not self._ends or worker.process.exitcode != 0:
            raise NodeRestart(f"worker {at} ended with exit code {worker.process.exitcode}")

    def _handle(self, node: Node, at: int, message: FromWorker) -> None:
        match message:
            case Report():
                self._workers[at].report = message
                self._measure(message)
            case Begun(firsts):
                self._ledger.firsts.update(firsts)
            case Failed(sentence, fatal):
                raise FatalError(sentence) if fatal else NodeRestart(sentence)
            case _:
                node.handle(at, message)

    def _step(self, node: Node) -> None:
        try:
            node.step(stopping=self._ends)
        except RefusedError as error:  # the parked records are changed under the lease, and only under it
            raise NodeRestart(f"the node's lease is lost: {error}") from error
        self._share_budget()

    def _tell(self, index: int | None, message: ToWorker) -> None:
        for at, worker in enumerate(self._workers):
            if index in (None, at) and not worker.has_left:
                try:
                    worker.pipe.send(message)
                except OSError as error:
                    raise NodeRestart(f"worker {at} does not listen any more") from error

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._role, self._node = "starting", None
        self._measure_nothing()

    def _share_budget(self) -> None:
        """One budget for the node: a worker may hold what it holds, and its part of what nobody holds."""
        now_s = self._clock.monotonic_s()
        reports = [worker.report for worker in self._workers if worker.report is not None]
        if (
            len(self._workers) < 2
            or len(reports) < len(self._workers)
            or now_s - self._budget_at_s < BUDGET_EVERY_S
        ):
            return
        self._budget_at_s = now_s
        held = [report.buffered_bytes + report.in_flight_bytes for report in reports]
        free = (self.settings.flush.buffer_bytes_max - sum(held)) // len(held)
        for at, size_bytes in enumerate(held):
            self._tell(at, Budget(max(1, size_bytes + free)))

    # ---- what it says of itself

    def _measure(self, report: Report) -> None:
        _count(report.counts)
        self._traffic.add(report.counts.tenant_records, report.counts.tenant_bytes)
        reports = [worker.report for worker in self._workers if worker.report is not None]
        metrics.BUFFERED_BYTES.set(sum(r.buffered_bytes + r.in_flight_bytes for r in reports))
        metrics.BUFFERED_TABLES.set(sum(r.buffered_tables for r in reports))
        for partition in report.partitions:
            lag = max(
                0, partition.end - (partition.stored if partition.stored is not None else partition.routed)
            )
            metrics.LAG_RECORDS.labels(partition.topic, str(partition.partition)).set(lag)

    def _measure_nothing(self) -> None:
        """A standby holds nothing, and what it knew of lag and tables is the active node's to tell."""
        for labelled in (metrics.LAG_RECORDS, metrics.TABLES_PARKED):
            labelled.clear()
        for plain in (
            metrics.BUFFERED_BYTES,
            metrics.BUFFERED_TABLES,
            metrics.TABLES_FAILING,
            metrics.TABLES_POSTPONED,
        ):
            plain.set(0)

    @property
    def _has_shares(self) -> bool:
        return self._role == "active" and self.settings.shares > 1

    @property
    def ready(self) -> bool:
        """Whether every worker reads; a standby is ready to take over."""
        return self._role == "standby" or (
            bool(self._workers) and all(worker.report is not None for worker in self._workers)
        )

    def status(self) -> dict[str, Any]:
        """What the node holds and how far it is, per partition: offsets routed, stored in the group, and at
        the end; and which tables take no rows."""
        reports = [worker.report for worker in self._workers if worker.report is not None]
        node = self._node  # it may end meanwhile
        return {
            "role": self._role,
            "ready": self.ready,
            "restarts": self._restarts,
            "buffered_bytes": sum(r.buffered_bytes for r in reports),
            "in_flight_bytes": sum(r.in_flight_bytes for r in reports),
            "buffered_tables": sum(r.buffered_tables for r in reports),
            **({"shares": self._shares.held, "of_shares": self._shares.total} if self._has_shares else {}),
            **(node.status() if node is not None else {}),
            "partitions": [
                {
                    "topic": p.topic,
                    "partition": p.partition,
                    "routed": p.routed,
                    "stored": p.stored,
                    "end": p.end,
                }
                for r in reports
                for p in r.partitions
            ],
        }


def _stored_checkpoints(reader: KafkaReader, settings: IngestSettings) -> list[CommitCheckpoint]:
    stored = reader.stored(reader.partitions(topic.name for topic in settings.topics))
    return [
        checkpoint
        for each in stored.values()
        if (checkpoint := parse_checkpoint(each.checkpoint)) is not None
    ]


def _count(counts: Counts) -> None:
    for topic, number in counts.delivered.items():
        metrics.RECORDS_DELIVERED.labels(topic).inc(number)
    for reason, number in counts.dead.items():
        metrics.RECORDS_DEAD.labels(reason).inc(number)
    for reason, number in counts.letters_not_stored.items():
        metrics.LETTERS_NOT_STORED.labels(reason).inc(number)
    for topic, number in counts.foreign.items():
        metrics.FOREIGN_MESSAGES.labels(topic).inc(number)
    for topic, number in counts.unreadable.items():
        metrics.RANGES_UNREADABLE.labels(topic).inc(number)
    for topic, number in counts.expired.items():
        metrics.RECORDS_EXPIRED.labels(topic).inc(number)
    for what, number in counts.unforeseen.items():
        metrics.UNFORESEEN.labels(what).inc(number)
    for rule, number in counts.masked_values.items():
        metrics.VALUES_MASKED.labels(*rule).inc(number)
    for topic, number in counts.masked_messages.items():
        metrics.MESSAGES_MASKED.labels(topic).inc(number)
    for topic, number in counts.withheld.items():
        metrics.VALUES_WITHHELD.labels(topic).inc(number)
    for why, number in counts.early.items():
        metrics.FLUSHED_EARLY.labels(why).inc(number)
    metrics.RECORDS_PARKED.inc(counts.parked)
    metrics.RECORDS_ALREADY_COMMITTED.inc(counts.committed)
    metrics.ROWS_WITH_ERRORS.inc(counts.rows_with_errors)
