"""The node's own HTTP server beside its engine."""

import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from typer.testing import CliRunner

from infra.local.ports import LOOPBACK
from ingest.__main__ import app
from ingest.api import serving
from lake.errors import PrerequisiteError
from lake.settings import IngestSettings
from tests.stack.waiting import wait_for


def test_the_server_is_gone_when_the_engine_has_ended() -> None:
    """Also when the engine fails: a thread of the server that outlives the interpreter ends the process by a segmentation fault."""
    engine = cast(Any, SimpleNamespace(ready=True, status=dict))
    listener = socket.create_server((LOOPBACK, 0))
    address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"

    def run() -> None:
        with serving(engine, IngestSettings(), listener):
            wait_for(lambda: httpx.get(f"{address}/readyz", trust_env=False).json() == {"ready": True}, 10.0)
            raise RuntimeError("the engine fails")

    with pytest.raises(RuntimeError, match="the engine fails"):
        run()
    assert "api" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{address}/readyz", trust_env=False)


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does not run without its health and metrics."""
    monkeypatch.setenv("FIRN_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("FIRN_INGEST_TOPICS", '[{"name": "logs"}]')
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        outcome = CliRunner().invoke(app, ["run", "--port", str(port)])
    assert isinstance(outcome.exception, PrerequisiteError)
    message = str(outcome.exception)
    assert f"cannot listen on {LOOPBACK}:{port}: Address already in use" in message
    assert message.endswith("free the port or give another")
