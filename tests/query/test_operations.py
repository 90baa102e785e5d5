"""What operators ask: errors by field and reason, maintenance, deleting and undoing, all rows as a stream."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest

from lake.catalog_client import CatalogClient
from tests.optimize.support.maintained import maintenance
from tests.query.support.log_table import LogTable

pytestmark = pytest.mark.stack
START = datetime(2026, 3, 3, 3, 0, tzinfo=UTC)
RANGE = {"from": START.isoformat(), "to": (START + timedelta(hours=2)).isoformat()}


def test_errors_are_counted_by_reason_and_field_with_examples(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """The most frequent first, each with some of its values; files without an error are not opened."""
    table = log_table()
    table.append(
        [{"timestamp": START + timedelta(hours=1, seconds=at), "message": "fine"} for at in range(100)]
    )
    table.append(
        [
            {
                "timestamp": START + timedelta(seconds=at),
                "_errors": [
                    {"field": "/took", "value": f"{at % 3} ms", "reason": "wrong_type"},
                    *([{"field": "/id", "value": "9" * 30, "reason": "out_of_range"}] if at % 2 else []),
                ],
            }
            for at in range(20)
        ]
    )
    found = api.post("/v1/errors", json={"tenant": table.tenant, **RANGE}).json()
    assert [(group["reason"], group["field"], group["rows"]) for group in found["groups"]] == [
        ("wrong_type", "/took", 20),
        ("out_of_range", "/id", 10),
    ]
    assert sorted(found["groups"][0]["examples"]) == ["0 ms", "1 ms", "2 ms"]
    assert (found["looked_at"], found["more"], len(found["sample"])) == (20, False, 20)
    planned = api.post("/v1/search", json={"tenant": table.tenant, "query": "_errors:*", **RANGE}).json()[
        "planned"
    ]
    assert planned["files"] == 1


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_all_rows_come_as_lines_however_many(
    api: httpx.Client, log_table: Callable[..., LogTable], order: str
) -> None:
    """More than any page holds, in order, and the last line says what the answer rests on."""
    table = log_table()
    for hour in range(2):
        table.append(
            [
                {"timestamp": START + timedelta(hours=hour, milliseconds=100 * at), "message": f"{at}"}
                for at in range(8_000)
            ]
        )
    with api.stream(
        "POST",
        "/v1/search/stream",
        json={"tenant": table.tenant, "query": "message:*", "order": order, **RANGE},
    ) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [orjson.loads(line) for line in answer.iter_lines()]
    *rows, last = lines
    offsets = [row["coordinates"]["offset"] for row in rows]
    assert offsets == sorted(range(16_000), reverse=order == "newest")
    assert last["basis"]["complete"]
    assert last["basis"]["scanned"]["files"] == 2
    refused = api.post("/v1/search/stream", json={"tenant": table.tenant, "query": "a:("})
    assert refused.status_code == 400


def test_a_stream_that_was_deleted_comes_back(api: httpx.Client, log_table: Callable[..., LogTable]) -> None:
    """It is not found, it is listed as restorable, and after undo all its rows are there."""
    table = log_table()
    table.append([{"timestamp": START, "message": "kept"}])
    where = {"tenant": table.tenant, "stream": "logs"}
    assert api.delete("/v1/streams", params=where).status_code == 200
    assert api.post("/v1/search", json={**where, **RANGE}).status_code == 404
    (dropped,) = api.get("/v1/streams/dropped", params={"tenant": table.tenant}).json()["dropped"]
    assert (dropped["stream"], dropped["restorable"]) == ("logs", True)
    assert api.post("/v1/streams/undo", json=where).json() == {"restored": str(table.id)}
    assert api.post("/v1/search", json={**where, **RANGE}).json()["rows"][0]["message"] == "kept"
    assert api.get("/v1/streams/dropped", params={"tenant": table.tenant}).json()["dropped"] == []


def test_maintenance_tells_what_it_did_and_what_waits(
    api: httpx.Client, catalog_client: CatalogClient, log_table: Callable[..., LogTable]
) -> None:
    """Of one tenant: hours with many files before, the merge in the history after."""
    table = log_table()
    for _ in range(4):
        table.append([{"timestamp": START + timedelta(seconds=at), "message": "x"} for at in range(10)])

    def told() -> dict[str, Any]:
        answer = api.get("/v1/maintenance", params={"tenant": table.tenant})
        assert answer.is_success, answer.text
        return dict(answer.json())

    before = told()
    assert (before["partitions_with_many_files"], before["history"]) == (1, [])
    assert maintenance(catalog_client, [table.name]).run().merged_tables == 1
    after = told()
    assert after["partitions_with_many_files"] == 0
    merged = next(entry for entry in after["history"] if entry["action"] == "merge")
    assert (merged["table"], merged["files_before"], merged["files_after"], merged["rows"]) == (
        str(table.name),
        4,
        1,
        40,
    )
    assert str(table.name) in str(api.get("/v1/maintenance", params={"limit": 1000}).json()["history"])
