"""Real clients of Elasticsearch and OpenSearch against the API: what they are answered is what the search API
answers to the same questions."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import httpx
import pytest
from elasticsearch import ApiError, BadRequestError, Elasticsearch, NotFoundError, helpers
from elasticsearch.dsl import A, Q, Search
from opensearchpy import OpenSearch
from opensearchpy import helpers as opensearch_helpers

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from query.elastic.translation import Question, search_of
from query.model.table_view import load_view
from tests.query.support import grafana_requests as grafana
from tests.query.support.elastic_bodies import random_body
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.processes import Child

pytestmark = pytest.mark.stack

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
END = START + timedelta(hours=2)
FROM_MS, TO_MS = (int(each.timestamp() * 1_000) for each in (START, END))
BODIES = int(os.environ.get("FIRN_ELASTIC_BODIES", "2000"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
ROWS = 720
TYPES = {"bytes": "long", "ok": "boolean", "took": "double"}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def shop(catalog_client: CatalogClient) -> LogTable:
    """Two hours of a shop's logs: a row every ten seconds, every fourth one an error."""
    table = LogTable(catalog_client, fresh_tenant("shop"), types=TYPES)
    table.append([row(at) for at in range(ROWS)])
    return table


def row(at: int) -> Json:
    """A row of the shop's logs."""
    is_error = at % 4 == 0
    return {
        "timestamp": START + timedelta(seconds=10 * at, microseconds=at),
        "severity": "ERROR" if is_error else "info",
        "message": f"connection refused by db-{at % 3}" if is_error else f"GET /api/items/{at} answered",
        "status": "500" if is_error else "200",
        "bytes": at * 10,
        "ok": not is_error,
        "took": at / 8,
        "host": f"host {at % 5}",
        "http_method": None if is_error else "GET",
    }


@pytest.fixture(scope="module")
def audit(catalog_client: CatalogClient, shop: LogTable) -> LogTable:
    """Another stream of the shop, with a row at the same times as some of its logs."""
    table = LogTable(catalog_client, shop.tenant, "audit", types={"bytes": "long"})
    table.append(
        [
            {
                "timestamp": START + timedelta(seconds=100 * at, microseconds=10 * at),
                "message": f"user {at} logged in",
                "bytes": at,
                "host": f"host {at % 2}",
            }
            for at in range(60)
        ]
    )
    return table


@pytest.fixture(scope="module")
def index(shop: LogTable) -> str:
    return f"{shop.tenant}.logs"


@pytest.fixture(scope="module")
def elastic(query_uri: str) -> Iterator[Elasticsearch]:
    with Elasticsearch(f"{query_uri}/elasticsearch", api_key="any", request_timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def opensearch(query_uri: str) -> Iterator[OpenSearch]:
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


def offsets_in(hits: list[Json]) -> list[int]:
    """The same of hits: a row of the shop's logs has its number in its bytes."""
    return [hit["_source"]["bytes"] // 10 for hit in hits]


SECOND, THIRD = (START + timedelta(seconds=10 * at, microseconds=at) for at in (1, 2))
# A query of Elasticsearch's, and the same in the search language; or with it the time range.
PAIRS: list[tuple[Json | None, str | tuple[str, str, str]]] = [
    (None, ""),
    ({"match_all": {}}, ""),
    ({"match_none": {}}, "NOT *"),
    ({"match": {"message": "refused"}}, "message:refused"),
    ({"match": {"message": "REFUSED answered"}}, "message:refused OR message:answered"),
    (
        {"match": {"message": {"query": "refused db-1", "operator": "and"}}},
        "message:refused message:db message:1",
    ),
    (
        {"match": {"message": {"query": "refused by nobody", "minimum_should_match": 2}}},
        "message:refused message:by",
    ),
    ({"match": {"bytes": 100}}, "bytes:100"),
    ({"match": {"*": "refused"}}, "refused"),
    ({"match_phrase": {"message": "connection refused"}}, 'message:"connection refused"'),
    ({"match_phrase": {"message": {"query": "refused connection"}}}, 'message:"refused connection"'),
    ({"match_phrase_prefix": {"message": "connection ref"}}, r"message:connection\ ref*"),
    (
        {"multi_match": {"query": "refused", "fields": ["message", "host^3"]}},
        "message:refused OR host:refused",
    ),
    ({"multi_match": {"query": "host 1", "fields": ["mess*", "host"], "type": "phrase"}}, 'host:"host 1"'),
    (
        {"multi_match": {"query": "ERROR refused", "type": "cross_fields", "operator": "and"}},
        "error refused",
    ),
    ({"term": {"status": "500"}}, "status:500"),
    ({"term": {"status.keyword": {"value": "500"}}}, "status:[500 TO 500]"),
    ({"term": {"host.keyword": "host"}}, "NOT *"),
    ({"term": {"host.keyword": "host 1"}}, 'host:"host 1"'),
    ({"term": {"ok": False}}, "ok:false"),
    ({"term": {"took": 1.5}}, "took:1.5"),
    ({"term": {"no_such": "x"}}, "NOT *"),
    ({"terms": {"status": ["500", "404"]}}, "status:500 OR status:404"),
    ({"terms": {"bytes": [10, 20, 30]}}, "bytes:10 OR bytes:20 OR bytes:30"),
    ({"terms": {"host.keyword": []}}, "NOT *"),
    ({"range": {"bytes": {"gte": 100, "lt": 200}}}, "bytes:[100 TO 200}"),
    ({"range": {"bytes": {"gt": "7100"}}}, "bytes:>7100"),
    ({"range": {"status": {"gte": 400}}}, "status:>=400"),
    ({"range": {"took": {"from": 1, "to": 2, "include_upper": False}}}, "took:[1 TO 2}"),
    ({"exists": {"field": "http.method"}}, "http_method:*"),
    ({"exists": {"field": "no_such"}}, "NOT *"),
    ({"prefix": {"message": "conn"}}, "message:conn*"),
    ({"prefix": {"host.keyword": {"value": "host "}}}, "host:*"),
    ({"wildcard": {"message": {"value": "c?nn*"}}}, "message:c?nn*"),
    ({"wildcard": {"host.keyword": "host*"}}, "host:*"),
    ({"query_string": {"query": "status:500 AND -db-0", "analyze_wildcard": True}}, "status:500 AND -db-0"),
    ({"query_string": {"query": 'host.keyword:"host 1"'}}, 'host:"host 1"'),
    ({"query_string": {"query": "refused", "default_field": "message"}}, "message:refused"),
    (
        {"query_string": {"query": "refused 1", "fields": ["message", "host"]}},
        "(message:refused OR host:refused) (message:1 OR host:1)",
    ),
    ({"query_string": {"query": "_exists_:http_method"}}, "http_method:*"),
    ({"query_string": {"query": "*"}}, ""),
    ({"simple_query_string": {"query": "refused db-1"}}, "refused db-1"),
    (
        {"bool": {"must": [{"match": {"message": "refused"}}], "must_not": {"term": {"host": "host 0"}}}},
        'message:refused NOT host:"host 0"',
    ),
    (
        {"bool": {"should": [{"term": {"bytes": 10}}, {"term": {"bytes": 20}}]}},
        "bytes:10 OR bytes:20",
    ),
    (
        {"bool": {"filter": {"term": {"ok": True}}, "should": [{"term": {"bytes": 10}}]}},
        "ok:true",
    ),
    (
        {
            "bool": {
                "should": [
                    {"term": {"ok": True}},
                    {"range": {"bytes": {"lt": 100}}},
                    {"exists": {"field": "took"}},
                ],
                "minimum_should_match": 3,
            }
        },
        "ok:true bytes:<100 took:*",
    ),
    (
        {
            "bool": {
                "should": [
                    {"term": {"ok": True}},
                    {"range": {"bytes": {"lt": 100}}},
                    {"match": {"host": "3"}},
                ],
                "minimum_should_match": "67%",
            }
        },
        "(ok:true bytes:<100) OR (ok:true host:3) OR (bytes:<100 host:3)",
    ),
    ({"constant_score": {"filter": {"term": {"status": "500"}}}}, "status:500"),
    (
        {"range": {"@timestamp": {"gte": SECOND.isoformat(), "lt": THIRD.isoformat()}}},
        ("", SECOND.isoformat(), THIRD.isoformat()),
    ),
    (
        {"range": {"@timestamp": {"gte": FROM_MS, "lte": FROM_MS + 60_000, "format": "epoch_millis"}}},
        ("", START.isoformat(), (START + timedelta(seconds=60, milliseconds=1)).isoformat()),
    ),
    (
        {
            "range": {
                "timestamp": {"gte": "2026-03-04T12:30", "lt": "2026-03-04T13:00", "time_zone": "+02:00"}
            }
        },
        ("", (START + timedelta(minutes=30)).isoformat(), (START + timedelta(hours=1)).isoformat()),
    ),
    (
        {"range": {"@timestamp": {"gt": "2026-03-04T10||/h", "lte": "2026-03-04T10||+1h+5m/m"}}},
        ("", (START + timedelta(hours=1)).isoformat(), (START + timedelta(minutes=66)).isoformat()),
    ),
    (
        {"range": {"@timestamp": {"lt": "now-1d/d", "gte": "2026-03-04T10:30:00Z"}}},
        ("", (START + timedelta(minutes=30)).isoformat(), END.isoformat()),
    ),
    (
        {
            "bool": {
                "filter": [
                    {"range": {"@timestamp": {"gte": "2026-03-04T10:10:00Z"}}},
                    {"bool": {"must": [{"match": {"message": "refused"}}]}},
                    {"query_string": {"query": "@timestamp:<2026-03-04T11:00:00Z"}},
                ]
            }
        },
        (
            "message:refused",
            (START + timedelta(minutes=10)).isoformat(),
            (START + timedelta(hours=1)).isoformat(),
        ),
    ),
    (
        {"bool": {"must_not": {"range": {"@timestamp": {"gte": "2026-03-04T11"}}}}},
        ("", START.isoformat(), (START + timedelta(hours=1)).isoformat()),
    ),
]


@pytest.mark.parametrize(("query", "same"), PAIRS)
def test_queries_find_what_the_same_search_finds(
    api: httpx.Client,
    elastic: Elasticsearch,
    opensearch: OpenSearch,
    shop: LogTable,
    index: str,
    query: Json | None,
    same: str | tuple[str, str, str],
) -> None:
    """Rows, their order and their number, by both clients."""
    expected = offsets_of(api, shop, same) if isinstance(same, str) else offsets_of(api, shop, *same)
    found = elastic.search(index=index, query=query, size=1_000)
    assert offsets_in(found["hits"]["hits"]) == expected
    assert found["hits"]["total"] == {"value": len(expected), "relation": "eq"}
    assert (found["timed_out"], found["_firn"]["as_usual"]) == (False, True)
    body = {} if query is None else {"query": query}
    assert opensearch.count(index=index, body=body)["count"] == len(expected)


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
    api: httpx.Client, elastic: Elasticsearch, shop: LogTable, index: str, query: Json
) -> None:
    """What a query becomes is a search like any other."""
    schema = load_view(shop.catalog, shop.id).schema
    search = search_of(Question(query, "", datetime.now(UTC)), shop.id, schema)
    body = {"tenant": shop.tenant, "query": search.query, "limit": 1_000, "engine": "trino"}
    times = {"from": START.isoformat(), "to": END.isoformat()}
    answer = api.post("/v1/search", json={**body, **times})
    found = elastic.search(index=index, query=query, size=1_000)["hits"]["hits"]
    assert [each["coordinates"]["offset"] for each in answer.json()["rows"]] == offsets_in(found)


def test_a_hit_is_the_row_that_the_search_api_shows(
    api: httpx.Client, elastic: Elasticsearch, shop: LogTable, index: str
) -> None:
    """Time, level, message and every field; its id finds it again."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": shop.tenant, "query": "bytes:[50 TO 60]", **times}
    expected = api.post("/v1/search", json=asked).json()["rows"]
    hits = elastic.search(index=index, query={"range": {"bytes": {"gte": 50, "lte": 60}}})["hits"]["hits"]
    for hit, shown in zip(hits, expected, strict=True):
        own = {name: shown[name] for name in ("observed_timestamp", "severity", "message", "level")}
        assert hit["_source"] == {"@timestamp": shown["timestamp"], **own, **shown["fields"]}
        assert hit["_index"] == index
    ids = [hit["_id"] for hit in hits]
    again = elastic.search(index=index, query={"ids": {"values": [*ids, "no id"]}})["hits"]
    assert ([hit["_id"] for hit in again["hits"]], again["total"]["value"]) == (ids, len(ids))


def test_source_and_fields_are_what_is_asked_for(elastic: Elasticsearch, index: str) -> None:
    """Patterns, exclusions, none at all; fields in lists, times as their format says."""
    query = {"term": {"bytes": 50}}

    def hit(**options: Any) -> Json:
        return dict(elastic.search(index=index, query=query, **options)["hits"]["hits"][0])

    assert hit(source=["b*", "ok"])["_source"] == {"bytes": 50, "ok": True}
    assert "host" not in hit(source_excludes=["h*"])["_source"]
    assert "_source" not in hit(source=False)
    time = {"field": "@timestamp", "format": "epoch_millis"}
    fields = hit(source=False, fields=["host.keyword", "http_*", time])["fields"]
    at_ms = FROM_MS + 50_000
    assert fields == {"host.keyword": ["host 0"], "http_method": ["GET"], "@timestamp": [at_ms]}


def test_pages_by_every_means_give_every_row_once(
    elastic: Elasticsearch, opensearch: OpenSearch, shop: LogTable, audit: LogTable
) -> None:
    """From and size, search_after with a point in time over two indices, scrolls of both clients."""
    both = f"{shop.tenant}.*"
    every = {(f"{shop.tenant}.logs", at) for at in range(ROWS)} | {
        (f"{shop.tenant}.audit", at) for at in range(60)
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
            size=7,
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


def test_search_after_a_time_alone_goes_on_behind_it(elastic: Elasticsearch, index: str) -> None:
    """As clients write it that know of no tie."""
    newest = elastic.search(index=index, sort="@timestamp:desc", size=1, search_after=[FROM_MS + 30_000])
    oldest = elastic.search(index=index, sort="@timestamp:asc", size=1, search_after=[FROM_MS + 30_000])
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


def test_totals_are_counted_as_far_as_they_are_wanted(elastic: Elasticsearch, index: str) -> None:
    """Exactly, up to a bound, not at all, or as a bare number."""

    def hits(**options: Any) -> Json:
        return dict(elastic.search(index=index, size=1, **options)["hits"])

    assert hits()["total"] == {"value": ROWS, "relation": "eq"}
    assert hits(track_total_hits=100)["total"] == {"value": 100, "relation": "gte"}
    assert "total" not in hits(track_total_hits=False)
    assert hits(rest_total_hits_as_int=True)["total"] == ROWS


def test_histograms_count_as_the_search_api(
    api: httpx.Client, elastic: Elasticsearch, shop: LogTable, index: str
) -> None:
    """Fixed and calendar intervals, a zone, empty buckets and bounds beyond the rows."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": shop.tenant, "query": "refused", "width_s": 600, **times}
    expected = api.post("/v1/histogram", json=asked).json()["buckets"]
    query = {"match": {"message": "refused"}}

    def buckets(**options: Any) -> list[Json]:
        aggs = {"t": {"date_histogram": {"field": "@timestamp", **options}}}
        return list(
            elastic.search(index=index, query=query, size=0, aggs=aggs)["aggregations"]["t"]["buckets"]
        )

    found = buckets(fixed_interval="10m")
    assert [(each["key_as_string"], each["doc_count"]) for each in found] == [
        (each["start"].replace("Z", ".000Z"), each["rows"]) for each in expected
    ]
    days = buckets(calendar_interval="day", time_zone="Asia/Tokyo", format="yyyy-MM-dd'T'HH:mmXXX")
    assert [(each["key_as_string"], each["doc_count"]) for each in days] == [("2026-03-04T00:00+09:00", 180)]
    reached = buckets(
        fixed_interval="1h",
        extended_bounds={"min": FROM_MS - 7_200_000, "max": TO_MS + 3_600_000},
        format="epoch_millis",
    )
    assert [each["doc_count"] for each in reached] == [0, 0, 90, 90, 0, 0]
    assert reached[0]["key_as_string"] == str(FROM_MS - 7_200_000)
    months = buckets(calendar_interval="1M", min_doc_count=1)
    assert [each["key_as_string"] for each in months] == ["2026-03-01T00:00:00.000Z"]


def test_terms_count_as_the_search_api(
    api: httpx.Client, elastic: Elasticsearch, shop: LogTable, index: str
) -> None:
    """The values and their rows; size, order, what stands for a missing value."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": shop.tenant, "field": "host", "limit": 10, **times}
    expected = {each["value"]: each["rows"] for each in api.post("/v1/values", json=asked).json()["values"]}

    def terms(field: str, **options: Any) -> Json:
        aggs = {"v": {"terms": {"field": field, **options}}}
        return dict(elastic.search(index=index, size=0, aggs=aggs)["aggregations"]["v"])

    found = terms("host.keyword")
    assert {each["key"]: each["doc_count"] for each in found["buckets"]} == expected
    least = terms("bytes", size=2, order={"_key": "desc"})
    assert [each["key"] for each in least["buckets"]] == [7190, 7180]
    assert least["sum_other_doc_count"] == ROWS - 2
    missing = terms("http_method", missing="none", order={"_count": "asc"})
    assert [(each["key"], each["doc_count"]) for each in missing["buckets"]] == [("none", 180), ("GET", 540)]
    assert [each["key_as_string"] for each in terms("ok")["buckets"]] == ["true", "false"]


def test_figures_are_those_of_the_rows(elastic: Elasticsearch, index: str) -> None:
    """Computed once more in plain Python."""
    numbers = [at * 10 for at in range(0, ROWS, 4)]
    field = {"field": "bytes"}
    kinds = ("min", "max", "avg", "sum", "stats", "value_count", "cardinality")
    aggs: Json = {kind: {kind: field} for kind in kinds}
    aggs["percentiles"] = {"percentiles": {**field, "percents": [0, 50, 100]}}
    aggs["steps"] = {"histogram": {**field, "interval": 1_000}}
    aggs["ranges"] = {"range": {**field, "ranges": [{"to": 100}, {"from": 100, "to": 200}, {"from": 200}]}}
    aggs["first"] = {"min": {"field": "@timestamp"}}
    query = {"term": {"status": "500"}}
    found = elastic.search(index=index, query=query, size=0, aggs=aggs)["aggregations"]
    total, mean = sum(numbers), sum(numbers) / len(numbers)
    assert [found[kind]["value"] for kind in ("min", "max", "sum", "value_count", "cardinality")] == [
        min(numbers),
        max(numbers),
        total,
        180,
        180,
    ]
    assert found["avg"]["value"] == pytest.approx(mean)
    assert found["stats"] == {
        "count": 180,
        "min": 0,
        "max": max(numbers),
        "avg": pytest.approx(mean),
        "sum": total,
    }
    assert found["percentiles"]["values"]["0.0"] == 0
    assert found["percentiles"]["values"]["100.0"] == max(numbers)
    assert found["percentiles"]["values"]["50.0"] in numbers
    steps = Counter(number // 1_000 * 1_000 for number in numbers)
    assert {each["key"]: each["doc_count"] for each in found["steps"]["buckets"]} == steps
    ranges = [(each["key"], each["doc_count"]) for each in found["ranges"]["buckets"]]
    assert ranges == [("*-100.0", 3), ("100.0-200.0", 2), ("200.0-*", 175)]
    assert found["first"] == {"value": FROM_MS, "value_as_string": "2026-03-04T10:00:00.000Z"}


def test_levels_of_buckets_stand_in_each_other(elastic: Elasticsearch, index: str) -> None:
    """Terms over time with figures in them, ordered by a figure; of the dsl of the client."""
    search = Search(using=elastic, index=index)[:0].query(Q("match", message="refused"))
    hosts = search.aggs.bucket("hosts", A("terms", field="host.keyword", size=2, order={"most": "desc"}))
    hosts.metric("most", "max", field="bytes")
    hosts.bucket("hours", "date_histogram", field="@timestamp", fixed_interval="1h").metric(
        "mean", "avg", field="bytes"
    )
    answer = search.execute()
    errors = [row(at) for at in range(0, ROWS, 4)]
    by_host: dict[str, list[Json]] = {}
    for each in errors:
        by_host.setdefault(each["host"], []).append(each)
    best = sorted(by_host, key=lambda host: -max(each["bytes"] for each in by_host[host]))[:2]
    assert [bucket.key for bucket in answer.aggregations.hosts.buckets] == best
    for bucket in answer.aggregations.hosts.buckets:
        assert bucket.doc_count == len(by_host[bucket.key])
        for hour in bucket.hours.buckets:
            own = [
                each["bytes"]
                for each in by_host[bucket.key]
                if int(each["timestamp"].timestamp()) // 3_600 * 3_600_000 == hour.key
            ]
            assert (hour.doc_count, hour.mean.value) == (len(own), pytest.approx(sum(own) / len(own)))


def test_several_indices_are_counted_together(
    elastic: Elasticsearch, shop: LogTable, audit: LogTable
) -> None:
    """Rows, terms, averages; what cannot be put together is an error that names it."""
    names = [f"{shop.tenant}.logs", f"{shop.tenant}.audit"]
    aggs: Json = {
        "hosts": {"terms": {"field": "host.keyword"}, "aggs": {"mean": {"avg": {"field": "bytes"}}}},
        "f": {"filters": {"filters": {"audit": {"term": {"_index": names[1]}}, "all": {"match_all": {}}}}},
    }
    found = elastic.search(index=",".join(names), size=0, aggs=aggs)
    rows = [(f"host {at % 5}", at * 10) for at in range(ROWS)] + [(f"host {at % 2}", at) for at in range(60)]
    assert found["hits"]["total"]["value"] == len(rows)
    assert found["_shards"]["total"] == 2
    for bucket in found["aggregations"]["hosts"]["buckets"]:
        own = [number for host, number in rows if host == bucket["key"]]
        assert (bucket["doc_count"], bucket["mean"]["value"]) == (
            len(own),
            pytest.approx(sum(own) / len(own)),
        )
    assert found["aggregations"]["f"]["buckets"] == {"audit": {"doc_count": 60}, "all": {"doc_count": 780}}
    with pytest.raises(BadRequestError, match="cardinality over 2 indices"):
        elastic.search(index=",".join(names), size=0, aggs={"n": {"cardinality": {"field": "host"}}})


def test_both_engines_answer_alike(
    stack: Stack, elastic: Elasticsearch, index: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Hits, totals and aggregations of an API that has all of it done by Trino."""
    folder = tmp_path_factory.mktemp("by-trino")
    settings = {"FIRN_QUERY_EMBEDDED__SCAN_BYTES_MAX": "0", "FIRN_QUERY_STATE": str(folder)}
    by_trino = Child("query", folder, {**stack.environment(), **settings}).start()
    figures: Json = {kind: {kind: {"field": "bytes"}} for kind in ("min", "max", "avg", "sum", "stats")}
    over_time = {"field": "@timestamp", "calendar_interval": "day", "time_zone": "Asia/Tokyo"}
    aggs: Json = {
        **figures,
        "first": {"min": {"field": "@timestamp"}},
        "hosts": {"terms": {"field": "host.keyword", "size": 3}, "aggs": figures},
        "steps": {"histogram": {"field": "took", "interval": 0.5, "min_doc_count": 1}},
        "days": {"date_histogram": over_time, "aggs": {"ok": {"terms": {"field": "ok"}}}},
        "tens": {"date_histogram": {"field": "@timestamp", "fixed_interval": "10m", "offset": "+3m"}},
        "filters": {"filters": {"filters": {"a": {"prefix": {"host.keyword": "host 1"}}}}},
        "ranges": {"range": {"field": "status", "ranges": [{"to": 300}, {"from": 300}]}},
    }
    queries: tuple[Json, ...] = (
        {"match_all": {}},
        {"bool": {"filter": {"match": {"message": "refused"}}, "must_not": {"term": {"host": "host 0"}}}},
    )
    try:
        with Elasticsearch(f"{by_trino.address}/elasticsearch", request_timeout=120) as trino:
            for query in queries:
                asked: Json = {"index": index, "query": query, "aggs": aggs, "size": 20}
                one, other = elastic.search(**asked), trino.search(**asked)
                assert other["hits"] == one["hits"]
                assert other["aggregations"] == one["aggregations"]
    finally:
        by_trino.kill()


def test_what_there_is_is_told(
    elastic: Elasticsearch, opensearch: OpenSearch, shop: LogTable, audit: LogTable, index: str
) -> None:
    """Versions, indices, aliases, mappings, capabilities of fields."""
    assert elastic.ping()
    assert opensearch.info()["version"]["number"] == elastic.info()["version"]["number"]
    listed: Any = elastic.cat.indices(index=f"{shop.tenant}.*", format="json")
    assert [(each["index"], each["docs.count"]) for each in listed] == [
        (f"{shop.tenant}.audit", "60"),
        (index, str(ROWS)),
    ]
    assert f"{index} {ROWS}" in opensearch.cat.indices(index=index, h="index,docs.count")
    assert dict(elastic.indices.get_alias(index=index)) == {index: {"aliases": {}}}
    assert elastic.indices.exists(index=index)
    assert not elastic.indices.exists(index=f"{shop.tenant}.nothing")
    properties = elastic.indices.get_mapping(index=index)[index]["mappings"]["properties"]
    assert properties["host"] == {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
    assert [properties[name]["type"] for name in ("@timestamp", "bytes", "ok", "took")] == [
        "date",
        "long",
        "boolean",
        "double",
    ]
    fields = opensearch.field_caps(index=f"{shop.tenant}.*", fields="*")["fields"]
    assert fields["bytes"]["long"]["aggregatable"]
    assert fields["host.keyword"]["keyword"]["searchable"]
    assert (
        elastic.field_caps(index=index, fields="@timestamp")["fields"]["@timestamp"]["date"]["type"] == "date"
    )
    assert elastic.cluster.health()["status"] == "green"


def test_many_searches_are_answered_each_by_itself(elastic: Elasticsearch, index: str) -> None:
    """An error among them is answered at its place."""
    searches: list[Json] = [
        {"index": index},
        {"size": 1, "query": {"match": {"message": "refused"}}},
        {"index": index},
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
        elastic.msearch(searches=[{"index": index}, {}] * 51)


def test_what_is_not_supported_is_an_error_that_names_it(
    elastic: Elasticsearch, opensearch: OpenSearch, index: str
) -> None:
    """In Elasticsearch's own form; writes are told of Kafka."""
    with pytest.raises(BadRequestError) as refused:
        elastic.search(index=index, query={"regexp": {"message": "a.*"}})
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
            elastic.search(index=index, size=0 if "aggs" in options else 1, **options)
    with pytest.raises(NotFoundError, match="no stream"):
        elastic.search(index=index + "x")
    with pytest.raises(ApiError, match="Kafka"):
        elastic.bulk(operations=[{"index": {"_index": index}}, {"message": "x"}])
    with pytest.raises(Exception, match="Kafka"):
        opensearch.bulk(body=[{"index": {"_index": index}}, {"message": "x"}])


def nested(depth: int) -> Json:
    """A query in so many others."""
    return {"bool": {"must": [nested(depth - 1)]}} if depth else {"match_all": {}}


def test_grafana_gets_what_its_panels_need(
    query_uri: str, shop: LogTable, audit: LogTable, index: str
) -> None:
    """The requests of its data source, and of each answer what its panels read."""
    times, max_bytes = (FROM_MS, TO_MS), {"1": {"max": {"field": "bytes"}}}
    filters = {"errors": "status:500", "fine": "NOT status:500"}
    named = {
        "count": grafana.metric(*times, "refused", "1m"),
        "figures": grafana.metric(*times, "*", "1h", max_bytes),
        "grouped": grafana.grouped(*times, "host.keyword", {"_key": "desc"}, "1h", max_bytes),
        "by figure": grafana.grouped(*times, "host.keyword", {"1": "desc"}, "1h", max_bytes),
        "filters": grafana.by_filters(*times, filters, "1h"),
        "steps": grafana.by_steps(*times, "bytes", 1_000),
        "logs": grafana.logs(*times, "refused"),
        "volume": grafana.logs_volume(*times, "", "severity.keyword", "1h"),
        "variable": grafana.terms_of_variable(*times, "host.keyword", "status:500"),
        "annotations": grafana.annotations(*times, "refused"),
    }
    found = dict(zip(named, msearch(query_uri, index, list(named.values())), strict=True))
    assert [name for name, answer in found.items() if answer["status"] != 200] == []
    over_time = found["count"]["aggregations"]["2"]["buckets"]
    assert (len(over_time), sum(each["doc_count"] for each in over_time)) == (121, 180)
    assert over_time[0]["key"] == FROM_MS
    figures = found["figures"]["aggregations"]["2"]["buckets"]
    assert [each["1"]["value"] for each in figures] == [3_590, 7_190, None]
    grouped = found["grouped"]["aggregations"]["3"]["buckets"]
    assert [each["key"] for each in grouped] == [f"host {at}" for at in (4, 3, 2, 1, 0)]
    assert [each["doc_count"] for each in grouped[0]["2"]["buckets"]] == [72, 72, 0]
    assert [each["key"] for each in found["by figure"]["aggregations"]["3"]["buckets"]][:2] == [
        "host 4",
        "host 3",
    ]
    by_filter = found["filters"]["aggregations"]["3"]["buckets"]
    assert {name: each["doc_count"] for name, each in by_filter.items()} == {"errors": 180, "fine": 540}
    assert [each["doc_count"] for each in by_filter["errors"]["2"]["buckets"]] == [90, 90, 0]
    assert [each["key"] for each in found["steps"]["aggregations"]["2"]["buckets"]] == list(
        range(0, 8_000, 1_000)
    )
    volume = found["volume"]["aggregations"]["3"]["buckets"]
    assert [(each["key"], each["doc_count"]) for each in volume] == [("info", 540), ("ERROR", 180)]
    assert [each["key"] for each in found["variable"]["aggregations"]["1"]["buckets"]] == [
        f"host {at}" for at in range(5)
    ]
    assert len(found["annotations"]["hits"]["hits"]) == 180
    lines = found["logs"]["hits"]
    assert (lines["total"]["value"], len(lines["hits"])) == (180, 180)
    first = lines["hits"][0]
    assert first["fields"]["@timestamp"] == ["2026-03-04T11:59:20.000716Z"]
    assert (first["_source"]["level"], len(first["sort"])) == ("error", 2)
    around = grafana.logs(*times, "refused", way="asc", after=lines["hits"][10]["sort"])
    (newer,) = msearch(query_uri, index, [around])
    assert [hit["_id"] for hit in newer["hits"]["hits"]] == [hit["_id"] for hit in lines["hits"][9::-1]]
    (several,) = msearch(query_uri, f"{shop.tenant}.*", [grafana.logs(*times, "")])
    assert several["hits"]["total"]["value"] == ROWS + 60


def msearch(uri: str, index: str, bodies: list[Json]) -> list[Json]:
    """The answers to searches as Grafana sends them."""
    lines = [line for body in bodies for line in (grafana.header(index), body)]
    answer = httpx.post(
        f"{uri}/elasticsearch/_msearch?max_concurrent_shard_requests=5",
        content="".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines),
        headers={"Content-Type": "application/x-ndjson", "User-Agent": "Grafana"},
        timeout=120.0,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    return list(answer.json()["responses"])


def test_grafana_checks_the_health_and_the_time_field(query_uri: str, index: str) -> None:
    """What it asks when the data source is saved."""
    with httpx.Client(base_url=f"{query_uri}/elasticsearch", timeout=60.0, trust_env=False) as client:
        assert client.get("/_cluster/health?wait_for_status=yellow").json()["status"] == "green"
        caps = client.get(f"/{index}/_field_caps?fields=@timestamp").json()
        assert "date" in caps["fields"]["@timestamp"]
        assert client.get("/").json()["version"]["build_flavor"] == "default"
        properties = client.get(f"/{index}/_mapping").json()[index]["mappings"]["properties"]
        assert all("type" in each for each in properties.values())


@pytest.mark.timeout(1_800)
def test_no_body_is_answered_with_a_500(query_uri: str, index: str) -> None:
    """Generated bodies, sound ones and damaged ones: an answer, or an error in Elasticsearch's form."""
    random, counted = Random(SEED), Counter[int]()
    with httpx.Client(base_url=f"{query_uri}/elasticsearch", timeout=120.0, trust_env=False) as client:
        for at in range(BODIES):
            body = random_body(random)
            answer = client.post(
                f"/{index}/_search",
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
