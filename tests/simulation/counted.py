"""What operations cost, counted: files read and written, bytes, SQL statements, CPU seconds by process."""

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from statistics import median

import psutil

from lake.settings import StorageSettings
from lake.storage import AnyStorage, StoredObject
from tests.simulation.catalog_process import COUNT

# Linux: the clock of all threads of a process, in nanoseconds (kernel, `posix-timers`: CPUCLOCK_SCHED).
_SCHEDULED = 2


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has spent; 0 where it has ended."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | _SCHEDULED)
    return 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What something cost. `client_s`: CPU seconds of this process; `executor_s`: of those that merge,
    where they are others; `reads`, `writes`: files of this process."""

    client_s: float = 0.0
    catalog_s: float = 0.0
    executor_s: float = 0.0
    statements: int = 0
    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_bytes: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return self.client_s + self.catalog_s + self.executor_s


class CountedStorage(AnyStorage):
    """The storage, which counts; a file's time of last change is the simulation's."""

    def __init__(self, simulated: Callable[[datetime], datetime] = lambda moment: moment) -> None:
        super().__init__(StorageSettings.load())
        self._simulated = simulated
        self.reads = self.read_bytes = self.writes = self.written_bytes = 0
        self._lock = threading.Lock()  # threads read and write

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        data = super().read(uri, bytes_max=bytes_max, root=root)
        with self._lock:
            self.reads, self.read_bytes = self.reads + 1, self.read_bytes + len(data)
        return data

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        super().write_new(uri, data)
        with self._lock:
            self.writes, self.written_bytes = self.writes + 1, self.written_bytes + len(data)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for found in super().list(prefix):
            yield StoredObject(found.uri, found.size, self._simulated(found.modified), found.etag)

    def prune(self, prefix: str, is_old: Callable[[datetime], bool]) -> int:
        return super().prune(prefix, lambda changed: is_old(self._simulated(changed)))


@dataclass
class Meter:
    """Reads all counters at once."""

    storage: CountedStorage
    catalog_pid: int
    statements_file: Path

    def __post_init__(self) -> None:
        with self.statements_file.open("r+b") as opened:
            self._statements = mmap.mmap(opened.fileno(), COUNT.size)

    def now(self, *, with_executors: bool = False) -> Spent:
        """What was spent since the beginning. Executors are looked for where asked to: that takes
        milliseconds."""
        return Spent(
            time.process_time(),
            cpu_s(self.catalog_pid),
            self._executors_s() if with_executors else 0.0,
            COUNT.unpack(self._statements[:])[0],
            self.storage.reads,
            self.storage.read_bytes,
            self.storage.writes,
            self.storage.written_bytes,
        )

    def _executors_s(self) -> float:
        children = psutil.Process(os.getpid()).children(recursive=True)
        return sum(cpu_s(child.pid) for child in children if child.pid != self.catalog_pid)


@dataclass
class Costs:
    """What operations of a period cost, by name: how many there were and what was spent on them, in samples.
    `counts`: off while operations go beside each other, when nobody can say whose the catalog's time is."""

    meter: Meter
    samples: dict[str, list[tuple[int, Spent]]] = field(default_factory=dict)
    counts: bool = True

    def take(self) -> dict[str, list[tuple[int, Spent]]]:
        """The samples; from here on there are none."""
        samples, self.samples = self.samples, {}
        return samples

    @contextmanager
    def of(self, name: str, *, with_executors: bool = False) -> Iterator[list[int]]:
        """Counts what the body spends; it appends how many operations it has done."""
        done = list[int]()
        if not self.counts:
            yield done
            return
        before = self.meter.now(with_executors=with_executors)
        yield done
        if count := sum(done):
            spent = self.meter.now(with_executors=with_executors) - before
            self.samples.setdefault(name, []).append((count, spent))

    def figures(self, name: str) -> dict[str, float]:
        """What one operation cost: exact counts on the average of all, milliseconds of CPU as the median
        of samples."""
        found = self.samples.get(name, ())
        count, total = sum(n for n, _ in found), sum((spent for _, spent in found), Spent())
        if not count:
            return {}
        return {
            "count": count,
            "total_cpu_s": round(total.cpu_s, 2),
            "cpu_ms": round(median(spent.cpu_s / n * 1_000 for n, spent in found), 4),
            "catalog_cpu_ms": round(median(spent.catalog_s / n * 1_000 for n, spent in found), 4),
            "statements": round(total.statements / count, 3),
            "reads": round(total.reads / count, 3),
            "read_bytes": round(total.read_bytes / count),
            "writes": round(total.writes / count, 3),
            "written_bytes": round(total.written_bytes / count),
        }


def in_parts(samples: Sequence[tuple[int, Spent]], parts: int) -> list[tuple[int, Spent]]:
    """Samples put together, so many of them that a clock's coarseness does not matter."""
    size = max(1, len(samples) // parts)
    grouped = [samples[at : at + size] for at in range(0, len(samples), size)]
    return [(sum(n for n, _ in group), sum((spent for _, spent in group), Spent())) for group in grouped]
