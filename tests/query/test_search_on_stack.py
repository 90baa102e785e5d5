"""Searches through the API on the real catalog and both engines."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.storage import local_path
from tests.query.support.log_table import LogTable, fresh_tenant

pytestmark = pytest.mark.stack

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
ENGINES = pytest.mark.parametrize("engine", ["duckdb", "trino"])


@pytest.fixture(scope="module")
def shop(catalog_client: Any) -> LogTable:
    """Two hours of a shop's logs: a row every ten seconds, every fourth one an error."""
    table = LogTable(catalog_client, "shop-of-search-tests", types={"bytes": "long", "ok": "boolean"})
    table.append(
        [
            {
                "timestamp": START + timedelta(seconds=10 * at, microseconds=at),
                "severity": "ERROR" if at % 4 == 0 else "info",
                "message": f"connection refused by db-{at % 3}"
                if at % 4 == 0
                else f"GET /api/items/{at} answered",
                "status": "500" if at % 4 == 0 else "200",
                "bytes": at * 10,
                "ok": at % 4 != 0,
                "_errors": [{"field": "/took", "value": "fast", "reason": "wrong_type"}] if at == 7 else None,
            }
            for at in range(720)
        ]
    )
    return table


def ask(api: httpx.Client, path: str, table: LogTable, **body: Any) -> dict[str, Any]:
    """A question about the table's two hours, unless it says otherwise."""
    times = {"from": START.isoformat(), "to": (START + timedelta(hours=2)).isoformat()}
    response = api.post(f"/v1/{path}", json={"tenant": table.tenant, "stream": table.stream, **times, **body})
    assert response.status_code == 200, response.text
    return dict(response.json())


@ENGINES
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("", 720),
        ("refused", 180),
        ("REFUSED AND db-1", 60),
        ("status:500 OR message:items", 720),
        ("NOT severity:error", 540),
        ("bytes:[100 TO 200}", 10),
        ("bytes:>=7190", 1),
        ("ok:false -db-0", 120),
        ("message:conn*", 180),
        ("path:*", 0),
        ("_errors:*", 1),
        ("_errors:wrong_type", 1),
        ("timestamp:[2026-03-04T10:00 TO 2026-03-04T10:01]", 12),
    ],
)
def test_words_fields_and_ranges_find_the_right_rows(
    api: httpx.Client, shop: LogTable, engine: str, query: str, rows: int
) -> None:
    """A histogram's sum and the rows of all pages agree with what was written, on both engines."""
    assert ask(api, "histogram", shop, query=query, engine=engine)["rows"] == rows
    assert len(ask(api, "search", shop, query=query, engine=engine, limit=1000)["rows"]) == rows


@ENGINES
def test_pages_go_from_newest_to_oldest_without_gap_or_repetition(
    api: httpx.Client, shop: LogTable, engine: str
) -> None:
    """Following `next` gives every row once, in order."""
    seen: list[tuple[str, int]] = []
    cursor = ""
    while True:
        page = ask(api, "search", shop, query="refused", engine=engine, limit=37, cursor=cursor)
        seen += [(row["timestamp"], row["coordinates"]["offset"]) for row in page["rows"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert [offset for _, offset in seen] == list(range(716, -1, -4))
    assert [
        row["coordinates"]["offset"]
        for row in ask(api, "search", shop, order="oldest", engine=engine, limit=3)["rows"]
    ] == [0, 1, 2]


@ENGINES
def test_time_ranges_are_half_open(api: httpx.Client, shop: LogTable, engine: str) -> None:
    """The row at `from` belongs to the answer, the row at `to` does not, to the microsecond."""
    second = START + timedelta(seconds=10, microseconds=1)
    third = START + timedelta(seconds=20, microseconds=2)
    found = ask(api, "search", shop, engine=engine, **{"from": second.isoformat(), "to": third.isoformat()})
    assert [row["coordinates"]["offset"] for row in found["rows"]] == [1]


def test_an_answer_says_what_it_rests_on(api: httpx.Client, shop: LogTable) -> None:
    """Marks, files and bytes planned and skipped, completeness, freshness, and warnings."""
    answer = ask(api, "search", shop, query="stauts:500", to=(START + timedelta(minutes=30)).isoformat())
    assert answer["warnings"][0]["suggestion"] == "did you mean status?"
    answer = ask(api, "search", shop, to=(START + timedelta(minutes=30)).isoformat())
    assert (answer["planned"]["files"], answer["skipped"]["files"]) == (1, 1)
    assert answer["planned"]["rows"] == 360
    assert answer["scanned"]["bytes"] == answer["planned"]["bytes"] > 0
    assert answer["complete"]
    assert answer["freshness"]["newest_row"] == "2026-03-04T11:59:50.000719Z"
    assert answer["pin"]


def test_a_pinned_link_shows_the_same_rows_after_more_were_written(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """Rows that came later are not among those of a pin, though they lie in its time range."""
    table = log_table()
    table.append([{"timestamp": START + timedelta(seconds=at), "message": f"early {at}"} for at in range(50)])
    pin = ask(api, "histogram", table)["pin"]
    table.append([{"timestamp": START + timedelta(seconds=at), "message": f"late {at}"} for at in range(20)])
    assert ask(api, "histogram", table)["rows"] == 70
    for engine in ("duckdb", "trino"):
        pinned = ask(api, "search", table, pin=pin, limit=1000, engine=engine)
        assert pinned["pinned"]
        assert {row["message"].split()[0] for row in pinned["rows"]} == {"early"}
        assert len(pinned["rows"]) == 50


def test_the_whole_histogram_of_whole_hours_is_counted_without_opening_a_file(
    api: httpx.Client, shop: LogTable
) -> None:
    """Without a filter the counts of the manifests are enough."""
    answer = ask(api, "histogram", shop, width_s=3600)
    assert [(bucket["start"], bucket["rows"]) for bucket in answer["buckets"]] == [
        ("2026-03-04T10:00:00Z", 360),
        ("2026-03-04T11:00:00Z", 360),
    ]
    assert answer["rows_counted_from_metadata"] == 720
    assert answer["scanned"]["files"] == 0


@ENGINES
def test_a_histogram_splits_its_buckets_by_level(api: httpx.Client, shop: LogTable, engine: str) -> None:
    """Severities as records spell them are sorted into levels."""
    answer = ask(api, "histogram", shop, by="level", engine=engine, query="NOT nothing")
    levels: dict[str, int] = {}
    for bucket in answer["buckets"]:
        for level, rows in bucket["levels"].items():
            levels[level] = levels.get(level, 0) + rows
    assert levels == {"error": 180, "info": 540}


def test_a_row_is_found_by_its_coordinates(api: httpx.Client, shop: LogTable) -> None:
    """The row that a search gave is given again, with every field; wrong coordinates are 404 and a
    sentence."""
    row = ask(api, "search", shop, query="_errors:*")["rows"][0]
    where = {
        "tenant": shop.tenant,
        "timestamp": row["timestamp"],
        **{name: row["coordinates"][name] for name in ("topic_id", "partition", "offset", "index")},
    }
    assert api.get("/v1/row", params=where).json() == row
    assert row["errors"] == [{"field": "/took", "value": "fast", "reason": "wrong_type"}]
    gone = api.get("/v1/row", params={**where, "offset": 10**9})
    assert gone.status_code == 404
    assert "no row" in gone.json()["error"]["message"]


def test_tenants_show_rows_files_and_freshness(api: httpx.Client, shop: LogTable) -> None:
    """The list of tenants, and the streams of one."""
    tenants = {
        tenant["tenant"]: tenant
        for tenant in api.get("/v1/tenants", params={"limit": 1000}).json()["tenants"]
    }
    assert (tenants[shop.tenant]["rows"], tenants[shop.tenant]["files"]) == (720, 2)
    streams = api.get("/v1/streams", params={"tenant": shop.tenant}).json()["streams"]
    assert [(s["stream"], s["rows"], s["newest_row"]) for s in streams] == [
        ("logs", 720, "2026-03-04T11:59:50.000719Z")
    ]


def test_a_table_that_cannot_be_read_does_not_hide_its_neighbours(
    api: httpx.Client, catalog_client: CatalogClient, shop: LogTable
) -> None:
    """Somebody else's table in a tenant's namespace is left out; a table whose metadata file is gone is
    listed with what is wrong."""
    broken = LogTable(catalog_client, fresh_tenant("broken"))
    broken.append([{"timestamp": datetime(2026, 3, 4, tzinfo=UTC), "message": "a row"}])
    schema = {"type": "struct", "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}
    catalog_client.post(
        f"/v1/namespaces/{broken.name.namespace}/tables", {"name": "theirs", "schema": schema}
    )
    file = local_path(catalog_client.load_table(broken.name)["metadata-location"])
    aside = file.rename(file.with_suffix(".aside"))
    try:
        tenants = {
            tenant["tenant"]: tenant
            for tenant in api.get("/v1/tenants", params={"limit": 1000}).json()["tenants"]
        }
        assert tenants[shop.tenant]["rows"] == 720
        (stream,) = tenants[broken.tenant]["streams"]
        assert (stream["stream"], stream["rows"]) == ("logs", 0)
        assert file.name in stream["problem"]
    finally:
        aside.rename(file)
    (stream,) = api.get("/v1/streams", params={"tenant": broken.tenant}).json()["streams"]
    assert (stream["rows"], stream["problem"]) == (1, None)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": "status:(500"}, 400, "too early"),
        ({"query": "bytes:many"}, 400, "holds numbers"),
        ({"from": "yesterday"}, 400, "is not a time"),
        ({"from": "2026-03-05", "to": "2026-03-04"}, 400, "range is empty"),
        ({"stream": "nothing"}, 404, "has no stream"),
        ({"tenant": "nobody"}, 404, "has no stream"),
        ({"tenant": "x" * 101}, 400, "at most 100"),
        ({"cursor": "bent"}, 400, "cursor"),
        ({"pin": "bent"}, 400, "link is damaged"),
        ({"limit": 0}, 400, "limit"),
        ({"unknown": 1}, 400, "unknown"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_a_sentence(
    api: httpx.Client, shop: LogTable, body: dict[str, Any], status: int, says: str
) -> None:
    """Never a 500, and the sentence names what is wrong."""
    answer = api.post("/v1/search", json={"tenant": shop.tenant, **body})
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
