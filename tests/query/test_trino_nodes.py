"""A coordinator that has no workers for a moment, spoken to by its protocol."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lake.errors import UnavailableError
from lake.settings import QuerySettings
from query.executors import trino
from query.executors.trino import TrinoExecutor
from query.model.cancellation import Run
from tests.query.support.json_answers import JsonAnswers

NO_NODES = {
    "message": "No nodes available to run query",
    "errorCode": 65539,
    "errorName": "NO_NODES_AVAILABLE",
    "errorType": "INTERNAL_ERROR",
}
COLUMN = {"name": "n", "type": "bigint", "typeSignature": {"rawType": "bigint", "arguments": []}}


class Coordinator(ThreadingHTTPServer):
    """Refuses `refusals` statements for want of workers, then answers with one row."""

    refusals = 0
    asked = 0


class Statements(JsonAnswers, BaseHTTPRequestHandler):
    server: Coordinator

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        document: dict[str, Any] = {
            "id": str(self.server.asked),
            "infoUri": "",
            "stats": {"state": "FINISHED"},
        }
        if self.server.asked <= self.server.refusals:
            document["error"] = NO_NODES
        else:
            document |= {"columns": [COLUMN], "data": [[7]]}
        self.answer(document)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with Coordinator(("127.0.0.1", 0), Statements) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(coordinator: Coordinator) -> list[tuple[Any, ...]]:
    """The rows that the executor gets."""
    executor = TrinoExecutor(QuerySettings.load(trino__uri=f"http://127.0.0.1:{coordinator.server_port}"))
    return executor.statement("SELECT 7", Run(30.0), user="tester", rows_max=10, bytes_max=1_000).rows


@pytest.mark.long
def test_a_statement_waits_for_workers_that_are_about_to_come(coordinator: Coordinator) -> None:
    """Nothing ran, so asking again is harmless."""
    coordinator.refusals = 2
    assert ask(coordinator) == [(7,)]
    assert coordinator.asked == 3


@pytest.mark.long
def test_workers_that_do_not_come_are_an_outage_in_the_end(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Trino's own words."""
    monkeypatch.setattr(trino, "NODES_WITHIN_S", 1.0)
    coordinator.refusals = 1_000
    with pytest.raises(UnavailableError, match="No nodes available"):
        ask(coordinator)
    assert coordinator.asked > 1
