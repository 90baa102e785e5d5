"""Aggregations by a real client of Elasticsearch: their figures are those of the search API, and of plain
Python."""

from collections import Counter
from typing import Any

import httpx
import pytest
from elasticsearch import BadRequestError, Elasticsearch
from elasticsearch.dsl import A, Q, Search

from infra.local.supervisor import Stack
from tests.query.support.elastic_shop import END, FROM_MS, ROWS, START, TO_MS, ElasticShop, row
from tests.query.support.processes import Child

pytestmark = pytest.mark.stack
Json = dict[str, Any]


def test_histograms_count_as_the_search_api(
    api: httpx.Client, elastic: Elasticsearch, elastic_shop: ElasticShop
) -> None:
    """Fixed and calendar intervals, a zone, empty buckets and bounds beyond the rows."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": elastic_shop.logs.tenant, "query": "refused", "width_s": 600, **times}
    expected = api.post("/v1/histogram", json=asked).json()["buckets"]
    query = {"match": {"message": "refused"}}

    def buckets(**options: Any) -> list[Json]:
        aggs = {"t": {"date_histogram": {"field": "@timestamp", **options}}}
        return list(
            elastic.search(index=elastic_shop.index, query=query, size=0, aggs=aggs)["aggregations"]["t"][
                "buckets"
            ]
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
    api: httpx.Client, elastic: Elasticsearch, elastic_shop: ElasticShop
) -> None:
    """The values and their rows; size, order, what stands for a missing value."""
    times = {"from": START.isoformat(), "to": END.isoformat()}
    asked = {"tenant": elastic_shop.logs.tenant, "field": "host", "limit": 10, **times}
    expected = {each["value"]: each["rows"] for each in api.post("/v1/values", json=asked).json()["values"]}

    def terms(field: str, **options: Any) -> Json:
        aggs = {"v": {"terms": {"field": field, **options}}}
        return dict(elastic.search(index=elastic_shop.index, size=0, aggs=aggs)["aggregations"]["v"])

    found = terms("host.keyword")
    assert {each["key"]: each["doc_count"] for each in found["buckets"]} == expected
    least = terms("bytes", size=2, order={"_key": "desc"})
    assert [each["key"] for each in least["buckets"]] == [7190, 7180]
    assert least["sum_other_doc_count"] == ROWS - 2
    missing = terms("http_method", missing="none", order={"_count": "asc"})
    assert [(each["key"], each["doc_count"]) for each in missing["buckets"]] == [("none", 180), ("GET", 540)]
    assert [each["key_as_string"] for each in terms("ok")["buckets"]] == ["true", "false"]


def test_figures_are_those_of_the_rows(elastic: Elasticsearch, elastic_shop: ElasticShop) -> None:
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
    found = elastic.search(index=elastic_shop.index, query=query, size=0, aggs=aggs)["aggregations"]
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


def test_levels_of_buckets_stand_in_each_other(elastic: Elasticsearch, elastic_shop: ElasticShop) -> None:
    """Terms over time with figures in them, ordered by a figure; of the dsl of the client."""
    search = Search(using=elastic, index=elastic_shop.index)[:0].query(Q("match", message="refused"))
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


def test_several_indices_are_counted_together(elastic: Elasticsearch, elastic_shop: ElasticShop) -> None:
    """Rows, terms, averages; what cannot be put together is an error that names it."""
    names = [f"{elastic_shop.logs.tenant}.logs", f"{elastic_shop.logs.tenant}.audit"]
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
    stack: Stack, elastic: Elasticsearch, elastic_shop: ElasticShop, tmp_path_factory: pytest.TempPathFactory
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
                asked: Json = {"index": elastic_shop.index, "query": query, "aggs": aggs, "size": 20}
                one, other = elastic.search(**asked), trino.search(**asked)
                assert other["hits"] == one["hits"]
                assert other["aggregations"] == one["aggregations"]
    finally:
        by_trino.kill()
