"""Parts of Elasticsearch's API that need no table: dates with math, places of hits, what goes on,
aggregations as they are read, put together and written."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from lake.log_schema import TIMESTAMP
from lake.tenant import TableId, TenantId
from query.elastic.aggregations import read_aggregations
from query.elastic.continuation import Scroll, pit_text, read_pit, read_scroll, scroll_text
from query.elastic.date_math import period_of
from query.elastic.elastic_error import JSON_BYTES_MAX, ElasticError, error_body
from query.elastic.evaluation import Counted, Wanted, counted_together, evaluated
from query.elastic.hits import Found, hits_of
from query.elastic.rendering import Rendering
from query.elastic.search_body import read_body
from query.elastic.sorting import Place, after_place, place_values, read_place, read_sort
from query.elastic.time_formats import time_text
from query.model.instant import EARLIEST, LATEST
from query.model.point_in_time import PointInTime
from query.search.results import Cursor
from query.search.search import SearchRequest
from query.stats.groups import ByTime
from query.stats.measures import Measure
from query.stats.stats import GROUPS_MAX, StatsAnswer

NOW = datetime(2026, 11, 27, 12, 34, 56, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 3, 4, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "zone", "start", "end"),
    [
        ("now", UTC, "2026-11-27T12:34:56", "2026-11-27T12:34:56.000001"),
        ("now-1h/h", UTC, "2026-11-27T11:00", "2026-11-27T12:00"),
        ("now/d", BERLIN, "2026-11-26T23:00", "2026-11-27T23:00"),
        ("now/w", UTC, "2026-11-23", "2026-11-30"),
        ("now+1M/M", UTC, "2026-12-01", "2027-01-01"),
        ("now/y", UTC, "2026-01-01", "2027-01-01"),
        ("2026-01-31||+1M", UTC, "2026-02-28", "2026-03-01"),
        ("2026-03-29T12:00||/d", BERLIN, "2026-03-28T23:00", "2026-03-29T22:00"),
        ("2026-03-04", BERLIN, "2026-03-03T23:00", "2026-03-04T23:00"),
        ("2026-03-04T10:00Z", BERLIN, "2026-03-04T10:00", "2026-03-04T10:01"),
        ("2026-03-04T10:00+02:00", UTC, "2026-03-04T08:00", "2026-03-04T08:01"),
        ("2026", UTC, "2026-01-01", "2027-01-01"),
        (1772618400000, BERLIN, "2026-03-04T10:00", "2026-03-04T10:00:00.001"),
        ("1772618400001", UTC, "2026-03-04T10:00:00.001", "2026-03-04T10:00:00.002"),
    ],
)
def test_times_with_math(value: Any, zone: Any, start: str, end: str) -> None:
    """Each is a period: of what is written, or of what it is rounded to."""
    found = period_of(value, NOW, zone)
    expected = tuple(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (start, end))
    assert (found.start, found.end) == expected


def test_seconds_are_told_by_the_format() -> None:
    """And what no calendar has is its nearest end, or an error."""
    assert period_of(1772618400, NOW, form="epoch_second").start == AT
    assert period_of("now-2000y", NOW).start.year == 26
    for wrong in ("now-", "now+1x", "2026-13-01", "x||/d", True, None, "9" * 30, 1e300, "now-999999y"):
        with pytest.raises(ElasticError, match="failed to parse date"):
            period_of(wrong, NOW)


def test_places_go_on_exactly_behind_a_row() -> None:
    """Within its index behind its coordinates; of indices before it behind its time, of those after it from
    its time on."""
    search = SearchRequest(TableId(TenantId("a"), "logs"), EARLIEST, LATEST)
    sort = read_sort([{"@timestamp": {"order": "desc", "unmapped_type": "boolean"}}, {"_doc": "desc"}])
    cursor = Cursor(1_772_618_400_000_000, "t", 0, 5, 0)
    values = place_values(sort, AT, cursor.to_text(), "b.logs")
    assert values[0] == 1_772_618_400_000
    place = read_place(values, sort, NOW)
    assert after_place(search, place, "b.logs", newest_first=True) == (search, cursor)
    before, none = after_place(search, place, "a.logs", newest_first=True)
    behind, _ = after_place(search, place, "c.logs", newest_first=True)
    assert before is not None
    assert behind is not None
    assert none is None
    assert (before.end, behind.end) == (AT, AT + timedelta(microseconds=1))
    assert after_place(search, Place(EARLIEST), "a.logs", newest_first=True) == (None, None)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("bytes", "sort by bytes"),
        ([{"@timestamp": "up"}], "asc or desc"),
        ([{"@timestamp": {"nested": {}}}], "sort.nested"),
        (["@timestamp:asc", "timestamp:desc"], "both directions"),
        ([1], "names and objects"),
    ],
)
def test_other_orders_are_errors(written: Any, said: str) -> None:
    """Each names what it does not know."""
    with pytest.raises(ElasticError, match=said):
        read_sort(written)


def test_hits_of_several_indices_end_where_one_broke_off() -> None:
    """Else rows of the others would hide those that it has yet to give."""
    body = read_body({"size": 10, "sort": "@timestamp:desc"}, NOW, 10_000)

    def rows(*seconds: int) -> list[dict[str, Any]]:
        names = ("observed_timestamp", "severity", "message", "_errors", "_overflow", "_topic")
        common = {"_topic_id": "t", "_topic_partition": 0, "_index": 0, **dict.fromkeys(names)}
        return [{TIMESTAMP: AT + timedelta(seconds=at), "_offset": at, **common} for at in seconds]

    found = [Found("b", list(rows(9, 7, 1))), Found("a", list(rows(8, 7)), AT + timedelta(seconds=7))]
    order = [(hit["_index"], hit["sort"][0] // 1_000 % 60) for hit in hits_of(found, body)]
    assert order == [("b", 9), ("a", 8), ("a", 7)]


def test_what_goes_on_says_all_by_itself() -> None:
    """And damaged or swollen texts are refused."""
    pin = PointInTime("uuid", {})
    assert read_pit(pit_text({"a.logs": pin})) == {"a.logs": pin}
    scroll = Scroll({"size": 5}, {"a.logs": pin.to_text()}, ["x"], {"value": 1, "relation": "eq"})
    assert read_scroll(scroll_text(scroll)) == scroll
    swollen = scroll_text(Scroll({"x": " " * 5_000_000}, {}, None, None))
    for wrong in ("", "x", pit_text({})[:-4], swollen, pit_text({"a": pin}), "e30", "=" * 2_000_000):
        with pytest.raises(ElasticError, match="damaged"):
            read_scroll(wrong)


def answered(aggs: Any, *answers: list[tuple[Any, ...]]) -> Any:
    """Aggregations of one table that gives these rows, one list for each statement."""
    steps, given = evaluated(read_aggregations(aggs), 1), iter(answers)
    try:
        wanted = next(steps)
        while True:
            width = len(wanted.groups)
            rows = {row[:width]: row[width:] for row in next(given)}
            wanted = steps.send(Counted(rows))
    except StopIteration as done:
        assert next(given, None) is None
        return Rendering(NOW).answer(done.value)


def test_days_of_a_zone_are_filled_over_the_change_of_the_clock() -> None:
    """Each begins at midnight there, also that of 23 hours."""
    aggs = {
        "t": {
            "date_histogram": {
                "field": "@timestamp",
                "calendar_interval": "day",
                "time_zone": "Europe/Berlin",
                "format": "yyyy-MM-dd HH:mm ZZ",
            }
        }
    }
    first, last = (datetime(2026, 3, day, tzinfo=BERLIN).astimezone(UTC) for day in (28, 31))
    found = answered(aggs, [(first, 2), (last, 1)])["t"]["buckets"]
    assert [(each["key_as_string"], each["doc_count"]) for each in found] == [
        ("2026-03-28 00:00 +01:00", 2),
        ("2026-03-29 00:00 +01:00", 0),
        ("2026-03-30 00:00 +02:00", 0),
        ("2026-03-31 00:00 +02:00", 1),
    ]


def test_bounds_beyond_the_calendar_end_with_it() -> None:
    """And too many buckets are an error, before they are made."""
    years = {
        "field": "@timestamp",
        "calendar_interval": "year",
        "extended_bounds": {"min": "9990-01-01", "max": "9999-12-30"},
    }
    assert len(answered({"t": {"date_histogram": years}}, [])["t"]["buckets"]) == 10
    seconds = {"field": "@timestamp", "fixed_interval": "1s", "extended_bounds": {"min": 0, "max": "now"}}
    steps = {"field": "n", "interval": 1e-9, "extended_bounds": {"min": -1e300, "max": 1e300}}
    for aggs in ({"date_histogram": seconds}, {"histogram": steps}):
        with pytest.raises(ElasticError, match="too many buckets"):
            answered({"a": aggs}, [])


def test_terms_come_in_the_order_that_is_asked_for() -> None:
    """By a figure, missing ones last; what is left out is counted."""
    aggs = {
        "v": {
            "terms": {"field": "host", "size": 2, "order": {"m.avg": "desc"}},
            "aggs": {"m": {"stats": {"field": "n"}}},
        }
    }
    rows = [("a", 3, 1, 5, 9, 3), ("b", 1, None, None, None, 0), ("c", 2, 4, 8, 12, 2), (None, 7, 1, 1, 1, 1)]
    found = answered(aggs, rows)["v"]
    assert [(each["key"], each["m"]["avg"]) for each in found["buckets"]] == [("c", 6), ("a", 3)]
    assert found["sum_other_doc_count"] == 1


def over_time(**options: Any) -> Any:
    """A histogram over time."""
    return {"a": {"date_histogram": {"field": "t", **options}}}


def test_tables_are_put_together_by_their_keys() -> None:
    """Sums, extremes; a table that told not all of its groups says how much may be missing."""
    measures = (Measure("count"), Measure("min", "n"), Measure("sum", "n"))
    group = ByTime(60)

    def wanted(*, is_top: bool) -> Wanted:
        return Wanted((group,), measures, groups_max=2, is_top=is_top)

    answers = [
        StatsAnswer([("a", 5, 1, 2), ("b", 4, None, None)], True, None),  # type: ignore[arg-type]
        StatsAnswer([("b", 2, 7, 9)], False, None),  # type: ignore[arg-type]
    ]
    found = counted_together(wanted(is_top=True), answers)
    assert (found.rows, found.left_out) == ({("a",): (5, 1, 2), ("b",): (6, 7, 9)}, 4)
    with pytest.raises(ElasticError, match=f"{GROUPS_MAX}"):
        counted_together(wanted(is_top=False), answers)


@pytest.mark.parametrize(
    ("aggs", "said"),
    [
        (over_time(fixed_interval="1500ms"), "1500ms"),
        (over_time(fixed_interval="2h", time_zone="Europe/Berlin"), "summer"),
        (over_time(calendar_interval="2d"), "calendar interval"),
        (over_time(), "fixed_interval"),
        ({"a": {"histogram": {"field": "n", "interval": 1, "extended_bounds": {"min": ""}}}}, "bounds"),
        ({"a": {"moving_avg": {}}}, "moving_avg"),
        ({"a": {}}, "one kind"),
        ({"a": {"terms": {}}}, "needs a .field."),
        ({"a": {"terms": {"field": "x", "include": "a"}}}, "terms.include"),
        ({"a": {"terms": {"field": "x", "order": {"y": "asc"}}}}, "Invalid aggregation order path"),
        (
            {"a": {"date_histogram": {"field": "t", "fixed_interval": "2h", "time_zone": "Europe/Berlin"}}},
            "summer",
        ),
        ({"a": {"date_histogram": {"field": "t", "calendar_interval": "2d"}}}, "calendar interval"),
        ({"a": {"date_histogram": {"field": "t"}}}, "fixed_interval"),
        ({"a": {"histogram": {"field": "n", "interval": 0}}}, ">0"),
        (
            {"a": {"histogram": {"field": "n", "interval": 1, "extended_bounds": {"min": "x"}}}},
            "extended_bounds",
        ),
        ({"a": {"percentiles": {"field": "n", "percents": [101]}}}, "0 to 100"),
        ({"a": {"avg": {"field": "n", "missing": 1}}}, "avg.missing"),
        ({"a": {"avg": {"field": "n"}, "aggs": {"b": {"avg": {"field": "n"}}}}}, "avg"),
        ({str(at): {"avg": {"field": "n"}} for at in range(200)}, "at most 100"),
    ],
)
def test_other_aggregations_are_errors_that_name_them(aggs: Any, said: str) -> None:
    """Before any table is asked."""
    with pytest.raises(ElasticError, match=said):
        read_aggregations(aggs)


def test_formats_of_times() -> None:
    """Java's patterns, as far as they are known."""
    at = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    assert time_text(at) == "2026-03-04T05:06:07.089Z"
    assert time_text(at, zone=east) == "2026-03-04T07:06:07.089+02:00"
    assert time_text(at, "epoch_second||x") == str(int(at.timestamp()))
    assert time_text(at, "yyyy/MM/dd 'at' HH:mm:ss.SSSXXX", east) == "2026/03/04 at 07:06:07.089+02:00"
    with pytest.raises(ElasticError, match="QQQ"):
        time_text(at, "QQQ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"suggest": {}}, "suggest"),
        ({"size": -1}, "size"),
        ({"size": "x"}, "size"),
        ({"from": 1, "size": 10_000}, "Result window"),
        ({"from": 1, "search_after": [1]}, "from"),
        ({"search_after": []}, "search_after"),
        ({"search_after": ["x@y"]}, "damaged"),
        ({"track_total_hits": "x"}, "track_total_hits"),
        ({"_source": {"x": []}}, "_source.x"),
        ({"fields": [1]}, "fields"),
        ({"query": {"match": {"message": "x" * JSON_BYTES_MAX}}}, "bytes of JSON"),
        ({"aggs": []}, None),
        ([], "body"),
    ],
)
def test_bodies_are_checked_before_any_table_is_asked(body: Any, said: str | None) -> None:
    """Empty parts mean nothing."""
    if said is None:
        assert read_body(body, NOW, 10_000).aggs == {}
        return
    with pytest.raises(ElasticError, match=said):
        read_body(body, NOW, 10_000)


def test_errors_have_the_form_that_clients_read() -> None:
    """A type and a reason, twice, and the status."""
    body = orjson.loads(orjson.dumps(error_body("parsing_exception", "why", 400)))
    assert body["error"]["root_cause"] == [{"type": "parsing_exception", "reason": "why"}]
    assert (body["error"]["reason"], body["status"]) == ("why", 400)
