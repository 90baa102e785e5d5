"""One measured run of ingestion at a pace, and what the model of `infra/cost` says of it.

The real node with one worker against real Kafka and our catalog, local files, fsync on. Records come as fast
as the case says; what counts is from then on until all of them are committed: CPU of the worker, the main
process and the catalog, commits, new tables, files, requests to the storage. Kafka's and the producer's CPU
does not.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.cost.coefficients import Coefficients
from infra.cost.flushes import Flushes, Rules, batches_per_s
from infra.cost.ingestion import PROCESSES, Work, cpu_s, requests
from infra.cost.load import Load
from lake.catalog_client import CatalogClient
from lake.settings.ingest import FlushSettings
from tests.benchmarks.ingest import PARTITIONS, WRITTEN, committed, counted, produce, records
from tests.benchmarks.node_processes import COUNTED, Spent, Timed, running_catalog, running_node
from tests.benchmarks.storage_requests import DELETE, GET, LIST, PUT
from tests.benchmarks.timers import CATALOG, FOLDER_VARIABLE, MAIN, WORKER
from tests.environment import without_settings
from tests.stack.support.waiting import wait_for

COMMITTED_S = 900.0
# As the model calls the processes that `timers` names.
NAMES = dict(zip(PROCESSES, (WORKER, MAIN, CATALOG), strict=True))
# Records are taken from here, so that what makes them larger is not the same in each.
_NOISE = os.urandom(1 << 16).hex().encode()


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `rounds`: so often the records come again, each time when those before are committed;
    `per_second`: 0: as fast as they can be sent; `padding`: bytes by which each is larger."""

    name: str
    tenants: int
    records: int
    per_second: float
    interval_s: float
    cold_interval_s: float
    zipf: bool = True
    padding: int = 0
    rounds: int = 1
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """What was measured of one round. `seconds`: until all was committed, `sending_s`: while records came;
    CPU by process, as the model calls them."""

    case: str
    tenants: int
    records: int
    record_bytes: int
    seconds: float
    sending_s: float
    interval_s: float
    cold_interval_s: float
    zipf: bool
    commits: int
    new_tables: int
    files: int
    file_bytes: int
    cpu_s: Mapping[str, float]
    kernel_s: Mapping[str, float]
    requests: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    metadata_bytes_mean: float

    @property
    def work(self) -> Work:
        """What was done, as the model asks for it."""
        return self.work_of(self.commits)

    def work_of(self, commits: float) -> Work:
        """The same with another number of commits, each of one file."""
        batches = batches_per_s(commits / self.sending_s) * self.sending_s
        return Work(self.seconds, self.records, self.record_bytes, commits, self.new_tables, commits, batches)


def padded(values: Iterable[tuple[bytes, bytes]], padding: int) -> Iterator[tuple[bytes, bytes]]:
    """Records whose message is longer by so many bytes, half of which are chance."""
    for at, (tenant, value) in enumerate(values):
        if padding:
            start = at * 7 % (len(_NOISE) - padding)
            extra = (_NOISE[start : start + padding // 2] + b" a longer message" * padding)[:padding]
            value = value.replace(b'"message":"', b'"message":"' + extra, 1)
        yield tenant, value


def paced(values: Iterable[tuple[bytes, bytes]], per_second: float) -> Iterator[tuple[bytes, bytes]]:
    """The same, each when its time has come."""
    began_s = time.monotonic()
    for at, value in enumerate(values):
        if per_second and at % 100 == 0 and (ahead_s := at / per_second - (time.monotonic() - began_s)) > 0:
            time.sleep(ahead_s)
        yield value


def run(case: Case, bootstrap: str, folder: Path, port: int) -> list[Round]:
    """The rounds of a case, in a folder, a topic and a catalog of its own."""
    topic = f"cost-{case.name}-{os.getpid()}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result()
    folder.mkdir(parents=True)
    times = folder / "times"
    times.mkdir()
    environment = {**without_settings(), FOLDER_VARIABLE: str(times), "FIRN_CONFIG": ""}
    with running_catalog(COUNTED, folder, environment) as (catalog_pid, address):
        of_node = {
            "FIRN_INGEST_CATALOG__URI": address,
            "FIRN_INGEST_TOPICS": orjson.dumps(
                [{"name": topic, "format": "json", "tenant": ["header:tenant"]}]
            ).decode(),
            "FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
            "FIRN_INGEST_KAFKA__GROUP": topic,
            "FIRN_INGEST_INTERNAL_TOPICS__DEAD_LETTERS": f"{topic}.dead-letters",
            "FIRN_INGEST_INTERNAL_TOPICS__REPLAY": f"{topic}.replay",
            "FIRN_INGEST_INTERNAL_TOPICS__PARKED": f"{topic}.parked",
            "FIRN_INGEST_NODE__PORT": str(port),
            "FIRN_INGEST_FLUSH__INTERVAL_S": str(case.interval_s),
            "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": str(case.cold_interval_s),
            "FIRN_INGEST_TABLES__NEW_PER_MINUTE": "1000000",
        }
        with running_node(COUNTED, folder, environment | of_node, port) as (worker, main):
            running = _Running(case, bootstrap, topic, address, port, folder)
            timed = Timed(times, [worker, main, catalog_pid])
            pids = {"node": (worker, main), "catalog": (catalog_pid,)}
            return [running.round(at, timed, pids) for at in range(case.rounds)]


@dataclass
class _Running:
    """A node that runs, and what of it is known from the rounds before."""

    case: Case
    bootstrap: str
    topic: str
    catalog: str
    port: int
    folder: Path
    before: tuple[int, int, int, int] = (0, 0, 0, 0)  # tables, rows, files, commits

    def round(self, at: int, timed: Timed, pids: Mapping[str, Sequence[int]]) -> Round:
        """Sends the records, and waits until they are committed."""
        case, wanted = self.case, (at + 1) * self.case.records
        before, began_s = timed.spent(), time.monotonic()
        values = records(case.tenants, case.records, zipf=case.zipf, seed=at + 1)
        size = produce(self.bootstrap, paced(padded(values, case.padding), case.per_second), self.topic)
        sending_s = time.monotonic() - began_s
        wait_for(lambda: counted(self.port)[WRITTEN] >= wanted, COMMITTED_S, f"{wanted:,} committed records")
        time.sleep(case.idle_s)
        seconds, spent = time.monotonic() - began_s, timed.spent().since(before)
        rss = {
            name: sum(psutil.Process(pid).memory_info().rss for pid in some) for name, some in pids.items()
        }
        tables, rows, files, commits, _ = committed(CatalogClient(self.catalog))
        assert rows == wanted, f"{rows:,} rows of {wanted:,} records"
        were, self.before = self.before, (tables, rows, files, commits)
        sizes = [path.stat().st_size for path in (self.folder / "warehouse").rglob("*") if path.is_file()]
        data = [path.stat().st_size for path in (self.folder / "warehouse").rglob("*.parquet")]
        return Round(
            case=case.name,
            tenants=case.tenants,
            records=case.records,
            record_bytes=size,
            seconds=round(seconds, 2),
            sending_s=round(sending_s, 2),
            interval_s=case.interval_s,
            cold_interval_s=case.cold_interval_s,
            zipf=case.zipf,
            commits=commits - were[3],
            new_tables=tables - were[0],
            files=files - were[2],
            file_bytes=sum(data),
            cpu_s=_named(spent.cpu_s),
            kernel_s=_named(spent.kernel_s),
            requests=_requests(spent),
            rss_bytes=rss,
            metadata_bytes_mean=round((sum(sizes) - sum(data)) / max(1, len(sizes) - len(data))),
        )


def _named(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds[process], 3) for name, process in NAMES.items()}


def _requests(spent: Spent) -> dict[str, int]:
    return {kind: spent.called(kind) for kind in (PUT, GET, LIST, DELETE)}


def modelled_commits(found: Round, small_ratio: float) -> float:
    """Commits that the model expects, from the traffic and the settings alone."""
    load = Load(
        records_per_second=found.records / found.sending_s,
        bytes_per_record=found.record_bytes / found.records,
        tenants=found.tenants,
        retention_days=1,
        skew=1.0 if found.zipf else 0.0,
    )
    flush = FlushSettings(interval_s=found.interval_s, visibility_max_s=found.cold_interval_s)
    return Flushes(load, Rules.of(flush, small_ratio=small_ratio)).within(found.sending_s)


def compared(found: Round, coefficients: Coefficients, pace: float = 1.0) -> dict[str, Any]:
    """The model beside what was measured. `pace`: CPU seconds that this machine takes for one of those of the
    coefficients."""
    commits = modelled_commits(found, coefficients["ratio.small"])
    work = found.work_of(commits)
    cpu = sum(cpu_s(work, coefficients).values()) * pace
    put = requests(work, coefficients)["put"]
    of_commits = sum(cpu_s(found.work, coefficients).values()) * pace
    return {
        "tenants": found.tenants,
        "commits": _beside(commits, found.commits),
        "put": _beside(put, found.requests[PUT]),
        "cpu_s": _beside(cpu, sum(found.cpu_s.values())),
        "cpu_s_of_the_commits_that_were": _beside(of_commits, sum(found.cpu_s.values())),
    }


def _beside(model: float, measured: float) -> dict[str, float]:
    return {
        "model": round(model, 2),
        "measured": round(measured, 2),
        "ratio": round(model / measured, 3) if measured else 0.0,
    }


def as_json(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Rounds for a file."""
    return [asdict(each) for each in rounds]
