"""The catalog of the benchmark: the program as it is, in processes of its own."""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

REPOSITORY = Path(__file__).resolve().parents[3]
START_S = 600.0


class Server:
    """Runs until the block ends. `start_s`: from its start to its first answer."""

    def __init__(self, folder: Path, database_url: str, workers: int = 1, more: Sequence[str] = ()) -> None:
        port_file = folder / "port"
        port_file.unlink(missing_ok=True)
        flags = ["--database-url", database_url, "--warehouse", f"file://{folder}/warehouse", "--port", "0"]
        command = [
            sys.executable,
            "-m",
            "catalog",
            "serve",
            "--anonymous",
            *flags,
            "--port-file",
            str(port_file),
        ]
        began_s = time.perf_counter()
        with (folder / "catalog.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--workers", str(workers), *more], cwd=REPOSITORY, env=os.environ, stderr=log
            )
        while not port_file.exists():
            if self.process.poll() is not None or time.perf_counter() - began_s > START_S:
                raise RuntimeError(
                    f"the catalog did not start: {(folder / 'catalog.log').read_text()[-2_000:]}"
                )
            time.sleep(0.01)
        self.port = int(port_file.read_text())
        self._await_answer(began_s)
        self.start_s = time.perf_counter() - began_s
        self.uri = f"http://127.0.0.1:{self.port}"

    def _await_answer(self, began_s: float) -> None:
        while time.perf_counter() - began_s < START_S:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
                connection.request("GET", "/v1/config")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("the catalog does not answer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(120)

    def cpu_s(self) -> float:
        """CPU seconds of all its processes."""
        return cpu_s(self.process.pid)

    def memory_mb(self) -> dict[str, int]:
        """What its processes have for themselves, and the file of the database that they have mapped, MiB;
        and the most that there was of both."""
        found = {"anonymous": 0, "mapped": 0, "peak": 0}
        for process in _tree(self.process.pid):
            lines = dict(
                line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            )
            for name, key in (("anonymous", "RssAnon"), ("mapped", "RssFile"), ("peak", "VmHWM")):
                found[name] += int(lines[key].split()[0]) // 1024
        return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]
