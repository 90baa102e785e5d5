"""A coordinator that takes its time to say by which name it knows a statement, spoken to by its protocol."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lake.settings import QuerySettings
from query.executors.trino import TrinoExecutor
from query.model.cancellation import CancelledError, Run
from tests.query.support.json_answers import JsonAnswers
from tests.stack.support.waiting import wait_for

PATIENCE_S = 30.0


class Coordinator(ThreadingHTTPServer):
    """One statement: `asked` when it was sent, answered from `may_answer` on, runs until it is `ended`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Statements)
        self.asked, self.may_answer, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.stats: dict[str, Any] = {"state": "RUNNING"}


class Statements(JsonAnswers, BaseHTTPRequestHandler):
    server: Coordinator

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self.server.may_answer.wait(PATIENCE_S)
        self._answer()

    def do_GET(self) -> None:
        self.server.ended.wait(0.05)
        self._answer()

    def do_DELETE(self) -> None:
        self.server.ended.set()
        self.send_response(204)
        self.end_headers()

    def _answer(self) -> None:
        document: dict[str, Any] = {"id": "q1", "infoUri": "", "stats": self.server.stats}
        if not self.server.ended.is_set():
            document["nextUri"] = f"http://127.0.0.1:{self.server.server_port}/v1/statement/q1/1"
        self.answer(document)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with Coordinator() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def ask(coordinator: Coordinator, run: Run) -> list[tuple[Any, ...]]:
    """The rows that the executor gets."""
    executor = TrinoExecutor(QuerySettings.load(trino__uri=f"http://127.0.0.1:{coordinator.server_port}"))
    return executor.statement("SELECT 7", run, user="tester", rows_max=10, bytes_max=1_000).rows


def _is_at(run: Run, share: float) -> bool:
    return run.share_done == share


def test_a_statement_that_is_just_being_sent_is_ended_as_well(
    coordinator: Coordinator, pool: ThreadPoolExecutor
) -> None:
    """Who leaves before Trino has named the statement leaves nothing running."""
    run = Run(PATIENCE_S)
    asked = pool.submit(ask, coordinator, run)
    assert coordinator.asked.wait(PATIENCE_S)
    left = pool.submit(run.cancel)
    coordinator.may_answer.set()
    with pytest.raises(CancelledError):
        asked.result(PATIENCE_S)
    left.result(PATIENCE_S)
    assert coordinator.ended.is_set()


def test_a_statement_tells_how_much_of_it_is_done(coordinator: Coordinator, pool: ThreadPoolExecutor) -> None:
    """Nothing before Trino knows how much there is, and nothing once it has ended."""
    coordinator.may_answer.set()
    run = Run(PATIENCE_S)
    asked = pool.submit(ask, coordinator, run)
    assert coordinator.asked.wait(PATIENCE_S)
    assert run.share_done == 0.0
    for percent in (25.0, 75.0):
        coordinator.stats = {"state": "RUNNING", "progressPercentage": percent}
        wait_for(partial(_is_at, run, percent / 100), PATIENCE_S, "the share")
    coordinator.ended.set()
    assert asked.result(PATIENCE_S) == []
    assert run.share_done == 0.0
