"""A real Prometheus, of Debian's package, and what it answers."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from infra.local.cache_folders import only_one
from infra.local.ports import LOOPBACK, reserve_free
from lake import native_core
from tests.infra.support.promtool import FOLDER
from tests.stack.support.waiting import wait_for

READY_S, END_S, ANSWER_S = 60.0, 20.0, 10.0
EVERY_S = 5


def program() -> Path:
    """Return Prometheus: the one on PATH, else the one that is taken out of Debian's package into the cache,
    so that no server of the system's is started. Fails where there is neither."""
    if found := shutil.which("prometheus"):
        return Path(found)
    folder = native_core.cache_folder() / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / "lock"):
        if not (folder / "usr/bin/prometheus").exists():
            with tempfile.TemporaryDirectory() as scratch:
                subprocess.run(["apt-get", "--quiet", "download", "prometheus"], cwd=scratch, check=True)
                packages = list(Path(scratch).glob("prometheus_*.deb"))
                if len(packages) != 1:
                    pytest.fail("Prometheus is missing: install Debian's package prometheus")
                subprocess.run(["dpkg-deb", "--extract", packages[0], folder], check=True)
    return folder / "usr/bin/prometheus"


class Prometheus:
    """One that runs."""

    def __init__(self, uri: str) -> None:
        self._client = httpx.Client(base_url=f"{uri}/api/v1", timeout=ANSWER_S)

    def close(self) -> None:
        """Closes the connection to it."""
        self._client.close()

    def _ask(self, path: str, **parameters: str) -> Any:
        return self._client.get(path, params=parameters).raise_for_status().json()["data"]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self._ask("/status/runtimeinfo"))
        except httpx.HTTPError:
            return False

    def jobs_up(self) -> set[str]:
        """Return the jobs all of whose targets answer."""
        return {
            each["labels"]["job"] for each in self._ask("/targets")["activeTargets"] if each["health"] == "up"
        }

    def families(self) -> set[str]:
        """Return the metrics that targets tell of, with or without series."""
        return set(self._ask("/metadata"))

    def alerts(self, state: str) -> dict[str, dict[str, str]]:
        """Return the alerts in a state, `pending` or `firing`, by name, with their labels."""
        found = [each for each in self._ask("/alerts")["alerts"] if each["state"] == state]
        return {each["labels"]["alertname"]: each["labels"] for each in found}

    def every_alert(self) -> set[str]:
        """Return the names of alerts in any state."""
        return {each["labels"]["alertname"] for each in self._ask("/alerts")["alerts"]}

    def value(self, query: str) -> float | None:
        """Return the one value of an expression; None where it has none."""
        found = self._ask("/query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(
    jobs: Mapping[str, str],
    token: Path,
    folder: Path,
    *,
    rules: Path = FOLDER / "rules.yaml",
    every_s: int = EVERY_S,
) -> Iterator[Prometheus]:
    """Have one ask these services (host:port by job) as infra/prometheus says, every so many seconds.
    `token`: the file with that of ingestion."""
    settings = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert {each["job_name"] for each in settings["scrape_configs"]} == set(jobs)
    settings["global"] = {"scrape_interval": f"{every_s}s", "evaluation_interval": f"{every_s}s"}
    settings["rule_files"] = [str(rules)]
    for each in settings["scrape_configs"]:
        each["static_configs"] = [{"targets": [jobs[each["job_name"]]]}]
        if "authorization" in each:
            each["authorization"] = {"credentials_file": str(token)}
    config, port = folder / "prometheus.yaml", reserve_free()
    config.write_text(yaml.safe_dump(settings))
    command = [str(program()), f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={LOOPBACK}:{port}"], stdout=log, stderr=log
        )
    asked = Prometheus(f"http://{LOOPBACK}:{port}")
    try:
        wait_for(asked.is_ready, READY_S, "Prometheus")
        yield asked
    finally:
        asked.close()
        process.terminate()
        process.wait(END_S)
