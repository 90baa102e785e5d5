"""The same searches on both engines and in plain Python give the same rows."""

import os
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from query.language.search_language import parse_search
from query.language.search_sql import compile_search
from query.search.search import select_rows
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.one_file import one_file, schema
from tests.query.support.reference import START, TYPES, matches, random_query, records
from tests.stack.support.line import Sql

ROWS = 400
# The long proof takes 300.
QUERIES = int(os.environ.get("FIRN_SEARCH_QUERIES", "6"))


def queries(count: int, seed: int) -> list[str]:
    random_ = random.Random(seed)
    return [random_query(random_) for _ in range(count)]


def expected(query: str, rows: Sequence[dict[str, Any]], *, everywhere: bool = False) -> list[int]:
    node = parse_search(query)
    return [at for at, row in enumerate(rows) if matches(node, row, everywhere=everywhere)]


@pytest.mark.parametrize("everywhere", [False, True])
def test_the_embedded_engine_finds_what_a_filter_in_python_finds(tmp_path: Path, *, everywhere: bool) -> None:
    """Generated queries over records with nulls, quotes, unicode and numbers as text."""
    table = one_file(tmp_path, ROWS, 1)
    found_some = 0
    for query in queries(QUERIES, 2):
        condition = compile_search(parse_search(query), schema(), everywhere=everywhere).condition
        found = table.run(select_rows(["_offset"], condition, None, newest_first=True))
        offsets = sorted(row[0] for row in found)
        assert offsets == expected(query, table.rows, everywhere=everywhere), query
        found_some += 0 < len(offsets) < ROWS
    assert found_some > QUERIES // 2


@pytest.mark.stack
def test_both_engines_give_the_same_rows(api: httpx.Client, catalog_client: CatalogClient) -> None:
    """The same queries through the API, on DuckDB and on Trino."""
    table = LogTable(catalog_client, fresh_tenant("engines"), types=TYPES)
    rows = table.append(records(ROWS, 3))
    body = {
        "tenant": table.tenant,
        "from": START.isoformat(),
        "to": (START + timedelta(hours=3)).isoformat(),
        "limit": 1_000,
    }
    for query in queries(QUERIES, 4):
        for engine in ("duckdb", "trino"):
            answer = api.post("/v1/search", json={**body, "query": query, "engine": engine})
            assert answer.status_code == 200, (query, answer.text)
            assert sorted(row["coordinates"]["offset"] for row in answer.json()["rows"]) == expected(
                query, rows
            ), (query, engine)


@pytest.mark.stack
def test_trino_looks_everywhere_as_an_erasure_does(catalog_client: CatalogClient, trino: Sql) -> None:
    """Words without a field are found in the values of `_errors` and in JSON too, and the same rows as in
    plain Python."""
    table = LogTable(catalog_client, fresh_tenant("everywhere"), types=TYPES)
    rows = table.append(records(ROWS, 5))
    namespace, name = table.name
    wanted = [
        query
        for query in queries(10 * QUERIES, 6)
        if expected(query, rows, everywhere=True) != expected(query, rows)
    ][: QUERIES // 2]
    assert len(wanted) > QUERIES // 5
    for query in wanted:
        condition = compile_search(parse_search(query), schema(), everywhere=True).condition
        assert condition is not None
        found = trino(f'SELECT _offset FROM "{namespace}"."{name}" WHERE {condition.sql("trino")}')
        assert sorted(row[0] for row in found) == expected(query, rows, everywhere=True), query


@pytest.mark.stack
def test_both_engines_pass_over_deleted_rows(api: httpx.Client, catalog_client: CatalogClient) -> None:
    """Random rows of files are deleted by position, twice; searches, counts over time and the choice of the
    engine."""
    random_ = random.Random(7)
    table = LogTable(catalog_client, fresh_tenant("deleted"), types=TYPES)
    rows = table.append(records(ROWS, 8), rows_per_file=60)
    gone: set[int] = set()
    for _ in range(2):
        dead = {}
        for file in random_.sample(table.files(), 3):
            path = file.uri.removeprefix("file://")
            offsets = pq.read_table(path, columns=["_offset"])["_offset"].to_pylist()
            dead[file.uri] = random_.sample(range(file.rows), file.rows // 3)
            gone |= {offsets[at] for at in dead[file.uri]}
        table.change(dead)
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=3)).isoformat()}
    body: dict[str, Any] = {"tenant": table.tenant, **times}
    for query in ["", *queries(QUERIES // 2, 9)]:
        alive = [at for at in expected(query, rows) if at not in gone]
        for engine in ("duckdb", "trino"):
            asked = {**body, "query": query, "engine": engine}
            answer = api.post("/v1/search", json={**asked, "limit": 1_000})
            assert answer.status_code == 200, (query, answer.text)
            found = sorted(row["coordinates"]["offset"] for row in answer.json()["rows"])
            assert found == alive, (query, engine)
            assert api.post("/v1/histogram", json=asked).json()["rows"] == len(alive), (query, engine)
