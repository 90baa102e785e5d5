"""Queries of Elasticsearch's DSL beside the same in the search language."""

from datetime import timedelta
from typing import Any

from tests.query.support.elastic_shop import END, FROM_MS, START

Json = dict[str, Any]
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
