"""The catalog's process of the simulation, started and ended; what others of its processes share."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.local.jvm_parts import REPOSITORY
from lake.catalog_client import CatalogClient
from lake.errors import UnavailableError
from tests.environment import without_settings
from tests.simulation.moved_clock import SharedClock

READY_S, END_S = 60.0, 60.0
LOG_END = 2_000  # characters
PACKAGE = "tests.simulation.catalog_process"


class CatalogProcess:
    """A catalog with an empty database and warehouse below a folder."""

    def __init__(self, folder: Path, clock_file: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.clock = folder, SharedClock(clock_file)
        self.counts, self.database = folder / "statements", folder / "catalog.db"
        self.warehouse = folder / "warehouse"
        port_file = folder / "port"
        variables = {
            "FIRN_CONFIG": "",
            "FIRN_CATALOG_DATABASE_URL": f"sqlite:///{self.database}",
            "FIRN_CATALOG_WAREHOUSE": f"file://{self.warehouse}",
            "FIRN_CATALOG_ACCESS__ANONYMOUS": "true",
        }
        with (folder / "catalog.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PACKAGE, clock_file, self.counts, port_file],
                cwd=REPOSITORY,
                env={**without_settings(), **variables},
                stdout=log,
                stderr=log,
            )
        self.uri = self._address(port_file)

    def _address(self, port_file: Path) -> str:
        until_s = time.monotonic() + READY_S
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > until_s:
                log = (self.folder / "catalog.log").read_text(errors="replace")
                raise UnavailableError(f"the catalog did not start: {log[-LOG_END:]}")
            threading.Event().wait(0.05)
        uri = f"http://127.0.0.1:{port_file.read_text().strip()}"
        with closing(CatalogClient(uri)) as catalog:
            _ = catalog.config
        return uri

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def memory_mb(pid: int = 0) -> float:
    """What a process (0: this one) has in memory, MiB."""
    lines = Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024, 1)


class _Mallinfo2(ctypes.Structure):
    """glibc's struct mallinfo2 (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


@dataclass(frozen=True, slots=True)
class Heap:
    """The blocks that this process has of the C library: in use, and free."""

    used_bytes: int
    free_bytes: int

    @classmethod
    def now(cls) -> "Heap":
        """As they are."""
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Mallinfo2
        told = ask()
        return cls(told.uordblks + told.hblkhd, told.fordblks)


def end_with_parent() -> None:
    """Has this process, which multiprocessing has started, end where its parent is killed: one that waits for
    work, or for a catalog that has ended as well, would stay. A keyboard's interrupt is for the process that
    lives the hours, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
