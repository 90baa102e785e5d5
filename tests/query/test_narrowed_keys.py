"""Keys of some streams at the API: of the tenant's other streams nothing comes out, wherever they ask."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from lake.extras_client import KEYS_PATH
from lake.tenant import TableId, TenantId
from query.access.access import Caller, Who, who_of
from query.api.turns import payer_of
from query.sql.sql_access import asks_as
from query.sql.sql_guard import Statement
from tests.query.support.guarded import SECRET, START, Guarded
from tests.query.support.log_table import LogTable

TIMES = {"from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
HIDDEN, ABSENT = "audit-log", "none-such"


@pytest.fixture(scope="module")
def some(guarded: Guarded, catalog_client: CatalogClient) -> Iterator[Guarded]:
    """Tenant `Mine` has the streams `logs`, `web-1` and `audit-log`; the key `some` reaches `web*` and may do
    all that a write key may."""
    for stream, message in (("web-1", "of the web"), (HIDDEN, SECRET)):
        LogTable(catalog_client, "Mine", stream).append(
            [{"timestamp": START, "message": message, "path": "/"}]
        )
    with closing(CatalogClient(guarded.catalog.address, token=guarded.keys["admin"])) as client:
        body = {"scope": "write", "namespace": [guarded.mine.name.namespace], "streams": ["web*"]}
        guarded.keys["some"] = str(client.post(KEYS_PATH, body)["key"])
    yield guarded
    for stream in ("web-1", HIDDEN):
        guarded.ask("DELETE", "/v1/streams", "mine", params={"tenant": "Mine", "stream": stream})


def attempts(stream: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Requests that would tell of a stream or change it."""
    asked = {"tenant": "Mine", "stream": stream}
    for path in ("search", "search/stream", "histogram", "fields", "explain", "errors", "exports"):
        yield "POST", f"/v1/{path}", {"json": {**asked, **TIMES}}
    yield "POST", "/v1/values", {"json": {**asked, **TIMES, "field": "message"}}
    where = {"timestamp": START.isoformat(), "topic_id": "t", "partition": 0, "offset": 0}
    for path in ("row", "context"):
        yield "GET", f"/v1/{path}", {"params": {**asked, **where}}
    for sql in (f'SELECT * FROM "{stream}"', f'SELECT count(*) FROM logs_of, "{stream}"'):
        with_logs = f"WITH logs_of AS (SELECT 1) {sql}"
        yield "POST", "/v1/sql", {"json": {"sql": with_logs, "tenant": "Mine"}}
    yield "GET", "/v1/streams/detail", {"params": asked}
    yield "GET", "/v1/tail", {"params": asked}
    yield "DELETE", "/v1/streams", {"params": asked}
    yield "POST", "/v1/streams/undo", {"json": asked}
    yield "POST", "/v1/streams/types", {"json": {**asked, "field": "path", "type": "long"}}
    for dry in (True, False):
        yield "POST", "/v1/streams/retention", {"json": {**asked, "retention": "1d", "dry_run": dry}}
    erasure = {"tenant": "Mine", "streams": [stream], "query": "secret", "dry_run": True}
    yield "POST", "/v1/erasures", {"json": erasure}
    for path in ("_search", "_count", "_mapping", "_alias", "_field_caps?fields=*"):
        yield "GET", f"/elasticsearch/Mine.{stream}/{path}", {}
    yield "POST", f"/elasticsearch/Mine.{stream}/_pit", {}


def said(answer: httpx.Response, stream: str) -> tuple[int, str]:
    """An answer without the stream's name, as people or the catalog spell it."""
    text = answer.text.replace(stream, "?")
    return answer.status_code, text.replace(stream.replace("-", "_2d"), "?")


@pytest.mark.stack
def test_a_stream_outside_is_as_one_that_is_not_there(some: Guarded) -> None:
    """By every route that takes a stream; nothing of it comes out."""
    for hidden, absent in zip(attempts(HIDDEN), attempts(ABSENT), strict=True):
        path = hidden[1]
        answers = [some.ask(method, where, "some", **options) for method, where, options in (hidden, absent)]
        assert said(answers[0], HIDDEN) == said(answers[1], ABSENT), (path, answers[0].text)
        assert answers[0].status_code in (403, 404), (path, answers[0].text)
        assert SECRET not in answers[0].text
    mine = {"tenant": "Mine", "stream": HIDDEN, **TIMES}
    assert len(some.ask("POST", "/v1/search", "mine", json=mine).json()["rows"]) == 1


@pytest.mark.stack
def test_lists_and_sums_tell_of_its_streams_alone(some: Guarded) -> None:
    """Streams, tenants, exports, usage, deleted streams, parked ones, policies; what is not told apart by
    streams is refused whole."""
    for stream in ("web-1", HIDDEN):
        body = {"tenant": "Mine", "stream": stream, **TIMES}
        assert some.ask("POST", "/v1/search", "mine", json=body).is_success
        assert some.ask("POST", "/v1/exports", "mine", json=body).is_success
    mine = {"params": {"tenant": "Mine"}}
    (stream,) = some.ask("GET", "/v1/streams", "some", **mine).json()["streams"]
    assert (stream["stream"], stream["rows"]) == ("web-1", 1)
    (tenant,) = some.ask("GET", "/v1/tenants", "some").json()["tenants"]
    assert (tenant["rows"], tenant["files"], len(tenant["streams"])) == (1, 1, 1)
    exports = some.ask("GET", "/v1/exports", "some").json()["exports"]
    assert {export["stream"] for export in exports} == {"web-1"}
    others = some.ask("GET", "/v1/exports", "mine").json()["exports"]
    hidden = next(export["id"] for export in others if export["stream"] == HIDDEN)
    unknown = some.ask("GET", "/v1/exports/abcdefgh", "some")
    assert some.ask("GET", f"/v1/exports/{hidden}", "some").text == unknown.text
    usage = some.ask("GET", "/v1/usage", "some", **mine).json()
    assert {each["stream"] for each in usage["searches"]} == {"web-1"}
    assert {each["stream"] for each in usage["stored"]} == {"web-1"}
    assert {each["stream"] for each in usage["ingested"]} <= {"web-1"}
    kept = some.ask("GET", "/v1/tenants/retention", "some", **mine).json()
    assert {each["stream"] for each in kept["streams"]} <= {"web-1"}
    for path in ("/v1/parked", "/v1/streams/dropped", "/v1/holds", "/v1/health"):
        answer = some.ask("GET", path, "some", **mine)
        assert answer.is_success, (path, answer.text)
        assert "audit" not in answer.text
    for path in ("/v1/dead-letters", "/v1/maintenance", "/v1/erasures", "/v1/tail"):
        answer = some.ask("GET", path, "some", **mine)
        assert (answer.status_code, "all streams" in answer.text) == (403, True), (path, answer.text)
    replay = {"tenant": "Mine", "all": True, "dry_run": True}
    assert some.ask("POST", "/v1/dead-letters/replay", "some", json=replay).status_code == 403
    found = some.ask("POST", "/v1/search", "some", json={"tenant": "Mine", "stream": "web-1", **TIMES})
    assert [row["message"] for row in found.json()["rows"]] == ["of the web"]
    sql = {"sql": 'SELECT count(*) FROM "web-1"', "tenant": "Mine"}
    assert some.ask("POST", "/v1/sql", "some", json=sql).json()["rows"] == [[1]]
    for path in ("_mapping", "_aliases", "*/_mapping", "Mine.*/_alias"):
        assert list(some.ask("GET", f"/elasticsearch/{path}", "some").json()) == ["Mine.web-1"], path
    assert some.ask("GET", "/elasticsearch/_count", "some").json()["count"] == 1


@pytest.mark.stack
def test_what_is_kept_for_a_key_stays_when_it_is_rotated(some: Guarded) -> None:
    """Saved searches are found with the new secret, and with the former one while it is in force."""
    address = {"tenant": "Mine", "stream": "web-1"}
    assert some.ask("PUT", "/v1/saved-searches/mine", "some", json={"address": address}).is_success
    key_id = some.keys["some"].split("_")[1]
    with closing(CatalogClient(some.catalog.address, token=some.keys["admin"])) as client:
        new = str(client.post(f"{KEYS_PATH}/{key_id}/rotate", {"overlap": "1h"})["key"])
    for key in (new, "some"):
        kept = some.ask("GET", "/v1/saved-searches", key).json()["searches"]
        assert kept["mine"]["address"] == address


def test_whom_a_catalog_names() -> None:
    """Also one of before, which tells of one namespace and no streams."""
    before = {"key-id": "k", "namespace": ["a"]}
    assert who_of(before) == Who("k", "a")
    assert who_of({"key-id": "k", "namespace": None}) == Who("k")
    told = {**before, "namespaces": [["a"], ["b", "c"]], "streams": ["web*"]}
    assert who_of(told) == Who("k", "a", ("b.c",), ("web*",))
    assert [who_of(told).knows(stream) for stream in ("web1", "Web1", "")] == [True, False, False]


def test_a_key_of_several_tenants_asks_and_pays_for_the_one_it_names() -> None:
    """In Trino as that tenant's user, and never as the room where it names none."""
    a, b, c = (TableId(TenantId(name), "logs") for name in "abc")
    who = Who("k", "a", ("b",))
    caller = Caller("k", CatalogClient("http://127.0.0.1:1"), who)
    assert [payer_of(caller, each) for each in (a.tenant, b.tenant, c.tenant, None)] == ["a", "b", "a", "a"]
    statements = [Statement("", frozenset(tables)) for tables in ({a}, {b}, {a, b}, ())]
    assert [asks_as(each, None, who.namespaces, "firn") for each in statements] == ["a", "b", "firn", "a"]
