"""The requests of Grafana's Elasticsearch data source, and of each answer what its panels read."""

import json
from typing import Any

import httpx
import pytest

from tests.query.support import grafana_requests as grafana
from tests.query.support.elastic_shop import (
    FROM_MS,
    ROWS,
    TO_MS,
    ElasticShop,
)

pytestmark = pytest.mark.stack
Json = dict[str, Any]


def test_grafana_gets_what_its_panels_need(query_uri: str, elastic_shop: ElasticShop) -> None:
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
    found = dict(zip(named, msearch(query_uri, elastic_shop.index, list(named.values())), strict=True))
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
    (newer,) = msearch(query_uri, elastic_shop.index, [around])
    assert [hit["_id"] for hit in newer["hits"]["hits"]] == [hit["_id"] for hit in lines["hits"][9::-1]]
    (several,) = msearch(query_uri, f"{elastic_shop.logs.tenant}.*", [grafana.logs(*times, "")])
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


def test_grafana_checks_the_health_and_the_time_field(query_uri: str, elastic_shop: ElasticShop) -> None:
    """What it asks when the data source is saved."""
    with httpx.Client(base_url=f"{query_uri}/elasticsearch", timeout=60.0, trust_env=False) as client:
        assert client.get("/_cluster/health?wait_for_status=yellow").json()["status"] == "green"
        caps = client.get(f"/{elastic_shop.index}/_field_caps?fields=@timestamp").json()
        assert "date" in caps["fields"]["@timestamp"]
        assert client.get("/").json()["version"]["build_flavor"] == "default"
        properties = client.get(f"/{elastic_shop.index}/_mapping").json()[elastic_shop.index]["mappings"][
            "properties"
        ]
        assert all("type" in each for each in properties.values())
