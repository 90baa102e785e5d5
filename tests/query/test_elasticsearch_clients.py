"""Real clients of Elasticsearch and OpenSearch against the API: what they are answered is what the search API
answers to the same questions."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import httpx
import pytest
from elasticsearch import ApiError, BadRequestError, Elasticsearch, NotFoundError, helpers
from opensearchpy import OpenSearch
from opensearchpy import helpers as opensearch_helpers

from lake.catalog_client import CatalogClient
from query.elastic.translation import Question, search_of
from query.model.table_view import load_view
from tests.query.support.elastic_bodies import random_body
from tests.query.support.elastic_pairs import PAIRS
from tests.query.support.elastic_shop import (
    END,
    FROM_MS,
    ROWS,
    START,
    TO_MS,
    TYPES,
    ElasticShop,
    offsets_in,
    row,
)
from tests.query.support.log_table import LogTable, fresh_tenant

pytestmark = pytest.mark.stack
Json = dict[str, Any]
BODIES = int(os.environ.get("FIRN_ELASTIC_BODIES", "2000"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))


@pytest.fixture(scope="module")
def opensearch(query_uri: str) -> Iterator[OpenSearch]:
    """OpenSearch's client of the API."""
    with OpenSearch(f"{query_uri}/elasticsearch", http_auth=("any", "any"), timeout=120) as client:
        yield client


def offsets_of(api: httpx.Client, table: LogTable, query: str, start: str = "", end: str = "") -> list[int]:
    """What the search API finds, newest first."""
    body = {"tenant": table.tenant, "stream": table.stream, "query": query, "limit": 1_000}
    times = {"from": start or START.isoformat(), "to": end or END.isoformat()}
    answer = api.post("/v1/search", json={**body, **times})
    assert answer.status_code == 200, answer.text
    assert answer.json()["next"] is None
    return [each["coordinates"]["offset"] for each in answer.json()["rows"]]


@pytest.mark.parametrize(("query", "same"), PAIRS)
def test_queries_find_what_the_same_search_finds(
    api: httpx.Client,
    elastic: Elasticsearch,
    opensearch: OpenSearch,
    elastic_shop: ElasticShop,
    query: Json | None,
    same: str | tuple[str, str, str],
) -> None:
    """Rows, their order and their number, by both clients."""
    expected = (
        offsets_of(api, elastic_shop.logs, same)
        if isinstance(same, str)
        else offsets_of(api, elastic_shop.logs, *same)
    )
    found = elastic.search(index=elastic_shop.index, query=query, size=1_000)
    assert offsets_in(found["hits"]["hits"]) == expected
    assert found["hits"]["total"] == {"value": len(expected), "relation": "eq"}
    assert (found["timed_out"], found["_firn"]["as_usual"]) == (False, True)
    body = {} if query is None else {"query": query}
    assert opensearch.count(index=elastic_shop.index, body=body)["count"] == len(expected)


def test_the_pairs_are_sixty_requests_and_more() -> None:
    """Each is asked by both clients."""
    assert 2 * len(PAIRS) >= 60


@pytest.mark.parametrize(
    "query",
    [
        {"prefix": {"host.keyword": "host "}},
        {"term": {"host.keyword": "host 1"}},
        {"term": {"status.keyword": "500"}},
        {"match_none": {}},
        {"bool": {"must_not": {"range": {"@timestamp": {"gte": "2026-03-04T11"}}}}},
    ],
)
def test_the_text_of_a_query_finds_the_same_by_both_engines(
    api: httpx.Client, elastic: Elasticsearch, elastic_shop: ElasticShop, query: Json
) -> None:
    """What a query becomes is a search like any other."""
    schema = load_view(elastic_shop.logs.catalog, elastic_shop.logs.id).schema
    search = search_of(Question(query, "", datetime.now(UTC)), elastic_shop.logs.id, schema)
    body = {"tenant": elastic_shop.logs.tenant, "query": search.query, "limit": 1_000, "engine": "trino"}
    times = {"from": START.isoformat(), "to": END.isoformat()}
    answer = api.post("/v1/search", json={**body, **times})
    found = elastic.search(index=elastic_shop.index, query=query, size=1_000)["hits"]["hits"]
    assert [each["coordinates"]["offset"] for each in answer.json()["rows"]] == offsets_in(found)


def test_a_hit_is_the_row_that_the_search_api_shows(
    api: httpx.Client, elastic: Elasticsearch, elastic_shop: ElasticShop
) -> None:
    """Time, level, message and every field; its id finds it again."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": elastic_shop.logs.tenant, "query": "bytes:[50 TO 60]", **times}
    expected = api.post("/v1/search", json=asked).json()["rows"]
    hits = elastic.search(index=elastic_shop.index, query={"range": {"bytes": {"gte": 50, "lte": 60}}})[
        "hits"
    ]["hits"]
    for hit, shown in zip(hits, expected, strict=True):
        own = {name: shown[name] for name in ("observed_timestamp", "severity", "message", "level")}
        assert hit["_source"] == {"@timestamp": shown["timestamp"], **own, **shown["fields"]}
        assert hit["_index"] == elastic_shop.index
    ids = [hit["_id"] for hit in hits]
    again = elastic.search(index=elastic_shop.index, query={"ids": {"values": [*ids, "no id"]}})["hits"]
    assert ([hit["_id"] for hit in again["hits"]], again["total"]["value"]) == (ids, len(ids))


def test_source_and_fields_are_what_is_asked_for(elastic: Elasticsearch, elastic_shop: ElasticShop) -> None:
    """Patterns, exclusions, none at all; fields in lists, times as their format says."""
    query = {"term": {"bytes": 50}}

    def hit(**options: Any) -> Json:
        return dict(elastic.search(index=elastic_shop.index, query=query, **options)["hits"]["hits"][0])

    assert hit(source=["b*", "ok"])["_source"] == {"bytes": 50, "ok": True}
    assert "host" not in hit(source_excludes=["h*"])["_source"]
    assert "_source" not in hit(source=False)
    time = {"field": "@timestamp", "format": "epoch_millis"}
    fields = hit(source=False, fields=["host.keyword", "http_*", time])["fields"]
    at_ms = FROM_MS + 50_000
    assert fields == {"host.keyword": ["host 0"], "http_method": ["GET"], "@timestamp": [at_ms]}


def test_pages_by_every_means_give_every_row_once(
    elastic: Elasticsearch, opensearch: OpenSearch, elastic_shop: ElasticShop
) -> None:
    """From and size, search_after with a point in time over two indices, scrolls of both clients."""
    both = elastic_shop.both
    every = {(f"{elastic_shop.logs.tenant}.logs", at) for at in range(ROWS)} | {
        (f"{elastic_shop.audit.tenant}.audit", at) for at in range(60)
    }

    def key(hit: Json) -> tuple[str, int]:
        number = hit["_source"]["bytes"]
        return hit["_index"], number // 10 if hit["_index"].endswith(".logs") else number

    paged = [
        key(hit)
        for first in range(0, 800, 100)
        for hit in elastic.search(index=both, from_=first, size=100)["hits"]["hits"]
    ]
    assert (len(paged), set(paged)) == (780, every)
    for order in ("desc", "asc"):
        pit = elastic.open_point_in_time(index=both, keep_alive="1m")["id"]
        after, seen = None, list[Json]()
        while hits := elastic.search(
            pit={"id": pit, "keep_alive": "1m"},
            size=23,
            sort=[{"@timestamp": order}],
            search_after=after,
            track_total_hits=False,
        )["hits"]["hits"]:
            seen, after = seen + hits, hits[-1]["sort"]
        elastic.close_point_in_time(id=pit)
        assert (len(seen), {key(hit) for hit in seen}) == (780, every)
        times = [hit["_source"]["@timestamp"] for hit in seen]
        assert times == sorted(times, reverse=order == "desc")
    scanned = list(helpers.scan(elastic, index=both, query={"query": {"match_all": {}}}, size=90))
    assert (len(scanned), {key(hit) for hit in scanned}) == (780, every)
    scrolled = list(
        opensearch_helpers.scan(opensearch, index=both, query={"query": {"match_all": {}}}, size=300)
    )
    assert (len(scrolled), {key(hit) for hit in scrolled}) == (780, every)


def test_search_after_a_time_alone_goes_on_behind_it(
    elastic: Elasticsearch, elastic_shop: ElasticShop
) -> None:
    """As clients write it that know of no tie."""
    newest = elastic.search(
        index=elastic_shop.index, sort="@timestamp:desc", size=1, search_after=[FROM_MS + 30_000]
    )
    oldest = elastic.search(
        index=elastic_shop.index, sort="@timestamp:asc", size=1, search_after=[FROM_MS + 30_000]
    )
    assert offsets_in(newest["hits"]["hits"] + oldest["hits"]["hits"]) == [2, 4]


def test_a_point_in_time_and_a_scroll_keep_their_rows(
    elastic: Elasticsearch, catalog_client: CatalogClient
) -> None:
    """Whatever is written since."""
    table = LogTable(catalog_client, fresh_tenant("pinned"), types=TYPES)
    table.append([row(at) for at in range(20)])
    index = f"{table.tenant}.logs"
    pit = elastic.open_point_in_time(index=index, keep_alive="1m")["id"]
    scroll = elastic.search(index=index, scroll="1m", size=15)
    table.append([row(at) for at in range(20, 40)])
    assert elastic.count(index=index)["count"] == 40
    assert elastic.search(pit={"id": pit})["hits"]["total"]["value"] == 20
    rest = elastic.scroll(scroll_id=scroll["_scroll_id"])
    assert offsets_in(scroll["hits"]["hits"] + rest["hits"]["hits"]) == list(range(19, -1, -1))
    assert rest["hits"]["total"]["value"] == 20
    assert elastic.scroll(scroll_id=rest["_scroll_id"])["hits"]["hits"] == []
    assert elastic.clear_scroll(scroll_id=rest["_scroll_id"])["succeeded"]


def test_totals_are_counted_as_far_as_they_are_wanted(
    elastic: Elasticsearch, elastic_shop: ElasticShop
) -> None:
    """Exactly, up to a bound, not at all, or as a bare number."""

    def hits(**options: Any) -> Json:
        return dict(elastic.search(index=elastic_shop.index, size=1, **options)["hits"])

    assert hits()["total"] == {"value": ROWS, "relation": "eq"}
    assert hits(track_total_hits=100)["total"] == {"value": 100, "relation": "gte"}
    assert "total" not in hits(track_total_hits=False)
    assert hits(rest_total_hits_as_int=True)["total"] == ROWS


def test_what_there_is_is_told(
    elastic: Elasticsearch, opensearch: OpenSearch, elastic_shop: ElasticShop
) -> None:
    """Versions, indices, aliases, mappings, capabilities of fields."""
    assert elastic.ping()
    assert opensearch.info()["version"]["number"] == elastic.info()["version"]["number"]
    listed: Any = elastic.cat.indices(index=f"{elastic_shop.logs.tenant}.*", format="json")
    assert [(each["index"], each["docs.count"]) for each in listed] == [
        (f"{elastic_shop.audit.tenant}.audit", "60"),
        (elastic_shop.index, str(ROWS)),
    ]
    assert f"{elastic_shop.index} {ROWS}" in opensearch.cat.indices(
        index=elastic_shop.index, h="index,docs.count"
    )
    assert dict(elastic.indices.get_alias(index=elastic_shop.index)) == {elastic_shop.index: {"aliases": {}}}
    assert elastic.indices.exists(index=elastic_shop.index)
    assert not elastic.indices.exists(index=f"{elastic_shop.logs.tenant}.nothing")
    properties = elastic.indices.get_mapping(index=elastic_shop.index)[elastic_shop.index]["mappings"][
        "properties"
    ]
    assert properties["host"] == {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
    assert [properties[name]["type"] for name in ("@timestamp", "bytes", "ok", "took")] == [
        "date",
        "long",
        "boolean",
        "double",
    ]
    fields = opensearch.field_caps(index=f"{elastic_shop.logs.tenant}.*", fields="*")["fields"]
    assert fields["bytes"]["long"]["aggregatable"]
    assert fields["host.keyword"]["keyword"]["searchable"]
    assert (
        elastic.field_caps(index=elastic_shop.index, fields="@timestamp")["fields"]["@timestamp"]["date"][
            "type"
        ]
        == "date"
    )
    assert elastic.cluster.health()["status"] == "green"


def test_many_searches_are_answered_each_by_itself(elastic: Elasticsearch, elastic_shop: ElasticShop) -> None:
    """An error among them is answered at its place."""
    searches: list[Json] = [
        {"index": elastic_shop.index},
        {"size": 1, "query": {"match": {"message": "refused"}}},
        {"index": elastic_shop.index},
        {"query": {"fuzzy": {"message": "x"}}},
        {"index": "nobody.nothing"},
        {},
        {"index": "nobody.nothing", "ignore_unavailable": True},
        {},
    ]
    answers = elastic.msearch(searches=searches)["responses"]
    assert [each["status"] for each in answers] == [200, 400, 404, 200]
    assert answers[0]["hits"]["total"]["value"] == 180
    assert "fuzzy" in answers[1]["error"]["reason"]
    assert answers[2]["error"]["type"] == "index_not_found_exception"
    assert answers[3]["hits"]["hits"] == []
    with pytest.raises(BadRequestError, match="at most 50"):
        elastic.msearch(searches=[{"index": elastic_shop.index}, {}] * 51)


def test_what_is_not_supported_is_an_error_that_names_it(
    elastic: Elasticsearch, opensearch: OpenSearch, elastic_shop: ElasticShop
) -> None:
    """In Elasticsearch's own form; writes are told of Kafka."""
    with pytest.raises(BadRequestError) as refused:
        elastic.search(index=elastic_shop.index, query={"regexp": {"message": "a.*"}})
    assert refused.value.body["error"]["type"] == "parsing_exception"
    assert "[query.regexp] is not supported" in refused.value.body["error"]["root_cause"][0]["reason"]
    wrong: dict[str, Json] = {
        "sort by bytes": {"sort": [{"bytes": "asc"}]},
        "suggest": {"suggest": {"text": "x"}},
        "significant_terms": {"aggs": {"a": {"significant_terms": {"field": "host"}}}},
        "script_fields": {"script_fields": {"a": {"script": "1"}}},
        "Result window is too large": {"from_": 10_000},
        "more than 15 levels": {"query": nested(20)},
        "more than 200 clauses": {"query": {"bool": {"must": [{"match_all": {}}] * 1_100}}},
        "too many buckets": {
            "aggs": {
                "a": {
                    "date_histogram": {
                        "field": "@timestamp",
                        "fixed_interval": "1s",
                        "extended_bounds": {"min": FROM_MS, "max": TO_MS + 86_400_000},
                    }
                }
            }
        },
    }
    for part, options in wrong.items():
        with pytest.raises(BadRequestError, match=part):
            elastic.search(index=elastic_shop.index, size=0 if "aggs" in options else 1, **options)
    with pytest.raises(NotFoundError, match="no stream"):
        elastic.search(index=elastic_shop.index + "x")
    with pytest.raises(ApiError, match="Kafka"):
        elastic.bulk(operations=[{"index": {"_index": elastic_shop.index}}, {"message": "x"}])
    with pytest.raises(Exception, match="Kafka"):
        opensearch.bulk(body=[{"index": {"_index": elastic_shop.index}}, {"message": "x"}])


def nested(depth: int) -> Json:
    """A query in so many others."""
    return {"bool": {"must": [nested(depth - 1)]}} if depth else {"match_all": {}}


@pytest.mark.timeout(1_800)
def test_no_body_is_answered_with_a_500(query_uri: str, elastic_shop: ElasticShop) -> None:
    """Generated bodies, sound ones and damaged ones: an answer, or an error in Elasticsearch's form."""
    random, counted = Random(SEED), Counter[int]()
    with httpx.Client(base_url=f"{query_uri}/elasticsearch", timeout=120.0, trust_env=False) as client:
        for at in range(BODIES):
            body = random_body(random)
            answer = client.post(
                f"/{elastic_shop.index}/_search",
                content=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            counted[answer.status_code] += 1
            assert answer.status_code in (200, 400), (at, answer.status_code, json.dumps(body), answer.text)
            if answer.status_code == 200:
                assert answer.json()["timed_out"] is False
            else:
                assert answer.json()["error"]["reason"], answer.text
    assert min(counted[200], counted[400]) > BODIES // 10, counted
