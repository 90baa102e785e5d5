"""Searches over files with token filters, through the API on the real catalog and both engines."""

import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.settings import QuerySettings
from lake.storage import local_path, open_storage
from optimize.merge_job import FileLayout
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.files.pack_folder import PackFolder
from query.files.token_filters import TokenFilters
from query.model.cancellation import Run
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.test_erasure import finished
from tests.stack.support.shared_services import lend_trino

pytestmark = pytest.mark.stack

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
HOURS, ROWS_OF_HOUR, GROUP_ROWS = 24, 60, 20
RARE_AT = 17 * ROWS_OF_HOUR + 45
ENGINES = pytest.mark.parametrize("engine", ["duckdb", "trino"])


def made(catalog: CatalogClient, name: str) -> LogTable:
    """A day of an hour's file each, in three row groups; one row has a word that no other has."""
    table = LogTable(catalog, fresh_tenant(name), layout=FileLayout(row_group_rows=GROUP_ROWS))
    table.append(
        [
            {
                "timestamp": START + timedelta(minutes=at),
                "severity": "ERROR" if at % 4 == 0 else "info",
                "message": "the needle is here" if at == RARE_AT else f"request {at} answered",
                "host": f"host-{at // ROWS_OF_HOUR}",
            }
            for at in range(HOURS * ROWS_OF_HOUR)
        ]
    )
    return table


@pytest.fixture(scope="module")
def merged(catalog_client: CatalogClient) -> LogTable:
    return made(catalog_client, "merged")


def ask(api: httpx.Client, path: str, table: LogTable, **body: Any) -> dict[str, Any]:
    """A question about the table's day."""
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=HOURS)).isoformat()}
    response = api.post(f"/v1/{path}", json={"tenant": table.tenant, **times, **body})
    assert response.status_code == 200, response.text
    return dict(response.json())


@ENGINES
def test_a_rare_word_opens_one_row_group(api: httpx.Client, merged: LogTable, engine: str) -> None:
    """Found as without filters, on either engine, in any case, by its field and as part of a phrase."""
    for query in ("needle", "NEEDLE", "message:needle", '"the needle is"', "needle -nowhere"):
        answer = ask(api, "search", merged, query=query, engine=engine)
        assert [row["coordinates"]["offset"] for row in answer["rows"]] == [RARE_AT], query
        assert (answer["planned"]["files"], answer["planned"]["rows"]) == (1, GROUP_ROWS)
        assert answer["skipped"]["files"] == HOURS - 1
        assert answer["filters"] == {
            "files": HOURS,
            "files_left": 1,
            "row_groups": HOURS * ROWS_OF_HOUR // GROUP_ROWS,
            "row_groups_left": 1,
        }


@ENGINES
def test_an_absent_word_opens_nothing(api: httpx.Client, merged: LogTable, engine: str) -> None:
    """Page, histogram, values, explain."""
    for path, more in (("search", {}), ("histogram", {}), ("values", {"field": "host"})):
        answer = ask(api, path, merged, query="nowhere", engine=engine, **more)
        assert answer["scanned"] == {"files": 0, "rows": 0, "bytes": 0}, path
        assert answer["filters"]["files_left"] == answer["planned"]["files"] == 0
        assert answer.get("rows", []) in ([], 0)
        assert answer.get("values", []) == answer.get("buckets", []) == []
    cost = ask(api, "explain", merged, query="nowhere", engine=engine)
    assert (cost["planned"]["files"], cost["filters"]["files"], cost["filters"]["files_left"]) == (
        0,
        HOURS,
        0,
    )


@ENGINES
def test_histograms_and_values_of_a_word_are_those_of_its_rows(
    api: httpx.Client, merged: LogTable, engine: str
) -> None:
    """Files without the word count as zero."""
    counted = ask(api, "histogram", merged, query="host:7", engine=engine, by="level", width_s=3_600)
    at = (START + timedelta(hours=7)).isoformat().replace("+00:00", "Z")
    assert counted["buckets"] == [{"start": at, "rows": 60, "levels": {"error": 15, "info": 45}}]
    assert counted["scanned"]["files"] == 1
    values = ask(api, "values", merged, query="needle", field="host", engine=engine)
    assert values["values"] == [{"value": "host-17", "rows": 1}]


def buckets(api: httpx.Client, table: LogTable, **body: Any) -> list[tuple[str, int]]:
    """Starts and rows of a histogram's buckets."""
    return [(each["start"], each["rows"]) for each in ask(api, "histogram", table, **body)["buckets"]]


def by_hour(rows: dict[int, int]) -> list[tuple[str, int]]:
    return [(f"{START + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}", count) for hour, count in rows.items()]


@ENGINES
def test_a_word_is_counted_in_the_buckets_of_its_rows(
    api: httpx.Client, catalog_client: CatalogClient, merged: LogTable, engine: str
) -> None:
    """Where each file lies in one bucket, where it does not, where a file reaches out of the range, and where
    a column has a name that the engine gives to files."""
    every = dict.fromkeys(range(HOURS), 60) | {RARE_AT // ROWS_OF_HOUR: 59}
    asked = {"query": "request", "engine": engine}
    assert buckets(api, merged, width_s=3_600, **asked) == by_hour(every)
    assert [rows for _, rows in buckets(api, merged, width_s=1_800, **asked)].count(30) == 2 * HOURS - 1
    cut = {
        "from": (START + timedelta(minutes=30)).isoformat(),
        "to": (START + timedelta(minutes=135)).isoformat(),
    }
    assert buckets(api, merged, width_s=3_600, **asked, **cut) == by_hour({0: 30, 1: 60, 2: 15})
    named = LogTable(catalog_client, fresh_tenant("named"), layout=FileLayout(row_group_rows=GROUP_ROWS))
    named.append(
        [
            {"timestamp": START + timedelta(minutes=at), "message": "request", "file_index": f"{at}"}
            for at in range(2 * ROWS_OF_HOUR)
        ]
    )
    assert buckets(api, named, width_s=3_600, **asked) == by_hour({0: 60, 1: 60})


def test_a_histogram_opens_no_file_that_carries_its_counts(
    api: httpx.Client, catalog_client: CatalogClient
) -> None:
    """Asked for the first time, by level and by less than a file's hour."""
    table = made(catalog_client, "counted")
    counted = ask(api, "histogram", table, by="level", width_s=600)
    assert (counted["rows"], counted["rows_counted_from_metadata"]) == (1_440, 1_440)
    assert counted["scanned"]["files"] == 0
    assert counted["buckets"][3]["levels"] == {"error": 2, "info": 8}


def test_the_filters_of_erased_rows_are_gone(
    api: httpx.Client, stack: Stack, catalog_client: CatalogClient
) -> None:
    """No pack names an old file, and the filters of the new ones do not know the word."""
    table = made(catalog_client, "erased")
    before = ask(api, "search", table, query="needle")
    assert len(before["rows"]) == 1
    old = {os.path.basename(file.uri) for file in table.files()}
    (report,) = finished(api, {"tenant": table.tenant, "query": "needle"})["tables"]
    assert (report["rows"], report["rows_left"]) == (1, 0)
    after = ask(api, "search", table, query="needle")
    assert (after["rows"], after["filters"]["files"], after["filters"]["files_left"]) == ([], HOURS, 0)
    (gone,) = old - {os.path.basename(file.uri) for file in table.files()}
    packs = list(stack.folder.rglob("*.pack"))
    assert packs
    assert not any(gone.encode() in pack.read_bytes() for pack in packs)


def test_filters_that_were_left_to_be_read_are_read_before_their_files(
    catalog_client: CatalogClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that begins with few of them opens no more files than one that has them all."""
    monkeypatch.setattr("query.files.token_filters.FIRST_FILES", 5)
    table, storage = made(catalog_client, "later"), open_storage()
    warehouse = catalog_client.warehouse
    assert warehouse is not None
    settings = QuerySettings.load(state=str(tmp_path))
    engine = EmbeddedExecutor(
        settings, lambda uris, _: [str(local_path(uri)) for uri in uris], lambda: [local_path(warehouse)]
    )
    for query, found in (("needle", [RARE_AT]), ("nowhere", [])):
        filters = TokenFilters(storage, PackFolder(tmp_path / query, 1 << 30))
        searcher = Searcher(
            catalog_client, FileIndex(storage), (engine,), settings, UnknownLag(), SystemClock(), filters
        )
        request = SearchRequest(table.id, START, START + timedelta(hours=HOURS), query)
        page = searcher.page(request, Run(60.0), limit=100)
        assert [row["_offset"] for row in page.rows] == found
        assert (page.basis.planned.files, page.basis.scanned.files) == (HOURS - 5, len(found))
        assert (page.basis.filters.files, page.basis.filters.files_left) == (HOURS, len(found))


@pytest.mark.prove
def test_both_engines_find_it_on_s3(services: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Filters are read from there, and Trino knows files by the same names."""
    folder: Path = tmp_path_factory.mktemp("s3-filters")
    with (
        Stack(folder, warehouse="s3://firn-warehouse/filters", tied=True) as stack,
        pytest.MonkeyPatch().context() as patched,
    ):
        stack.start("catalog")
        lend_trino(services, stack)
        stack.start("query")
        for name, value in stack.environment().items():
            patched.setenv(name, value)
        with closing(CatalogClient(stack.address("catalog"))) as catalog, _client(stack) as api:
            table = made(catalog, "on-s3")
            for engine in ("duckdb", "trino"):
                found = ask(api, "search", table, query="needle", engine=engine)
                assert [row["coordinates"]["offset"] for row in found["rows"]] == [RARE_AT]
                assert found["filters"]["files_left"] == 1


def _client(stack: Stack) -> httpx.Client:
    return httpx.Client(base_url=stack.address("query"), timeout=120.0, trust_env=False)
