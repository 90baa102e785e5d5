"""Keys at Elasticsearch's routes: how its clients send them, whose rows one sees, and who is told of it."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from elasticsearch import (
    AuthenticationException,
    AuthorizationException,
    Elasticsearch,
    ElasticsearchWarning,
)

from query.access.access import as_bearer
from query.elastic.continuation import Scroll, scroll_text
from tests.query.support.guarded import SECRET, Guarded
from tests.query.test_audit_trail import Audited

MINE, THEIRS = "Mine.logs", "Theirs.logs"
JSON = {"Content-Type": "application/json"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_headers_of_clients_become_a_key() -> None:
    """An id and a key, a key alone, a name and a key as password; everything else stays what it is."""
    assert as_bearer(f"ApiKey {encoded('id:firn_x_y')}") == "Bearer firn_x_y"
    assert as_bearer("ApiKey firn_x_y") == "Bearer firn_x_y"
    assert as_bearer(f"Basic {encoded('grafana:firn_x_y')}") == "Bearer firn_x_y"
    assert as_bearer(f"basic {encoded('grafana:a:b')}") == "Bearer a:b"
    assert as_bearer("Bearer firn_x_y") == "Bearer firn_x_y"
    assert [as_bearer(header) for header in (None, "Basic ?", "Basic")] == [None, None, None]
    assert as_bearer("Token x") == "Token x"


@pytest.mark.stack
def test_every_way_to_send_a_key_lets_in_whoever_has_one(guarded: Guarded) -> None:
    """By the client itself, too; elsewhere `Basic` lets nobody in."""
    key, uri = guarded.keys["mine"], f"{guarded.api.address}/elasticsearch"
    good: list[dict[str, Any]] = [
        {"api_key": key},
        {"api_key": ("id", key)},
        {"basic_auth": ("grafana", key)},
        {"bearer_auth": key},
    ]
    for options in good:
        with Elasticsearch(uri, **options) as client:
            with pytest.warns(ElasticsearchWarning, match="ingest does not answer"):
                assert client.count(index=MINE)["count"] == 30
            with pytest.raises(AuthorizationException):
                client.count(index=THEIRS)
    wrong: list[dict[str, Any]] = [{"api_key": f"{key}x"}, {"basic_auth": (key, "x")}, {}]
    for options in wrong:
        with Elasticsearch(uri, **options) as client, pytest.raises(AuthenticationException):
            client.count(index=MINE)
    answer = httpx.get(f"{uri}/", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "security_exception")
    elsewhere = httpx.get(
        f"{guarded.api.address}/v1/tenants",
        headers={"Authorization": f"Basic {encoded(f'x:{key}')}"},
        trust_env=False,
    )
    assert elsewhere.status_code == 401


@pytest.mark.stack
def test_a_key_sees_its_tenant_and_no_other(
    guarded: Guarded, record_property: Callable[[str, object], None]
) -> None:
    """By names, patterns, lists, points in time, scrolls, several searches at once, aggregations."""

    def ask(method: str, path: str, key: str = "mine", **options: Any) -> httpx.Response:
        return guarded.ask(method, f"/elasticsearch{path}", key, **options)

    pit = ask("POST", f"/{THEIRS}/_pit", "theirs").json()["id"]
    first = ask("GET", f"/{THEIRS}/_search?scroll=1m&size=5", "theirs").json()
    forged = scroll_text(Scroll({"size": 5}, {THEIRS: "x"}, None, None))
    terms = {"size": 0, "aggs": {"a": {"terms": {"field": "message.keyword"}}}}
    tries = [
        ask("GET", f"/{THEIRS}/_search"),
        ask("POST", f"/{THEIRS}/_search", json=terms),
        ask("GET", f"/{MINE},{THEIRS}/_search"),
        ask("GET", "/Theirs.*/_search"),
        ask("GET", f"/{THEIRS}/_count"),
        ask("GET", f"/{THEIRS}/_mapping"),
        ask("GET", f"/{THEIRS}/_field_caps?fields=*"),
        ask("GET", f"/_cat/indices/{THEIRS}"),
        ask("POST", f"/{THEIRS}/_pit"),
        ask("POST", "/_search", json={"pit": {"id": pit}}),
        ask("POST", "/_search/scroll", json={"scroll_id": first["_scroll_id"]}),
    ]
    assert [answer.status_code for answer in tries] == [403] * len(tries)
    assert ask("POST", "/_search/scroll", json={"scroll_id": forged}).status_code == 400
    lines = [{"index": THEIRS}, {}, {"index": MINE}, {"size": 1}]
    many = ask("POST", "/_msearch", content="".join(f"{json.dumps(line)}\n" for line in lines), headers=JSON)
    assert [each["status"] for each in many.json()["responses"]] == [403, 200]
    every = [
        ask("GET", "/_search?size=100"),
        ask("POST", "/*/_search", json=terms),
        ask("GET", "/_count"),
        ask("GET", "/_cat/indices"),
        ask("GET", "/_mapping"),
        ask("GET", "/_aliases"),
        ask("GET", "/_field_caps?fields=*"),
    ]
    assert {answer.status_code for answer in every} == {200}
    assert every[2].json()["count"] == 30
    leaks = [answer.text for answer in (*tries, *every, many) if SECRET in answer.text]
    leaks += [answer.text for answer in every if "Theirs" in answer.text]
    record_property("cross_tenant_leaks", len(leaks))
    assert leaks == []
    assert ask("GET", f"/{MINE},{THEIRS}/_count", "admin").json()["count"] == 60


@pytest.mark.stack
def test_bodies_that_a_page_may_send_are_not_read(guarded: Guarded) -> None:
    """Text and forms go to anybody without asking; what clients call their bodies does not."""
    body = b'{"index":"Mine.logs"}\n{}\n'
    kinds = {"text/plain": 415, "application/x-www-form-urlencoded": 415, "": 415}
    kinds |= {"application/x-ndjson": 200, "application/vnd.elasticsearch+x-ndjson; compatible-with=8": 200}
    for kind, status in kinds.items():
        headers = {"Content-Type": kind} if kind else {}
        answer = guarded.ask("POST", "/elasticsearch/_msearch", "mine", content=body, headers=headers)
        assert answer.status_code == status, (kind, answer.text)
    ndjson = {"Content-Type": "application/x-ndjson"}
    elsewhere = guarded.ask("POST", "/v1/search", "mine", content=b'{"tenant":"Mine"}', headers=ndjson)
    assert elsewhere.status_code == 415


@pytest.mark.stack
def test_searches_are_told_to_the_audit_trail(guarded: Guarded, tmp_path: Path) -> None:
    """Who, which streams, and the query as the search language has it; of several searches all."""
    audited = Audited(guarded, tmp_path)
    audited.api.start()
    try:
        query = {"query": {"match": {"message": "of 7"}}, "size": 3}
        answer = audited.ask("POST", f"/elasticsearch/{MINE}/_search", "mine", json=query)
        assert answer.json()["hits"]["total"]["value"] == 30
        (event,) = audited.events("elasticsearch.search")
        told = {"organization.name": "Mine", "firn.stream": "logs", "firn.rows": 3}
        assert event.items() >= told.items()
        assert event["firn.query"] == 'message:"of" OR message:"7"'
        assert audited.ask("GET", f"/elasticsearch/{THEIRS}/_search", "mine").status_code == 403
        refused = audited.events("elasticsearch.search", 2)[1]
        assert refused["http.response.status_code"] == 403
        lines = [{"index": MINE}, query, {"index": MINE}, {"query": {"term": {"path": "/x"}}}]
        content = "".join(f"{json.dumps(line)}\n" for line in lines)
        audited.ask("POST", "/elasticsearch/_msearch", "mine", content=content, headers=JSON)
        (event,) = audited.events("elasticsearch.msearch")
        assert json.loads(event["firn.query"]) == ['message:"of" OR message:"7"', 'path:"/x"']
        assert event["firn.rows"] == 13
    finally:
        audited.api.kill()


@pytest.mark.stack
def test_the_setting_turns_the_routes_off(guarded: Guarded, tmp_path: Path) -> None:
    """With a sentence that names it; everything else is answered."""
    audited = Audited(guarded, tmp_path, FIRN_QUERY_ELASTICSEARCH__ENABLED="false")
    audited.api.start()
    try:
        for method, path in (("GET", "/"), ("GET", f"/{MINE}/_search"), ("POST", "/_msearch")):
            answer = audited.ask(method, f"/elasticsearch{path}", "mine")
            assert (answer.status_code, "elasticsearch.enabled" in answer.text) == (404, True)
        assert audited.ask("GET", "/v1/tenants", "mine").status_code == 200
    finally:
        audited.api.kill()
