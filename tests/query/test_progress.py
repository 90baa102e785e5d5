"""An answer in lines: how far a search is while it runs, its first rows, and that it ends with its caller."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.storage import local_path
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child
from tests.query.support.slow_search import (
    ENDLESS,
    HOURS,
    PATTERNS,
    RANGE,
    RARE,
    SOME_WORDS,
    fresh_mark,
    slow_query,
    slow_table,
)
from tests.stack.support.line import Sql
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
LINES = {"Accept": "application/x-ndjson"}
ENGINES = ("duckdb", "trino")
# A page on Trino is some statements over the same files as a histogram's one.
PAGE_ENGINES = ("duckdb", pytest.param("trino", marks=pytest.mark.prove))


@pytest.fixture(scope="module")
def table(catalog_client: CatalogClient) -> LogTable:
    """Searches of it end soon."""
    return slow_table(catalog_client, SOME_WORDS)


@pytest.fixture(scope="module")
def long_table(catalog_client: CatalogClient) -> LogTable:
    return slow_table(catalog_client)


@pytest.fixture(scope="module")
def api(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """An API with much time, where each tenant has one turn and nobody waits for one."""
    folder = tmp_path_factory.mktemp("patient")
    settings = {
        **stack.environment(),
        "FIRN_QUERY_SEARCH__CONCURRENT_PER_TENANT": "1",
        "FIRN_QUERY_SEARCH__QUEUE_TIMEOUT_S": "0.01",
        "FIRN_QUERY_SEARCH__TIMEOUT_S": "600",
        "FIRN_QUERY_STATE": str(folder),
    }
    child = Child("query", folder, settings).start()
    with httpx.Client(base_url=child.address, timeout=300.0, trust_env=False) as client:
        yield client
    child.kill()


def told(api: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """All lines of an answer."""
    with api.stream("POST", f"/v1/{path}", json=body, headers=LINES) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [orjson.loads(line) for line in answer.iter_lines()]


def check_progress(lines: list[dict[str, Any]], planned: dict[str, Any]) -> None:
    """Figures never fall, never exceed what is planned, and begin while everything is left."""
    figures = [line["progress"] for line in lines if "progress" in line]
    assert len(figures) >= 2
    assert {(each["files_planned"], each["bytes_planned"]) for each in figures} == {
        (planned["files"], planned["bytes"])
    }
    for name in ("files", "bytes"):
        done = [each[name] for each in figures]
        assert done == sorted(done)
        assert done[-1] <= planned[name]
    assert figures[0]["bytes"] < planned["bytes"]


@pytest.mark.parametrize("engine", PAGE_ENGINES)
def test_a_page_tells_its_progress_and_its_rows_as_they_come(
    api: httpx.Client, table: LogTable, engine: str
) -> None:
    """The newest rows come while most files are still to be read; the last line is the page that everybody
    else gets."""
    body = {
        "tenant": table.tenant,
        "query": slow_query(PATTERNS[engine]),
        "engine": engine,
        "limit": HOURS + 1,
        **RANGE,
    }
    *lines, last = told(api, "search", body)
    answer = last["answer"]
    check_progress(lines, answer["planned"])
    parts = [line for line in lines if "rows" in line]
    assert parts[0]["at"] == 0
    assert [part["at"] for part in parts[1:]] == [part["at"] + len(part["rows"]) for part in parts[:-1]]
    rows = [row for part in parts for row in part["rows"]]
    assert rows == answer["rows"]
    assert len(rows) == HOURS
    at = lines.index(parts[0])
    assert any(line["progress"]["files"] < HOURS for line in lines[at:] if "progress" in line)
    plain = api.post("/v1/search", json=body).json()
    for name in ("rows", "next", "pin", "planned", "scanned", "complete", "reasons", "engine"):
        assert (name, answer[name]) == (name, plain[name])


@pytest.mark.parametrize("engine", PAGE_ENGINES)
def test_a_histogram_tells_its_progress(api: httpx.Client, table: LogTable, engine: str) -> None:
    """It is one statement over all files; how far that is the engines say."""
    body = {
        "tenant": table.tenant,
        "query": slow_query(PATTERNS[engine]),
        "engine": engine,
        "by": "level",
        **RANGE,
    }
    *lines, last = told(api, "histogram", body)
    check_progress(lines, last["answer"]["planned"])
    plain = api.post("/v1/histogram", json=body).json()
    assert plain["rows"] == HOURS
    for name in ("rows", "buckets", "planned", "pin"):
        assert (name, last["answer"][name]) == (name, plain[name])


def quickly_told(api: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The one line of a search: where the machine has much else to do an answer may take long enough to tell
    of itself meanwhile, and is asked for once more."""

    def lines() -> list[dict[str, Any]]:
        found = told(api, "search", body)
        return found if len(found) == 1 else []

    return wait_for(lines, 60.0, "a quick answer")[0]


def test_what_is_quickly_answered_is_one_line(api: httpx.Client, table: LogTable) -> None:
    """Also a page that is not the first."""
    body = {"tenant": table.tenant, "limit": 2, **RANGE}
    only = quickly_told(api, body)
    more = quickly_told(api, {**body, "cursor": only["answer"]["next"]})
    both = api.post("/v1/search", json={**body, "limit": 4}).json()["rows"]
    assert only["answer"]["rows"] + more["answer"]["rows"] == both


def test_what_is_wrong_with_the_question_is_an_errors_answer(api: httpx.Client, table: LogTable) -> None:
    """Its status and sentence are those of an answer in one piece."""
    for body, status in (
        ({"query": "a:("}, 400),
        ({"stream": "nowhere"}, 404),
        ({"limit": 10_000, "cursor": "x"}, 400),
    ):
        question = {"tenant": table.tenant, **RANGE, **body}
        plain, lines = (api.post("/v1/search", json=question, headers=headers) for headers in ({}, LINES))
        assert (lines.status_code, lines.json()) == (plain.status_code, plain.json())
        assert lines.status_code == status


def test_what_goes_wrong_later_is_the_last_line(api: httpx.Client, catalog_client: CatalogClient) -> None:
    """Files are lost while the search runs: it begins anew once, and then says what is wrong."""
    table = slow_table(catalog_client, SOME_WORDS)
    oldest = min(table.files(), key=lambda file: file.uri)
    lines: list[dict[str, Any]] = []
    body = {
        "tenant": table.tenant,
        "query": slow_query(PATTERNS["duckdb"]),
        "engine": "duckdb",
        "limit": 100,
        **RANGE,
    }
    with api.stream("POST", "/v1/search", json=body, headers=LINES) as answer:
        for line in answer.iter_lines():
            lines.append(orjson.loads(line))
            local_path(oldest.uri).unlink(missing_ok=True)
    assert lines[-1]["status"] == 404
    assert "is gone" in lines[-1]["error"]["message"]
    assert [line["at"] for line in lines if "rows" in line].count(0) == 2


@pytest.mark.parametrize("path", ["search", "histogram"])
@pytest.mark.parametrize("engine", ENGINES)
def test_who_closes_the_connection_ends_the_engine(
    api: httpx.Client, long_table: LogTable, trino: Sql, engine: str, path: str
) -> None:
    """A search of minutes holds its tenant's only turn; when its caller has left the turn is free, which it
    is only once the engine has ended, and Trino calls the statement failed."""
    mark = fresh_mark()
    body = {"tenant": long_table.tenant, "query": slow_query(ENDLESS, mark), "engine": engine, **RANGE}

    def other() -> int:
        question = {"tenant": long_table.tenant, "query": RARE, "limit": 1, "engine": "duckdb", **RANGE}
        return api.post("/v1/search", json=question).status_code

    def states() -> set[str]:
        found = trino(
            f"SELECT state FROM system.runtime.queries WHERE query LIKE '%{mark}%' AND source = 'firn-query'"
        )
        return {row[0] for row in found}

    with api.stream("POST", f"/v1/{path}", json=body, headers=LINES) as answer:
        lines = answer.iter_lines()  # kept: the connection ends with it
        assert "progress" in next(lines)
        if engine == "trino":
            wait_for(lambda: "RUNNING" in states(), 30.0, "the statement's start")
        assert other() == 429
    wait_for(lambda: other() == 200, 6.0, "the turn being free")
    if engine == "trino":
        # Of a page, those of the newest files may have finished before.
        wait_for(lambda: "FAILED" in states() <= {"FINISHED", "FAILED"}, 10.0, "its end")
