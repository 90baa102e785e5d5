"""Answers have a bound in bytes as well as in rows: a few rows may be as large as a table."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from query.executors.bounded_session import BoundedSession, TooLargeError
from query.model.answer_size import BATCH_BYTES_MAX, batches_of, row_bytes, rows_within
from tests.query.support.guarded import START
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.processes import Child

pytestmark = pytest.mark.finding(8)
KIB = 1024


def test_rows_end_where_their_bytes_do() -> None:
    """The first row is always given; what follows only while it fits, and no more batches are asked for."""
    asked = []

    def batches() -> Iterator[list[tuple[object, ...]]]:
        for at in range(100):
            asked.append(at)
            yield [("x" * KIB, at)]

    rows, cut = rows_within(10 * KIB, batches())
    assert cut
    assert len(rows) == 9
    assert len(asked) == 10
    assert rows_within(10, iter([[("x" * KIB,)]])) == ([("x" * KIB,)], False)
    assert rows_within(10, iter([[("x" * KIB,), ("y",)]])) == ([("x" * KIB,)], True)


def test_values_inside_of_others_count() -> None:
    """Lists, maps, structures and bytes."""
    for value in (["x" * KIB], {"a": "x" * KIB}, ("x" * KIB,), b"x" * KIB, [[{"a": ["x" * KIB]}]]):
        assert row_bytes((value,)) >= KIB


def test_batches_of_large_rows_are_small() -> None:
    """Exports and streams hold a batch at a time: by rows, or by bytes where these come first."""
    large = [[("x" * 1024 * KIB,)] for _ in range(40)]
    made = list(batches_of(iter(large), 5_000))
    assert [len(batch) for batch in made] == [BATCH_BYTES_MAX // (1024 * KIB)] * 2 + [8]
    assert [len(batch) for batch in batches_of(iter([[(1,)] * 64] * 10), 128)] == [128] * 5


@pytest.mark.long
def test_no_answer_of_trino_is_read_beyond_a_bound() -> None:
    """The client stops reading, whatever the other side goes on sending, and compressed bytes count as what
    they become."""

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 64 * KIB)
            except OSError:
                ended.set()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with (
            BoundedSession(1024 * KIB) as session,
            pytest.raises(TooLargeError, match="more than 1,048,576 bytes"),
        ):
            session.get(f"http://127.0.0.1:{server.server_port}/")
        assert ended.wait(30.0)
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def bounded(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """An API with small bounds, on the shared stack."""
    folder: Path = tmp_path_factory.mktemp("bounded")
    bounds = {
        "FIRN_QUERY_SQL__BYTES_MAX": str(64 * KIB),
        "FIRN_QUERY_SEARCH__PAGE_BYTES_MAX": str(64 * KIB),
        "FIRN_QUERY_STATE": str(folder),
    }
    child = Child("query", folder, {**stack.environment(), **bounds}).start()
    yield child
    child.kill()


@pytest.mark.stack
def test_answers_of_sql_and_pages_end_at_their_bytes(bounded: Child, catalog_client: CatalogClient) -> None:
    """SQL says what is missing; a page goes on behind its `next`, so that every row is reached, on both
    engines; values end."""
    table = LogTable(catalog_client, fresh_tenant("large"))
    table.append(
        [
            {"timestamp": START + timedelta(seconds=at), "message": f"{at:03d} " + "x" * 10 * KIB}
            for at in range(40)
        ]
    )
    with httpx.Client(base_url=bounded.address, timeout=120.0, trust_env=False) as api:
        answer = api.post("/v1/sql", json={"sql": "SELECT message FROM logs", "tenant": table.tenant}).json()
        assert len(answer["rows"]) == 6
        assert not answer["complete"]
        assert "65,536 bytes" in answer["reasons"][0]
        one = api.post(
            "/v1/sql",
            json={"sql": "SELECT array_join(array_agg(message), '') FROM logs", "tenant": table.tenant},
        )
        assert len(one.json()["rows"]) == 1
        huge = api.post(
            "/v1/sql",
            json={
                "sql": "SELECT rpad(a.message, 20000, 'y') FROM logs a, logs b",
                "tenant": table.tenant,
                "limit": 10_000,
            },
        ).json()
        assert len(huge["rows"]) == 3
        assert not huge["complete"]
        body = {
            "tenant": table.tenant,
            "from": START.isoformat(),
            "to": (START + timedelta(hours=1)).isoformat(),
            "limit": 1_000,
        }
        for engine in ("duckdb", "trino"):
            seen, cursor, pages = [], "", 0
            while cursor or not pages:
                page = api.post("/v1/search", json={**body, "engine": engine, "cursor": cursor}).json()
                assert len(page["rows"]) <= 6
                seen += [row["coordinates"]["offset"] for row in page["rows"]]
                cursor, pages = page["next"], pages + 1
            assert seen == list(range(39, -1, -1))
            assert pages == 7
        values = api.post(
            "/v1/values",
            json={**{k: v for k, v in body.items() if k != "limit"}, "field": "message", "limit": 100},
        ).json()
        assert 0 < len(values["values"]) <= 6
        assert "65,536 bytes" in values["reasons"][0]
