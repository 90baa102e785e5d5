"""Random bodies of Elasticsearch's `_search`: most are what clients send, some are damaged in one place."""

from collections.abc import Callable
from random import Random
from typing import Any

FIELDS = (
    *("message", "message", "status", "status.keyword", "bytes", "took", "ok", "host", "host.keyword"),
    *("@timestamp", "timestamp", "severity", "no_such", "no.such.keyword", "_id", "_index", "_errors"),
    *("*", "born", "id"),
)
VALUES: tuple[Any, ...] = (
    *("refused", "refused", "500", "500", 500, 200, 0, -1, 1.5, True, False, "", "\u00e9"),
    *("connection refused", "a*b?", "2026-03-04", "2026-03-04T10:00:00Z", "now-1h", "now/d", "1e5"),
    *(1772618400000, "1772618400000", "host 1", '"', "\\", "[1 TO 5]", "AND", "\x00", "x" * 300, 10**30),
    *("2026-03-04||+1M/M", None, [], {}),
)
STRINGS = (
    *("refused", "status:500 AND refused", "host:*", "bytes:[1 TO 9}", "*:*", "-x", "_exists_:ok", "*"),
    *('host.keyword:"host 1"', "@timestamp:[now-1d TO now]", "NOT (a b)", "status.keyword:5*", "host:h?st"),
    *("~", "a^2", "/re/", 'x:"', "ok:maybe", "a OR", "("),
)
TIMES = ("@timestamp", "timestamp", "born", "bytes", "no_such")


def random_body(random: Random) -> Any:
    """One body."""
    body: dict[str, Any] = {"size": random.choice((0, 0, 0, 1, 5, 5, 20, "3"))}
    if random.random() < 0.03:
        body["size"] = random.choice((10_000, 10_001, -1, 1.5, None))
    if random.random() < 0.85:
        body["query"] = _query(random, 0)
    if random.random() < 0.5:
        body["aggs"] = _aggs(random, 0)
    for name, make in _OPTIONS.items():
        if random.random() < 0.03:
            body[name] = make(random)
    return _damaged(random, body) if random.random() < 0.08 else body


def _query(random: Random, depth: int) -> Any:
    name = random.choice((*_QUERIES, "bool", "bool") if depth < 4 else tuple(_QUERIES))
    if name == "bool":
        return {"bool": _bool(random, depth)}
    return {name: _QUERIES[name](random)}


def _bool(random: Random, depth: int) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name in ("must", "filter", "should", "must_not"):
        if random.random() < 0.5:
            listed = [_query(random, depth + 1) for _ in range(random.randrange(4))]
            parts[name] = listed[0] if len(listed) == 1 and random.random() < 0.5 else listed
    if random.random() < 0.3:
        parts["minimum_should_match"] = random.choice((0, 1, 2, "50%", "-1", "x", 9))
    return parts


def _field(random: Random) -> str:
    return random.choice(FIELDS)


def _value(random: Random) -> Any:
    return random.choice(VALUES)


def _range(random: Random) -> dict[str, Any]:
    bounds = {end: _value(random) for end in ("gte", "gt", "lte", "lt") if random.random() < 0.5}
    if random.random() < 0.3:
        bounds["format"] = random.choice(("epoch_millis", "epoch_second", "date_optional_time", "yyyy"))
    if random.random() < 0.3:
        bounds["time_zone"] = random.choice(("UTC", "+02:00", "Europe/Berlin", "Nowhere", "../etc", ""))
    return {_field(random): bounds}


def _of_words(random: Random) -> dict[str, Any]:
    given = _value(random)
    if random.random() < 0.4:
        given = {"query": given, "operator": random.choice(("and", "or", "xor"))}
    return {_field(random): given}


def _string(random: Random) -> dict[str, Any]:
    given: dict[str, Any] = {"query": random.choice(STRINGS), "analyze_wildcard": True}
    if random.random() < 0.3:
        given["fields"] = [_field(random) for _ in range(random.randrange(3))]
    if random.random() < 0.1:
        given["default_operator"] = random.choice(("AND", "OR"))
    return given


_PATTERNS = ("*", "h*", "*st*", "h?st", "", "host*", "\\")
_QUERIES: dict[str, Callable[[Random], Any]] = {
    "match_all": lambda _: {},
    "match_none": lambda _: {},
    "match": _of_words,
    "match_phrase": lambda random: {_field(random): _value(random)},
    "match_phrase_prefix": lambda random: {_field(random): _value(random)},
    "multi_match": lambda random: {
        "query": _value(random),
        "fields": [_field(random) for _ in range(random.randrange(4))],
        "type": random.choice(("best_fields", "phrase", "cross_fields", "phrase_prefix", "x")),
    },
    "term": lambda random: {
        _field(random): random.choice((_value(random), {"value": _value(random)}, {"value": 1, "boost": 2}))
    },
    "terms": lambda random: {_field(random): [_value(random) for _ in range(random.randrange(5))]},
    "range": _range,
    "exists": lambda random: {"field": _field(random)},
    "prefix": lambda random: {_field(random): _value(random)},
    "wildcard": lambda random: {_field(random): random.choice(_PATTERNS)},
    "query_string": _string,
    "simple_query_string": _string,
    "ids": lambda random: {"values": [_value(random) for _ in range(random.randrange(3))]},
    "fuzzy": lambda random: {_field(random): _value(random)},
    "constant_score": lambda random: {"filter": _query(random, 4)},
}


def _aggs(random: Random, depth: int) -> dict[str, Any]:
    return {str(at): _agg(random, depth) for at in range(random.choice((0, 1, 1, 1, 2)))}


def _agg(random: Random, depth: int) -> dict[str, Any]:
    kind = random.choice(tuple(_BUCKETS) if random.random() < 0.5 and depth < 4 else tuple(_METRICS))
    if kind in _METRICS:
        return {kind: {"field": _field(random), **_METRICS[kind](random)}}
    made: dict[str, Any] = {kind: _BUCKETS[kind](random)}
    if random.random() < 0.6:
        made["aggs"] = _aggs(random, depth + 1)
    return made


def _date_histogram(random: Random) -> dict[str, Any]:
    width = random.choice(
        (
            {"fixed_interval": random.choice(("10m", "1h", "1d", "1s", "500ms", "0s", "x", None, 5))},
            {"calendar_interval": random.choice(("day", "1M", "week", "1q", "year", "minute", "2d"))},
            {"interval": random.choice(("1h", "1d", "month"))},
        )
    )
    more = random.choice(
        (
            {},
            {"min_doc_count": random.choice((0, 1, 5, "x"))},
            {"min_doc_count": 0, "extended_bounds": {"min": 1772618400000, "max": 1772625600000}},
            {"extended_bounds": {"min": "now-100y", "max": "now"}},
            {"time_zone": random.choice(("Europe/Berlin", "+05:30", "-03:00", "Nowhere"))},
            {"format": random.choice(("epoch_millis", "yyyy-MM-dd", "QQQ", "HH:mm"))},
            {"offset": random.choice(("+6h", "-1h", "x", 0)), "keyed": True},
            {"order": random.choice(({"_key": "desc"}, {"_count": "asc"}, {"x": "asc"}, {"_key": 1}))},
        )
    )
    return {"field": random.choice(TIMES), **width, **more}


_BUCKETS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "date_histogram": _date_histogram,
    "histogram": lambda random: {
        "field": _field(random),
        "interval": random.choice((100, 1_000, 0.5, 0, -1, "x", "50", 1e-9)),
        "min_doc_count": random.choice((0, 1)),
    },
    "terms": lambda random: {
        "field": _field(random),
        "size": random.choice((1, 3, 10, 500, 0, "5", 10**9)),
        **random.choice(
            (
                {},
                {"order": {random.choice(("_key", "_count", "_term", "0", "1.avg", "0[50.0]")): "desc"}},
                {"missing": random.choice(("none", 0, False, []))},
                {"min_doc_count": random.choice((0, 1, 100))},
                {"include": "a.*"},
            )
        ),
    },
    "range": lambda random: {
        "field": _field(random),
        "ranges": [{end: _value(random)} for end in ("from", "to") if random.random() < 0.7],
    },
    "filters": lambda random: {"filters": {"a": _query(random, 3), "b": _query(random, 3)}},
    "filter": lambda random: _query(random, 3),
    "significant_terms": lambda random: {"field": _field(random)},
}
_METRICS: dict[str, Callable[[Random], dict[str, Any]]] = {
    **{name: lambda _: {} for name in ("min", "max", "avg", "sum", "stats", "value_count", "cardinality")},
    "percentiles": lambda random: random.choice(
        (
            {},
            {"percents": [50, "95"]},
            {"percents": [101]},
            {"percents": "x"},
            {"keyed": False},
        )
    ),
    "extended_stats": lambda _: {},
}
_OPTIONS: dict[str, Callable[[Random], Any]] = {
    "from": lambda random: random.choice((0, 1, 9_999, "x", -1)),
    "sort": lambda random: random.choice(
        (
            "@timestamp",
            ["_doc"],
            [{"@timestamp": "asc"}, "_score"],
            {"@timestamp": {"order": "desc", "unmapped_type": "boolean"}, "_doc": {"order": "desc"}},
            [{"bytes": "desc"}],
            [{"@timestamp": {"order": "up"}}],
            [1],
        )
    ),
    "search_after": lambda random: [_value(random) for _ in range(random.randrange(3))],
    "_source": lambda random: random.choice(
        (True, False, "host", ["h*", "bytes"], {"includes": ["*"], "excludes": "host"}, 5, {"x": 1})
    ),
    "fields": lambda random: [random.choice((_field(random), {"field": _field(random), "format": "x"}, 3))],
    "track_total_hits": lambda random: random.choice((True, False, 10, 0, -1, "x")),
    "pit": lambda _: {"id": "AAAA"},
    "highlight": lambda _: {"fields": {"*": {}}},
    "script_fields": lambda random: random.choice(({}, {"x": {"script": "1"}})),
    "knn": lambda _: {"field": "v"},
}


def _damaged(random: Random, body: Any) -> Any:
    """The body with one value of it, somewhere, put in place of another."""
    if isinstance(body, dict) and body and random.random() < 0.8:
        name = random.choice(list(body))
        return {**body, name: _damaged(random, body[name])}
    if isinstance(body, list) and body and random.random() < 0.8:
        at = random.randrange(len(body))
        return [*body[:at], _damaged(random, body[at]), *body[at + 1 :]]
    return _value(random)
