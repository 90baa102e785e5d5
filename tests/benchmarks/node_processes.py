"""The processes of a node and its catalog, started by a launcher that tells what they spend (`timers.py`)."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import psutil

from tests.benchmarks.ingest import LOG_END_CHARACTERS
from tests.stack.support.waiting import wait_for

READY_S = 60.0
TIMED, COUNTED = "tests.benchmarks.timed", "tests.benchmarks.counted"


@dataclass(frozen=True)
class Spent:
    """CPU seconds by process, those of the kernel among them, and by process and part; calls by process and
    part."""

    cpu_s: Counter[str] = field(default_factory=Counter)
    kernel_s: Counter[str] = field(default_factory=Counter)
    parts_s: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def since(self, before: "Spent") -> "Spent":
        """What was spent after `before`."""
        cpu_s, kernel_s = Counter(self.cpu_s), Counter(self.kernel_s)
        parts_s, calls = Counter(self.parts_s), Counter(self.calls)
        cpu_s.subtract(before.cpu_s)
        kernel_s.subtract(before.kernel_s)
        parts_s.subtract(before.parts_s)
        calls.subtract(before.calls)
        return Spent(cpu_s, kernel_s, parts_s, calls)

    def called(self, part: str) -> int:
        """Calls of a part by all processes."""
        return sum(calls for (_, of), calls in self.calls.items() if of == part)


@dataclass
class Timed:
    """The timed processes, by the folder in which they say what they have spent."""

    folder: Path
    pids: list[int]

    def spent(self) -> Spent:
        """What they have spent until now."""
        total = Spent()
        for path in [self.folder / f"{pid}.json" for pid in self.pids]:
            path.unlink(missing_ok=True)
            os.kill(int(path.stem), signal.SIGUSR2)
            wait_for(path.is_file, READY_S, f"what process {path.stem} has spent")
            times = orjson.loads(path.read_bytes())
            process = times["process"]
            total.cpu_s[process] += times["cpu_s"]
            total.kernel_s[process] += times["kernel_s"]
            for part, (took_s, calls) in times["parts"].items():
                total.parts_s[process, part] += took_s
                total.calls[process, part] += calls
        return total


@dataclass(frozen=True)
class Plain:
    """Processes without timers, by what the system says of them: pid by name."""

    pids: Mapping[str, int]

    def spent(self) -> Spent:
        """What they have spent until now."""
        total = Spent()
        for process, pid in self.pids.items():
            times: Any = psutil.Process(pid).cpu_times()
            total.cpu_s[process] = times.user + times.system
            total.kernel_s[process] = times.system
        return total


@contextmanager
def running(
    launcher: str | None, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A program by its launcher, or without; the end of its log is shown where what is done meanwhile
    fails."""
    module = command if launcher is None else (launcher, *command)
    with log.open("ab") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", *module], env=environment, stdout=lines, stderr=lines
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-LOG_END_CHARACTERS:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running_catalog(
    launcher: str | None, folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Our catalog on SQLite and local files: its pid and address."""
    port_file = folder / "catalog.port"
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    command = (
        *("catalog", "serve", "--anonymous", "--port", "0", "--port-file", str(port_file)),
        *("--database-url", f"sqlite:///{folder}/database/catalog.db", "--warehouse", f"file://{warehouse}"),
    )
    with running(launcher, command, environment, folder / "catalog.log") as process:
        wait_for(port_file.is_file, READY_S, "the catalog")
        yield process.pid, f"http://127.0.0.1:{port_file.read_text().strip()}"


@contextmanager
def running_node(
    launcher: str | None, folder: Path, environment: Mapping[str, str], port: int
) -> Iterator[list[int]]:
    """A node with one worker, ready to read: the pids of its worker and its main process."""
    with running(launcher, ("ingest", "run"), environment, folder / "ingest.log") as node:
        wait_for(lambda: _is_ready(port) or node.poll() is not None, READY_S, "the node")
        assert node.poll() is None, f"the node ended with exit code {node.returncode}"
        (worker,) = psutil.Process(node.pid).children()
        yield [worker.pid, node.pid]


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=5) as answer:
            status = orjson.loads(answer.read())
            return status["role"] == "active" and bool(status["ready"])
    except OSError:
        return False
