"""Who did what is for administrators: an attacker with any other key asks for it in every way there is."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from lake.catalog_client import CatalogClient
from lake.tenant import SYSTEM_TENANT
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable

pytestmark = pytest.mark.stack
WORD = "only-administrators-read-this"
RANGE = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
OF_SYSTEM = {"tenant": "system", "stream": "notes"}
WHERE = {"timestamp": START.isoformat(), "topic_id": "test-topic-id", "partition": "0", "offset": "0"}
SPELLINGS = ("system.notes", "SYSTEM.notes", '"system".notes', "_73ystem.notes", '"_73ystem"."notes"')
OTHERS = ("mine", "reader", "room", "everything")
TRIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *(
        ("POST", f"/v1/{path}", {"json": {**OF_SYSTEM, **RANGE}})
        for path in ("search", "search/stream", "histogram", "fields", "explain", "errors", "exports")
    ),
    ("GET", "/v1/search", {"params": {**OF_SYSTEM, **RANGE}}),
    ("POST", "/v1/search", {"json": {**OF_SYSTEM, **RANGE, "engine": "trino"}}),
    ("POST", "/v1/values", {"json": {**OF_SYSTEM, **RANGE, "field": "message"}}),
    *(("GET", f"/v1/{path}", {"params": {**OF_SYSTEM, **WHERE}}) for path in ("row", "context")),
    ("POST", "/v1/sql", {"json": {"sql": "SELECT * FROM notes", "tenant": "system"}}),
    *(("POST", "/v1/sql", {"json": {"sql": f"SELECT * FROM {each}"}}) for each in SPELLINGS),
    (
        "POST",
        "/v1/sql",
        {"json": {"sql": "SELECT l.message FROM logs l, system.notes", "tenant": "Mine"}},
    ),
    ("GET", "/v1/streams/detail", {"params": OF_SYSTEM}),
    *(
        ("GET", f"/v1/{path}", {"params": {"tenant": "system"}})
        for path in ("streams", "streams/dropped", "tail", "erasures", "holds", "tenants/retention")
    ),
    *(("GET", f"/v1/{path}", {"params": {"tenant": "system"}}) for path in ("dead-letters", "maintenance")),
    ("POST", "/v1/erasures", {"json": {"tenant": "system", "query": WORD}}),
    ("POST", "/v1/streams/types", {"json": {**OF_SYSTEM, "field": "a", "type": "long"}}),
    ("POST", "/v1/streams/retention", {"json": {**OF_SYSTEM, "retention": "1d"}}),
    ("POST", "/v1/tenants/retention", {"json": {"tenant": "system", "retention": "1d"}}),
    ("DELETE", "/v1/streams", {"params": OF_SYSTEM}),
    ("POST", "/v1/streams/undo", {"json": OF_SYSTEM}),
    ("POST", "/v1/dead-letters/replay", {"json": {"tenant": "Mine", "to_tenant": "system", "all": True}}),
)


@pytest.fixture(scope="module")
def audited(guarded: Guarded, catalog_client: CatalogClient) -> Guarded:
    """The guarded API, a table of Firn's own, and an unbound key that may only read."""
    LogTable(catalog_client, SYSTEM_TENANT.name, "notes").append([{"timestamp": START, "message": WORD}])
    with closing(CatalogClient(guarded.catalog.address, token=guarded.keys["admin"])) as client:
        guarded.keys["everything"] = str(client.post("/firn/v1/keys", {"scope": "read"})["key"])
    return guarded


@pytest.mark.parametrize("key", OTHERS)
def test_no_other_key_learns_anything(
    audited: Guarded, key: str, record_property: Callable[[str, object], None]
) -> None:
    """A tenant's key, a reader's, a room's, one that reads all tenants: refused, and the word nowhere."""
    answers = [(audited.ask(method, path, key, **options), options) for method, path, options in TRIES]
    record_property("cross_tenant_leaks", sum(WORD in answer.text for answer, _ in answers))
    for answer, options in answers:
        assert answer.status_code == 403, (key, answer.url, options, answer.text)
        assert WORD not in answer.text
    for path in ("/v1/tenants", "/v1/tenants/names"):
        answer = audited.ask("GET", path, key)
        assert answer.status_code == 200, answer.text
        told = [each if isinstance(each, str) else each["tenant"] for each in answer.json()["tenants"]]
        assert SYSTEM_TENANT.name not in told


def test_administrators_read_it(audited: Guarded) -> None:
    """By both engines, in SQL, and in the lists."""
    for engine in ("duckdb", "trino"):
        body = {**OF_SYSTEM, **RANGE, "engine": engine}
        rows = audited.ask("POST", "/v1/search", "admin", json=body).json()["rows"]
        assert [row["message"] for row in rows] == [WORD], engine
    for each in SPELLINGS:
        sql = {"sql": f"SELECT message FROM {each}"}
        assert audited.ask("POST", "/v1/sql", "admin", json=sql).json()["rows"] == [[WORD]], each
    assert SYSTEM_TENANT.name in audited.ask("GET", "/v1/tenants/names", "admin").json()["tenants"]
