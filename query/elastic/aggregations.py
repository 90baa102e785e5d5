"""Aggregations as they are asked for: a tree of buckets and figures, checked before any table is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from query.elastic.date_math import zone_of
from query.elastic.elastic_error import (
    ElasticError,
    malformed,
    number_in,
    object_of,
    only_known,
    unsupported,
)
from query.elastic.fields import KEYWORD
from query.elastic.intervals import calendar_of, fixed_s, offset_s
from query.stats.groups import ByNumber, ByTime, ByValue, Group

LEVELS_MAX = 3
NAMED_MAX, FILTERS_MAX, TERMS_MAX = 100, 50, 10_000
PERCENTS = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)
METRICS = frozenset({"min", "max", "avg", "sum", "stats", "value_count", "cardinality", "percentiles"})
_METRIC = frozenset({"field", "format", "precision_threshold", "percents", "keyed", "tdigest", "hdr"})
_META = frozenset({"aggs", "aggregations", "meta"})
_TIMES = frozenset({"field", "fixed_interval", "calendar_interval", "interval", "time_zone", "offset"})
_TIMES |= {"min_doc_count", "extended_bounds", "format", "keyed", "order"}
_STEPS = frozenset({"field", "interval", "offset", "min_doc_count", "extended_bounds", "keyed", "order"})
_TERMS = frozenset({"field", "size", "order", "missing", "min_doc_count"})
# What tells several shards apart, of which there are none.
_OF_SHARDS = {"shard_size", "shard_min_doc_count", "show_term_doc_count_error", "collect_mode"}
_OF_SHARDS |= {"execution_hint"}


@dataclass(frozen=True, slots=True)
class Metric:
    """Figures of a field. `percents`: of percentiles."""

    name: str
    kind: str
    field: str
    percents: tuple[float, ...] = ()
    is_keyed: bool = True


@dataclass(frozen=True, slots=True)
class Bucket:
    """Groups of rows by the values of a field (`group`), or by queries (`named`). `order`: what groups come
    by, `_key`, `_count` or a metric (`name` or `name.part`), and whether downwards."""

    name: str
    kind: str
    group: Group | None = None
    named: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    size: int = TERMS_MAX
    order: tuple[str, bool] = ("_key", False)
    count_min: int = 1
    keeps_missing: bool = False
    is_keyed: bool = False
    form: str = ""
    zone: tzinfo | None = None
    reaches: tuple[Any, Any] | None = None
    metrics: tuple[Metric, ...] = ()
    buckets: tuple["Bucket", ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregations:
    """What is asked for at one level."""

    metrics: tuple[Metric, ...] = ()
    buckets: tuple[Bucket, ...] = ()


def read_aggregations(written: Mapping[str, Any], level: int = 0) -> Aggregations:
    """Reads the aggregations of a search. Raises ElasticError for what is wrong or not supported."""
    if len(written) > NAMED_MAX:
        raise ElasticError(
            f"{len(written):,} aggregations are asked for at one level, at most {NAMED_MAX} may be"
        )
    metrics: list[Metric] = []
    buckets: list[Bucket] = []
    for name, given in written.items():
        asked = object_of(given, f"aggs.{str(name)[:60]}")
        kinds = [kind for kind in asked if kind not in _META]
        if len(kinds) != 1:
            raise malformed(f"[aggs.{str(name)[:60]}] names one kind of aggregation")
        kind, body = kinds[0], object_of(asked[kinds[0]], kinds[0])
        under = object_of(asked.get("aggs", asked.get("aggregations")) or {}, "aggs")
        if kind in METRICS and not under:
            metrics.append(_metric(name, kind, body))
        elif kind in _READERS:
            if level >= LEVELS_MAX:
                raise unsupported(f"aggs.{name[:60]}: more than {LEVELS_MAX} levels of buckets")
            buckets.append(_READERS[kind](name, body, read_aggregations(under, level + 1)))
        else:
            known = ", ".join(sorted(METRICS | _READERS.keys()))
            raise unsupported(f"aggs.{name[:60]}: {kind[:60]}", f"these are: {known}")
    return Aggregations(tuple(metrics), tuple(buckets))


def _metric(name: str, kind: str, body: Mapping[str, Any]) -> Metric:
    only_known({key: value for key, value in body.items() if value is not None}, kind, _METRIC)
    percents: tuple[float, ...] = ()
    if kind == "percentiles":
        listed = body.get("percents") or list(PERCENTS)
        try:
            percents = tuple(float(each) for each in listed)
        except (TypeError, ValueError):
            raise malformed("[percents] is a list of numbers") from None
        if len(percents) > NAMED_MAX or not all(0 <= each <= 100 for each in percents):
            raise malformed(f"[percents] is a list of {NAMED_MAX} numbers from 0 to 100 at most")
    return Metric(name, kind, field_in(body, kind), percents, bool(body.get("keyed", True)))


def field_in(body: Mapping[str, Any], kind: str) -> str:
    """The name of the field an aggregation is about. Raises ElasticError."""
    name = body.get("field")
    if not isinstance(name, str) or not name or len(name) > 300:
        raise malformed(f"[{kind}] needs a [field]")
    return name.removesuffix(KEYWORD)


def _date_histogram(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    only_known(body, "date_histogram", _TIMES)
    zone, field_name = zone_of(body.get("time_zone", "UTC")), field_in(body, "date_histogram")
    offset = offset_s(body.get("offset"))
    written = body.get("fixed_interval", body.get("calendar_interval", body.get("interval")))
    calendar = (
        None if "fixed_interval" in body else calendar_of(written, is_strict="calendar_interval" in body)
    )
    if calendar in ("day", "week", "month", "quarter", "year"):
        if offset:
            raise unsupported("date_histogram.offset of a calendar_interval")
        group = ByTime(calendar=calendar, zone=zone_name(zone), field=field_name)
    else:
        width_s = {"minute": 60, "hour": 3_600}[calendar] if calendar else fixed_s(written)
        group = ByTime(width_s, offset_s=(offset + _shift_s(zone, width_s)) % width_s, field=field_name)
    return Bucket(
        name,
        "date_histogram",
        group,
        count_min=_count_min(body, 0),
        order=_order(body, ("_key", False), under),
        is_keyed=bool(body.get("keyed")),
        form=str(body.get("format") or ""),
        zone=zone,
        reaches=_reaches(body),
        metrics=under.metrics,
        buckets=under.buckets,
    )


def _shift_s(zone: tzinfo, width_s: int) -> int:
    """By how much buckets of a width are moved so that they begin at round times of a zone. Raises
    ElasticError where its summer would move them again."""
    if isinstance(zone, timezone):
        return -int((zone.utcoffset(None) or timedelta()).total_seconds())
    if 3_600 % width_s == 0 and isinstance(zone, ZoneInfo):
        return -int((datetime(2026, 1, 1, tzinfo=zone).utcoffset() or timedelta()).total_seconds())
    raise unsupported("date_histogram.fixed_interval in a time zone with summer time", "calendar_interval is")


def zone_name(zone: tzinfo) -> str:
    """A zone by a name that engines have. Raises ElasticError."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    hours, rest = divmod(int((zone.utcoffset(None) or timedelta()).total_seconds()), 3_600)
    if rest or not -12 <= hours <= 14:
        raise unsupported("date_histogram.time_zone of parts of an hour", "the name of a zone is")
    return f"Etc/GMT{-hours:+d}" if hours else "UTC"


def _histogram(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    only_known(body, "histogram", _STEPS)
    width, offset = _number(body.get("interval"), "interval"), _number(body.get("offset", 0), "offset")
    if not width > 0:
        raise ElasticError("[interval] must be >0 for histogram aggregation")
    reaches = _reaches(body)
    for bound in reaches or ():
        _number(0 if bound is None else bound, "extended_bounds")
    return Bucket(
        name,
        "histogram",
        ByNumber(field_in(body, "histogram"), width, offset % width),
        count_min=_count_min(body, 0),
        order=_order(body, ("_key", False), under),
        is_keyed=bool(body.get("keyed")),
        reaches=_reaches(body),
        metrics=under.metrics,
        buckets=under.buckets,
    )


def _number(written: Any, what: str) -> float:
    try:
        number = float(written)
    except (TypeError, ValueError):
        raise malformed(f"[{what}] must be a number") from None
    if number != number or number in (float("inf"), float("-inf")) or isinstance(written, bool):
        raise malformed(f"[{what}] must be a number")
    return number


def _terms(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    only_known({key: value for key, value in body.items() if key not in _OF_SHARDS}, "terms", _TERMS)
    missing = body.get("missing")
    if isinstance(missing, list | dict):
        raise malformed("[missing] is a value")
    order = _order(body, ("_count", True), under)
    return Bucket(
        name,
        "terms",
        ByValue(field_in(body, "terms"), missing),
        size=number_in(body.get("size", 10), "terms.size", 1, TERMS_MAX),
        order=order,
        count_min=max(1, _count_min(body, 1)),
        keeps_missing=missing is not None,
        metrics=under.metrics,
        buckets=under.buckets,
    )


def _order(body: Mapping[str, Any], default: tuple[str, bool], under: Aggregations) -> tuple[str, bool]:
    written = body.get("order")
    if not written:
        return default
    listed = written if isinstance(written, list) else [written]
    first = object_of(listed[0], "order")  # further ones only part what is equal
    if len(first) != 1:
        raise malformed("[order] names what groups come by")
    ((by, way),) = first.items()
    if str(way).lower() not in ("asc", "desc"):
        raise malformed("[order] goes asc or desc")
    path = {"_term": "_key", "_time": "_key"}.get(by, by)
    names = {"_key", "_count", *(each.name for each in under.metrics)}
    if path.partition(".")[0].partition("[")[0] not in names:
        raise ElasticError(
            f"Invalid aggregation order path [{path[:60]}]: it is _key, _count or a figure of the same groups"
        )
    return path, str(way).lower() == "desc"


def _count_min(body: Mapping[str, Any], default: int) -> int:
    return number_in(body.get("min_doc_count", default), "min_doc_count", 0, 2**62)


def _reaches(body: Mapping[str, Any]) -> tuple[Any, Any] | None:
    if not body.get("extended_bounds"):
        return None
    bounds = object_of(body["extended_bounds"], "extended_bounds")
    only_known(bounds, "extended_bounds", frozenset({"min", "max"}))
    return bounds.get("min"), bounds.get("max")


def _range(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    only_known(body, "range", frozenset({"field", "ranges", "keyed"}))
    field_name, ranges = field_in(body, "range"), body.get("ranges")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= FILTERS_MAX:
        raise malformed(f"[ranges] is a list of 1 to {FILTERS_MAX} ranges")
    named: dict[str, dict[str, Any]] = {}
    bounds: dict[str, tuple[float | None, float | None]] = {}
    for each in ranges:
        only_known(object_of(each, "ranges"), "range.ranges", frozenset({"key", "from", "to"}))
        low, high = (None if each.get(end) is None else _number(each[end], end) for end in ("from", "to"))
        key = str(each.get("key") or f"{'*' if low is None else low}-{'*' if high is None else high}")
        named[key] = {"range": {field_name: {"gte": low, "lt": high}}}
        bounds[key] = low, high
    return _of_queries(name, "range", named, under, bounds, is_keyed=bool(body.get("keyed")))


def _filters(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    only_known(body, "filters", frozenset({"filters"}))
    written = body.get("filters")
    is_keyed = isinstance(written, dict)
    if isinstance(written, list):
        written = {str(at): each for at, each in enumerate(written)}
    if not isinstance(written, dict) or not 0 < len(written) <= FILTERS_MAX:
        raise malformed(f"[filters] has 1 to {FILTERS_MAX} queries")
    named = {key: dict(object_of(each, "filters")) for key, each in written.items()}
    return _of_queries(name, "filters", named, under, {}, is_keyed=is_keyed)


def _filter(name: str, body: Mapping[str, Any], under: Aggregations) -> Bucket:
    return _of_queries(name, "filter", {"": dict(body)}, under, {}, is_keyed=True)


def _of_queries(
    name: str,
    kind: str,
    named: Mapping[str, dict[str, Any]],
    under: Aggregations,
    bounds: Mapping[str, tuple[float | None, float | None]],
    *,
    is_keyed: bool,
) -> Bucket:
    return Bucket(
        name,
        kind,
        named=named,
        bounds=bounds,
        is_keyed=is_keyed,
        metrics=under.metrics,
        buckets=under.buckets,
    )


_READERS = {
    "date_histogram": _date_histogram,
    "histogram": _histogram,
    "terms": _terms,
    "range": _range,
    "filters": _filters,
    "filter": _filter,
}
