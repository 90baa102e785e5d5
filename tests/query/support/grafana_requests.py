"""What Grafana's Elasticsearch data source sends, as its public source says (`pkg/tsdb/elasticsearch`,
`public/app/plugins/datasource/elasticsearch`), written down anew: the searches of one `_msearch`."""

from typing import Any

Body = dict[str, Any]


def header(index: str) -> Body:
    """The line before each search."""
    return {"ignore_unavailable": True, "index": index, "search_type": "query_then_fetch"}


def filtered(from_ms: int, to_ms: int, query: str = "") -> Body:
    """Every search's query: the time range, and the query of the panel where there is one."""
    within = {"range": {"@timestamp": {"gte": from_ms, "lte": to_ms, "format": "epoch_millis"}}}
    if not query:
        return {"bool": {"filter": within}}
    return {"bool": {"filter": [within, {"query_string": {"analyze_wildcard": True, "query": query}}]}}


def over_time(from_ms: int, to_ms: int, width: str, count_min: int = 0) -> Body:
    """The histogram of a panel."""
    return {
        "field": "@timestamp",
        "fixed_interval": width,
        "min_doc_count": count_min,
        "extended_bounds": {"min": from_ms, "max": to_ms},
        "format": "epoch_millis",
    }


def metric(from_ms: int, to_ms: int, query: str, width: str, aggs: Body | None = None) -> Body:
    """A panel of a count, or of figures, over time."""
    histogram: Body = {"date_histogram": over_time(from_ms, to_ms, width)}
    if aggs:
        histogram["aggs"] = aggs
    return {"query": filtered(from_ms, to_ms, query), "size": 0, "aggs": {"2": histogram}}


def grouped(from_ms: int, to_ms: int, field: str, order: Body, width: str, aggs: Body) -> Body:
    """A panel of figures over time by the terms of a field, which may be ordered by one of the figures."""
    by = next(iter(order))
    own = {name: agg for name, agg in aggs.items() if name == by.partition(".")[0].partition("[")[0]}
    inner = {"2": {"date_histogram": over_time(from_ms, to_ms, width), "aggs": aggs}}
    terms = {"terms": {"field": field, "size": 10, "order": order, "min_doc_count": 1}, "aggs": inner | own}
    return {"query": filtered(from_ms, to_ms, "*"), "size": 0, "aggs": {"3": terms}}


def by_filters(from_ms: int, to_ms: int, filters: dict[str, str], width: str) -> Body:
    """A panel of counts over time by queries."""
    named = {
        label: {"query_string": {"analyze_wildcard": True, "query": query}}
        for label, query in filters.items()
    }
    inner = {"2": {"date_histogram": over_time(from_ms, to_ms, width)}}
    aggs = {"3": {"filters": {"filters": named}, "aggs": inner}}
    return {"query": filtered(from_ms, to_ms), "size": 0, "aggs": aggs}


def by_steps(from_ms: int, to_ms: int, field: str, width: int) -> Body:
    """A histogram of a number."""
    steps = {"histogram": {"field": field, "interval": width, "min_doc_count": 0}}
    return {"query": filtered(from_ms, to_ms), "size": 0, "aggs": {"2": steps}}


def logs(from_ms: int, to_ms: int, query: str, *, way: str = "desc", after: Any = None) -> Body:
    """The lines of a logs panel and of Explore, and with `after` those around one of them."""
    asked: Body = {
        "docvalue_fields": ["@timestamp"],
        "fields": [{"field": "@timestamp", "format": "strict_date_optional_time_nanos"}],
        "highlight": {
            "fields": {"*": {}},
            "fragment_size": 2_147_483_647,
            "post_tags": ["@/HIGHLIGHT@"],
            "pre_tags": ["@HIGHLIGHT@"],
        },
        "query": filtered(from_ms, to_ms, query),
        "script_fields": {},
        "size": 500,
        "sort": {"@timestamp": {"order": way, "unmapped_type": "boolean"}, "_doc": {"order": way}},
    }
    return asked if after is None else asked | {"search_after": after}


def logs_volume(from_ms: int, to_ms: int, query: str, level: str, width: str) -> Body:
    """The bars above the lines of Explore: counts over time by level."""
    inner = {"2": {"date_histogram": over_time(from_ms, to_ms, width)}}
    terms = {
        "field": level,
        "size": 500,
        "order": {"_term": "desc"},
        "min_doc_count": 1,
        "missing": "unknown",
    }
    aggs = {"3": {"terms": terms, "aggs": inner}}
    return {"query": filtered(from_ms, to_ms, query), "size": 0, "aggs": aggs}


def terms_of_variable(from_ms: int, to_ms: int, field: str, query: str) -> Body:
    """The values of a variable: `{"find": "terms", "field": ..., "query": ...}`."""
    terms = {"field": field, "size": 500, "order": {"_key": "asc"}}
    return {"query": filtered(from_ms, to_ms, query), "size": 0, "aggs": {"1": {"terms": terms}}}


def annotations(from_ms: int, to_ms: int, query: str) -> Body:
    """The rows that are marked in panels."""
    within = {"range": {"@timestamp": {"from": from_ms, "to": to_ms, "format": "epoch_millis"}}}
    should = {"bool": {"should": [within], "minimum_should_match": 1}}
    return {
        "query": {"bool": {"filter": [should, {"query_string": {"query": query}}]}},
        "size": 10_000,
    }
