"""What the supervisor has to know of a service: how to prepare it, run it, and tell that it is ready."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from infra.local import java
from infra.local.prerequisites import Missing
from infra.local.state import StackState
from lake.errors import PrerequisiteError
from lake.private_files import private_file, private_folder
from lake.settings import InfraSettings

PROBE_TIMEOUT_S = 2.0
BUCKET = "firn-warehouse"


@dataclass(frozen=True, slots=True)
class Site:
    """Where one service is about to be started: its own folder, its ports by name, and what the stack knows
    so far."""

    folder: Path
    state_folder: Path
    ports: Mapping[str, int]
    stack: StackState

    @property
    def port(self) -> int:
        return self.ports["port"]

    @property
    def catalog_uri(self) -> str:
        return self.stack.catalog_uri or self.stack.record("catalog").address

    def write(self, name: str, lines: list[str]) -> Path:
        """Writes a file of settings (owner only: some hold keys) into the folder of the service; `name` may
        have folders in it."""
        path = self.folder / name
        private_folder(path.parent)
        private_file(path)
        path.write_text("\n".join(lines) + "\n")
        return path


@dataclass(frozen=True, slots=True)
class Launch:
    """How to run a service now. `exports` are FIRN_* variables through which the other services and the rooms
    find this one."""

    command: tuple[str, ...]
    address: str
    folder: Path
    exports: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


def nothing_missing() -> list[Missing]:
    return []


def no_needs(_: StackState) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Service:
    """One service. `probe` takes the address and returns None when the service is ready, else why not (a few
    words)."""

    name: str
    prepare: Callable[[Site], Launch]
    probe: Callable[[str], str | None]
    missing: Callable[[], list[Missing]] = nothing_missing
    needs: Callable[[StackState], tuple[str, ...]] = no_needs
    parts: str = ""
    ports: tuple[str, ...] = ("port",)
    ready_timeout_s: float = 90.0
    grace_s: float = 20.0
    polite: signal.Signals = signal.SIGTERM


def storage_needs(stack: StackState) -> tuple[str, ...]:
    """Who reads the warehouse needs `s3` first where the warehouse is there."""
    return ("s3",) if stack.warehouse.startswith("s3://") else ()


def catalog_needs(stack: StackState) -> tuple[str, ...]:
    """Who talks to the catalog needs ours, unless the stack was given another one."""
    return () if stack.catalog_uri else ("catalog",)


def java_command(need: java.JavaNeed, heap_mb: int) -> tuple[str, ...]:
    """A suitable `java` with the options every service gets. Raises PrerequisiteError."""
    jdk = java.find(need)
    if jdk is None:
        raise PrerequisiteError(
            f"no {need.says} for {need.purpose}; `python -m infra doctor` says what to install"
        )
    quick = ("-XX:TieredStopAtLevel=1",) if InfraSettings.load().quick_java else ()
    return (
        os.fspath(jdk.java),
        f"-Xmx{heap_mb}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dfile.encoding=UTF-8",
        *quick,
    )


@cache
def _probing() -> httpx.Client:
    """Makes the client once: that reads the certificates of all authorities, which takes longer than a probe.
    It keeps no connection, because services come and go."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(timeout=PROBE_TIMEOUT_S, limits=limits, trust_env=False)


def http_status(url: str) -> int | str:
    """The status of a GET, or in a few words why there is none. Proxies of the environment are not used: the
    address is loopback."""
    try:
        return _probing().get(url).status_code
    except httpx.HTTPError as error:
        return type(error).__name__


def ready_page(path: str) -> Callable[[str], str | None]:
    """A probe: GET of a page below the address answers 200."""

    def probe(address: str) -> str | None:
        answer = http_status(f"{address}{path}")
        return None if answer == 200 else f"GET {path}: {answer}"

    return probe


def host_port(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or a URL."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    return parts.hostname or "", parts.port or 0
