"""`explain` on real tables: each reason by its cause."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import orjson
import pytest

from lake.catalog_client import CatalogClient
from lake.data_file import EQUALITY_DELETES
from lake.storage import open_storage
from optimize.explain import explain_table
from optimize.maintenance import Maintenance
from optimize.table_view import load_view
from tests.optimize.support.delete_files import add_delete_file
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.optimize.test_rounds import Damaging
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


def new_table(catalog: CatalogClient, hours_ago: int = 3) -> SmallFiles:
    table = SmallFiles(catalog, open_storage(), fresh("x"))
    table.append(this_hour() - hours_ago, 10, times=4)
    return table


def reason(m: Maintenance, table: SmallFiles) -> str:
    """The first line: the verdict."""
    return lines(m, table)[0].removeprefix(f"{table.name}: ")


def lines(m: Maintenance, table: SmallFiles) -> list[str]:
    view = load_view(table.catalog, table.storage, table.name)
    assert view is not None
    return list(explain_table(m, view))


TOKEN = "of the ingesters"


@pytest.fixture
def lagging() -> Iterator[str]:
    """The address of an ingester that is a million records behind, and says so to those who have its
    token."""

    class Status(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = orjson.dumps({"lag_records": 1_000_000, "partitions": []})
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            self.send_response(401 if not allowed else 200 if self.path == "/v1/status" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Status)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_never_optimized_then_up_to_date(catalog: CatalogClient) -> None:
    """A table that nobody merged yet says so, with what a query would gain; after its first round it is up to
    date and says when it was merged."""
    table = new_table(catalog)
    said = lines(maintenance(catalog), table)
    assert "never optimized" in said[0]
    assert "opens 4 files; after the merge 1" in said[-1]
    maintenance(catalog, [table.name]).run()
    said = lines(maintenance(catalog), table)
    assert said[0].endswith("up to date")
    assert any("merged last at" in line for line in said)


def test_open_hour(catalog: CatalogClient) -> None:
    """A table whose only data is of this hour waits for the hour to close, and says when."""
    assert reason(maintenance(catalog), new_table(catalog, hours_ago=0)).startswith("open hour")


def test_lag(catalog: CatalogClient, lagging: str) -> None:
    """While ingestion lags, a table with work says by how much."""
    assert "lag: ingestion lags by 1,000,000 records" in reason(
        maintenance(catalog, lag__ingest_uris=[lagging], lag__ingest_token=TOKEN), new_table(catalog)
    )


def test_waiting_its_turn_because_of_the_budget_or_the_lag(catalog: CatalogClient, lagging: str) -> None:
    """Of two tenants' tables a tiny round does one; the other waits its turn. While ingestion lags the floor
    still gets one done."""
    for settings in (
        {"merge__round_cost_s_max": 0.001},
        {"merge__round_cost_s_max": 0.001, "lag__ingest_uris": [lagging], "lag__ingest_token": TOKEN},
    ):
        tables = [new_table(catalog), new_table(catalog)]
        report = maintenance(catalog, [t.name for t in tables], **settings).run()
        assert report.merged_tables == 1
        (waits,) = [t for t in tables if str(t.name) in report.waiting]
        assert reason(maintenance(catalog), waits).startswith("waiting its turn")


def test_paused_after_failures(catalog: CatalogClient) -> None:
    """A table whose merge was refused says until when it pauses, why, and what ends the pause; ending it
    makes it due."""
    table = new_table(catalog)
    maintenance(catalog, [table.name], storage=Damaging()).run()
    m = maintenance(catalog)
    said = reason(m, table)
    assert said.startswith("paused after 1 failure")
    assert "should have" in said
    assert "resume" in said
    m.states.forget(table.name)
    assert "never optimized" in reason(m, table)


def test_foreign_writer_with_equality_deletes(catalog: CatalogClient) -> None:
    """An hour that a foreign writer put equality deletes on is not merged before they are turned into
    positions; where they name no column, that is the reason."""
    table = new_table(catalog)
    add_delete_file(table, this_hour() - 3, EQUALITY_DELETES)
    assert reason(maintenance(catalog), table).startswith("1 equality deletes of another engine")
    report = maintenance(catalog, [table.name]).run()
    assert report.merged_tables == 0
    assert "equality deletes by no column" in report.failures[str(table.name)]
