"""`python -m ingest run` as a child process that tests start, watch, stop and kill."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson

from infra.local.ports import LOOPBACK, reserve_free
from lake.kafka_access_list import Grant
from tests.environment import without_settings
from tests.stack.support.forked import RoomProcess, start_room
from tests.stack.support.plain_http import http
from tests.stack.support.secured_kafka import needed
from tests.stack.support.waiting import wait_for

READY_S = 120.0  # the engine on Spark starts a JVM
STOP_S = 60.0
LOG_END_BYTES = 4_000


class Ingester:
    """One ingester with its own consumer group, dead-letter topic and port. `start` again after `kill` or
    `stop` takes the same ones."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        topics: Sequence[Mapping[str, Any]],
        settings: Mapping[str, str],
    ) -> None:
        self.folder = folder
        self.log_file = folder / "ingest.log"
        self.group = settings["kafka__group"]
        self.dead_letter_topic = settings["internal_topics__dead_letters"]
        self.parked_topic = settings["internal_topics__parked"]
        own = {f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()}
        inherited = without_settings()
        # A settings file that happens to lie in the working directory must not change what is tested.
        self._environment = {**inherited, **environment, **own, "FIRN_CONFIG": "", "PYTHONUNBUFFERED": "1"}
        self._environment["FIRN_INGEST_TOPICS"] = orjson.dumps(list(topics)).decode()
        self._process: RoomProcess | None = None
        self.port = 0

    def grants(self) -> list[Grant]:
        """What its user needs in Kafka."""
        return needed(self._environment)

    def start(self, *, ready: bool = True, environment: Mapping[str, str] | None = None) -> "Ingester":
        """Starts the process, with more variables where given; with `ready` returns when it reads its
        topics."""
        assert not self.alive, "the ingester runs already"
        self.port = reserve_free()
        variables = {**self._environment, **(environment or {}), "FIRN_INGEST_NODE__PORT": str(self.port)}
        self._process = start_room("ingest", "run", environment=variables, log=self.log_file)
        if ready:
            self.wait_until(self.is_ready, READY_S, "being ready")
        return self

    def restart_with(self, **settings: str) -> "Ingester":
        """Starts again with other settings (names as in the settings class)."""
        self.set(**settings)
        return self.start()

    def set(self, **settings: str) -> None:
        """Other settings, from the next start on."""
        self._environment |= {f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the process, for the verbs of the same settings."""
        return dict(self._environment)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def is_ready(self) -> bool:
        try:
            return http.get(f"{self.address}/readyz", timeout=2.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def status(self) -> dict[str, Any]:
        return dict(http.get(f"{self.address}/v1/status", timeout=10.0).json())

    def parked(self, *tables: object) -> dict[str, str] | None:
        """Tables the node has parked, each with the reason; None while it does not answer, or waits for
        another node's lease and knows of none. `tables`: of these alone, since a test that was here before
        may have left one parked."""
        try:
            status = self.status()
        except httpx.HTTPError:
            return None
        if status["role"] != "active":
            return None
        found = {entry["table"]: entry["reason"] for entry in status["parked"]}
        names = set(map(str, tables)) or set(found)
        return {table: reason for table, reason in found.items() if table in names}

    def has_parked(self, table: str, reason: str = "") -> bool:
        """Whether it has parked a table (for this reason, where one is given)."""
        found = (self.parked() or {}).get(table)
        return found is not None and found == (reason or found)

    def takes_rows(self, table: str) -> bool:
        """Whether it is known not to have parked a table."""
        parked = self.parked()
        return parked is not None and table not in parked

    def metrics(self) -> str:
        return http.get(f"{self.address}/metrics", timeout=10.0).text

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def wait_until(self, condition: Callable[[], Any], timeout_s: float = 60.0, what: str = "") -> Any:
        """Polls until the condition holds; fails with the end of the log when it does not in time or when the
        ingester ends before."""

        def holds() -> Any:
            assert self.alive, (
                f"the ingester ended with code {self.returncode} before "
                f"{what or 'the condition'}:\n{self.log()[-LOG_END_BYTES:]}"
            )
            return condition()

        try:
            return wait_for(holds, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\nend of the ingester's log:\n{self.log()[-LOG_END_BYTES:]}"
            ) from error

    def wait_ended(self, timeout_s: float = STOP_S) -> int:
        """Waits until the process ends by itself and returns its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """SIGTERM: it flushes, commits and leaves. Returns its exit code."""
        if self._process is None:
            return 0
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
