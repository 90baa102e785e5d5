"""A real Prometheus Alertmanager, which infra/debian.sh brings, and which tells one receiver."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from infra.local.ports import LOOPBACK, reserve_free
from tests.stack.support.waiting import wait_for

READY_S, END_S = 30.0, 20.0
GROUP_WAIT_S = 1


class RealAlertmanager:
    """One on a port of its own; `start` again after `kill` keeps port and data."""

    def __init__(self, folder: Path, receiver_uri: str) -> None:
        self.port = reserve_free()
        self._folder = folder
        self._config = folder / "alertmanager.yaml"
        told = {"url": f"{receiver_uri}/alertmanager", "send_resolved": True}
        grouped = {
            "group_by": ["..."],
            "group_wait": f"{GROUP_WAIT_S}s",
            "group_interval": "1s",
            "repeat_interval": "4h",
        }
        settings = {
            "route": {"receiver": "hook", **grouped},
            "receivers": [{"name": "hook", "webhook_configs": [told]}],
        }
        self._config.write_text(yaml.safe_dump(settings))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> "RealAlertmanager":
        """Starts it and returns when it is ready."""
        program = shutil.which("prometheus-alertmanager")
        assert program is not None, "Alertmanager is missing: `make setup` installs it"
        command = [
            program,
            f"--config.file={self._config}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--cluster.listen-address=",
        ]
        with (self._folder / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._is_ready, READY_S, "Alertmanager being ready")
        return self

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)
            self._process = None

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.uri}/-/ready", timeout=5.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def alerts(self) -> list[dict[str, Any]]:
        """What it has, by its own API."""
        answer = httpx.get(f"{self.uri}/api/v2/alerts", timeout=5.0, trust_env=False)
        return list(answer.raise_for_status().json())


@contextmanager
def alertmanager(folder: Path, receiver_uri: str) -> Iterator[RealAlertmanager]:
    """One that runs."""
    made = RealAlertmanager(folder, receiver_uri)
    try:
        yield made.start()
    finally:
        made.kill()


def told_by(bodies: list[Any]) -> list[tuple[str, str]]:
    """Status and name of each alert in each notification, in order."""
    return [
        (alert["status"], alert["labels"]["alertname"])
        for body in bodies
        if "alerts" in body
        for alert in body["alerts"]
    ]
