"""`python -m <room> serve` as child processes with settings of their own, and their command lines."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx

from infra.local.ports import LOOPBACK, reserve_free
from tests.environment import without_settings
from tests.stack.support.forked import RoomProcess, run_room, start_room
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

READY_S = 60.0
VERB_S = 120.0
STOP_S = 30.0
END_BYTES = 4_000


class Child:
    """One server on a port of its own; `start` again after `kill` keeps the port."""

    def __init__(
        self,
        room: str,
        folder: Path,
        environment: Mapping[str, str],
        *arguments: str,
        ready_path: str = "/readyz",
        port: int = 0,
    ) -> None:
        self.log_file = folder / f"{room}.log"
        self.port = port or reserve_free()
        self._room, self._arguments, self._ready_path = room, arguments, ready_path
        self._environment = child_environment(environment)
        self._process: RoomProcess | None = None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> "Child":
        """Starts it and returns when it is ready."""
        arguments = ("serve", "--port", str(self.port), *self._arguments)
        process = self._process = start_room(
            self._room, *arguments, environment=self._environment, log=self.log_file
        )

        def ready() -> bool:
            assert process.poll() is None, (
                f"{self._room} ended with {process.returncode}:\n{self.log()[-END_BYTES:]}"
            )
            try:
                return http.get(f"{self.address}{self._ready_path}", timeout=5.0).is_success
            except httpx.HTTPError:
                return False

        wait_for(ready, READY_S, f"{self._room} being ready")
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child: nothing of a stack that happens to be configured on this machine."""
    inherited = without_settings()
    return {**inherited, **environment, "FIRN_CONFIG": ""}


def run(room: str, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A verb of a room, run to its end."""
    return run_room(room, *arguments, environment=child_environment(environment), timeout_s=VERB_S)
