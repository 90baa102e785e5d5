"""The metric of how long searches take: which requests are searches, of which kind, by which engine."""

import re
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from prometheus_client import REGISTRY
from starlette.testclient import TestClient

from lake.errors import NotFoundError, UnavailableError
from query.api.observed import observed
from query.model.cancellation import Run
from query.model.limits import BusyError
from query.model.problem import BadRequestError, Problem
from tests.query.support.log_table import LogTable

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
SEARCHES = re.compile(
    r'^firn_query_search_seconds_count\{engine="(\w+)",kind="([\w.]+)"\} (\d+)', re.MULTILINE
)


class Untold:
    """Services that have no audit trail."""

    trail = None


class Searches:
    """A route of searches whose engine, and what goes wrong, a test says."""

    def __init__(self) -> None:
        self.engine, self.has_turn, self.fails = "", True, None
        app = FastAPI()
        app.state.services = Untold()

        @app.post("/v1/search", dependencies=[Depends(observed)])
        def search(request: Request) -> None:
            if self.has_turn:
                request.state.run = run = Run(1.0)
                run.engine = self.engine
            if self.fails is not None:
                raise self.fails

        self._client = TestClient(app)

    engine: str
    has_turn: bool
    fails: Exception | None

    def measured(self, engine: str) -> float:
        """How many more were measured, after one request."""
        before = self._count(engine)
        with nullcontext() if self.fails is None else pytest.raises(type(self.fails)):
            self._client.post("/v1/search")
        return self._count(engine) - before

    def _count(self, engine: str) -> float:
        labels = {"kind": "search", "engine": engine}
        return REGISTRY.get_sample_value("firn_query_search_seconds_count", labels) or 0.0


@pytest.fixture
def searches() -> Searches:
    return Searches()


@pytest.mark.parametrize(("engine", "told"), [("duckdb", "duckdb"), ("trino", "trino"), ("", "none")])
def test_a_search_is_measured_by_the_engine_that_it_asked(searches: Searches, engine: str, told: str) -> None:
    """Also one that asked none, as no file was left."""
    searches.engine = engine
    assert searches.measured(told) == 1


@pytest.mark.parametrize(
    ("error", "measured"),
    [
        (BadRequestError(Problem("no such word")), 0),
        (NotFoundError("no such table"), 0),
        (UnavailableError("the engine failed"), 1),
    ],
)
def test_what_nobody_can_answer_was_no_search(searches: Searches, error: Exception, measured: int) -> None:
    """A search that fails was one."""
    searches.engine, searches.fails = "duckdb", error
    assert searches.measured("duckdb") == measured


def test_what_got_no_turn_was_no_search(searches: Searches) -> None:
    """Or refusals would make the metric look as if searches were fast."""
    searches.has_turn, searches.fails = False, BusyError("too many")
    assert searches.measured("none") == 0


@pytest.mark.stack
def test_the_api_tells_how_long_searches_took(api: httpx.Client, catalog_client: Any) -> None:
    """Of each kind, by engine."""
    table = LogTable(catalog_client, "shop-of-seconds")
    table.append([{"timestamp": START, "message": "hello"}])

    def ask(path: str, **body: Any) -> None:
        times = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
        asked = {"tenant": table.tenant, "stream": table.stream, **times, **body}
        api.post(f"/v1/{path}", json=asked).raise_for_status()

    def told() -> Counter[tuple[str, str]]:
        found = SEARCHES.findall(api.get("/metrics").text)
        return Counter({(kind, engine): int(number) for engine, kind, number in found})

    before = told()
    ask("search")
    ask("search", engine="trino")
    ask("search", **{"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"})
    ask("histogram", query="hello")
    ask("search/stream")
    api.post("/v1/sql", json={"sql": "SELECT count(*) FROM logs", "tenant": table.tenant}).raise_for_status()
    assert told() - before == {
        ("search", "duckdb"): 1,
        ("search", "trino"): 1,
        ("search", "none"): 1,
        ("search.histogram", "duckdb"): 1,
        ("search.stream", "duckdb"): 1,
        ("sql", "trino"): 1,
    }
