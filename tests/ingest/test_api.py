"""The node's own HTTP server beside its engine, and what an engine says of itself when it begins and ends."""

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from typer.testing import CliRunner

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from ingest.cli.program import app
from ingest.node.engines.local import LocalEngine
from ingest.serve.api import serving
from lake import metrics
from lake.errors import PrerequisiteError, SettingsError
from lake.settings import IngestSettings, TopicSettings
from tests.ingest.support.node_world import NodeWorld
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for


def test_the_server_is_gone_when_the_engine_has_ended() -> None:
    """Also when the engine fails: a thread of the server that outlives the interpreter ends the process by a
    segmentation fault."""
    engine = LocalEngine(_settings())
    listener = socket.create_server((LOOPBACK, 0))
    address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"

    def run() -> None:
        with serving(engine, IngestSettings(), listener):
            wait_for(lambda: http.get(f"{address}/readyz").json() == {"ready": False}, 10.0)
            raise RuntimeError("the engine fails")

    with pytest.raises(RuntimeError, match="the engine fails"):
        run()
    assert "api" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(httpx.TransportError):
        http.get(f"{address}/readyz")


def test_a_port_in_use_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does not run without its health and metrics."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.setenv("FIRN_INGEST_TOPICS", '[{"name": "logs"}]')
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        outcome = CliRunner().invoke(app, ["run", "--port", str(port)])
    assert isinstance(outcome.exception, PrerequisiteError)
    message = str(outcome.exception)
    assert f"cannot listen on {LOOPBACK}:{port}: Address already in use" in message
    assert message.endswith("free the port or give another")


def _settings(**topic: Any) -> IngestSettings:
    return IngestSettings(topics=(TopicSettings(name="logs", **topic),)).with_own_topics()


def test_a_wrong_rule_is_told_before_anything_starts() -> None:
    """Not by a worker, after the node has taken the lease."""
    with pytest.raises(SettingsError, match="'heder:tenant' is no rule"):
        LocalEngine(_settings(tenant=("heder:tenant",)))


def test_a_node_that_is_not_active_any_more_measures_nothing(tmp_path: Path) -> None:
    """Another node does; the figures of both together would count twice."""
    engine = LocalEngine(_settings())
    with ThreadPoolExecutor(1) as pool:
        engine._node = NodeWorld(tmp_path, pool).node
    assert engine.status()["parked"] == []
    metrics.LAG_RECORDS.labels("logs", "0").set(7)
    metrics.TABLES_PARKED.labels("storage").set(7)
    held = (metrics.BUFFERED_BYTES, metrics.BUFFERED_TABLES, metrics.TABLES_FAILING, metrics.TABLES_POSTPONED)
    for gauge in held:
        gauge.set(7)
    engine._end_workers()
    told = {
        sample.name: sample.value for gauge in held for family in gauge.collect() for sample in family.samples
    }
    assert set(told.values()) == {0}
    assert REGISTRY.get_sample_value("firn_ingest_lag_records", {"topic": "logs", "partition": "0"}) is None
    assert REGISTRY.get_sample_value("firn_ingest_tables_parked", {"reason": "storage"}) is None
    assert "parked" not in engine.status()


HANGS = """
import os, signal
from ingest.node.engines.local import LocalEngine
from lake.settings import IngestSettings, TopicSettings
engine = LocalEngine(IngestSettings(topics=(TopicSettings(name="logs"),), shutdown_s=0.2))
signal.signal(signal.SIGTERM, engine._stop)
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""


@pytest.mark.long
def test_a_last_flush_that_takes_too_long_is_given_up_with_a_sentence() -> None:
    """The process ends, says why, and what becomes of the records."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], cwd=REPOSITORY, capture_output=True, text=True, timeout=50, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "ingest.not_flushed" in told
    assert "is read again after the next start; raise shutdown_s if this repeats" in told


WAITS_FOR_THE_CATALOG = """
import os, signal, sys
from ingest.node.engines.local import LocalEngine
from lake.catalog_client import CatalogClient
from lake.errors import UnavailableError
from lake.settings import IngestSettings, TopicSettings

def away(catalog):
    if engine._stopping.is_set():
        sys.stderr.write("asked again\\n")
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    raise UnavailableError("the catalog is away")

CatalogClient.warehouse = property(away)
engine = LocalEngine(IngestSettings(topics=(TopicSettings(name="logs"),), shutdown_s=30.0))
engine.run()
"""


@pytest.mark.long
def test_a_node_that_waits_for_the_catalog_can_be_stopped() -> None:
    """It has nothing to flush: it leaves without asking again, and says nothing of records."""
    done = subprocess.run(
        [sys.executable, "-c", WAITS_FOR_THE_CATALOG],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "ingest.stopping" in told
    assert "ingest.not_flushed" not in told
    assert "asked again" not in told
