"""Which hours become days, and which days months: pure decisions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from lake.catalog_client import TableName
from lake.data_file import DataFile
from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from lake.span import Span, Unit
from optimize.cold import ColdSpans
from optimize.merged_file import merged_file_uri
from optimize.planner import Engine, Standing, TableFacts, TablePlan, plan_table
from optimize.table_view import Partition
from tests.optimize.support.maintained import utc
from tests.optimize.support.small_files import hour_of

MIB = 1024 * 1024
SETTINGS = OptimizeSettings.load()
NOW = utc(2026, 11, 20, 12)
NOW_MS = int(NOW.timestamp() * 1000)
DAY = Span.holding(Unit.DAY, hour_of(utc(2026, 11, 3, 0)))
MONTH = Span.holding(Unit.MONTH, hour_of(utc(2026, 9, 3, 0)))


def file(hour: int, size: int = MIB, at: int = 0) -> DataFile:
    return DataFile(f"file:///t/data/{hour}/{at:032x}.parquet", hour, 10, size)


def hours(span: Span, size: int = MIB, count: int | None = None) -> list[Partition]:
    return [Partition(hour, (file(hour, size),)) for hour in span.hours[:count]]


def of_span(span: Span, size: int = MIB, merged_ms: int = 0) -> Partition:
    uri = merged_file_uri("file:///t", span, merged_ms)
    return Partition(span, (DataFile(uri, None, 10, size, span=span),))


def plan(
    partitions: list[Partition], now: datetime = NOW, properties: Mapping[str, str] | None = None
) -> TablePlan:
    now_ms, properties = int(now.timestamp() * 1000), properties or {}
    facts = TableFacts(
        TableName("acme", "logs"),
        "acme",
        1,
        1,
        (),
        has_been_replaced=False,
        properties=properties,
        cold=ColdSpans.of(properties, None, SETTINGS, now_ms),
    )
    return plan_table(facts, partitions, SETTINGS, now_ms)


def test_hours_of_a_day_become_one_file_a_week_after_its_end() -> None:
    """Not a moment earlier; all hours in one group, of the day's partition."""
    cold_from = utc(2026, 11, 11, 0)
    early = plan(hours(DAY), cold_from - (cold_from - utc(2026, 11, 10, 23, 59)))
    assert not any(isinstance(each.partition, Span) for each in early.partitions)
    (merge,) = plan(hours(DAY), cold_from).merges
    assert (merge.partition, merge.engine, merge.saved_files) == (DAY, Engine.ARROW, 23)
    assert [each.hour for each in merge.files] == list(DAY.hours)


def test_a_single_small_hour_becomes_its_day_as_well() -> None:
    """So no file stays as ingestion wrote it, and who asks for cold hours finds none that is done."""
    (merge,) = plan(hours(DAY, 5_000, count=1)).merges
    assert (merge.partition, merge.saved_files) == (DAY, 0)


def test_hours_that_would_become_a_full_file_stay() -> None:
    """128 MiB in all: each hour is merged, or not, by itself."""
    told = plan(hours(DAY, 128 * MIB // 24 + 1))
    assert {each.partition for each in told.partitions} == set(DAY.hours)
    small = plan(hours(DAY, 100), properties={"write.target-file-size-bytes": "2000"})
    assert not any(isinstance(merge.partition, Span) for merge in small.merges)


def test_days_and_left_hours_become_a_month() -> None:
    """Where they do not fit into one, its days are made and stay."""
    first = Span(Unit.DAY, MONTH.hours.start // 24)
    days = [of_span(Span(Unit.DAY, first.value + at)) for at in range(1, 30)]
    (merge,) = plan([*days, *hours(first)]).merges
    assert (merge.partition, merge.saved_files) == (MONTH, 29 + 24 - 1)
    large = [replace(each, files=(replace(each.files[0], size_bytes=5 * MIB),)) for each in days]
    (merge,) = plan([*large, *hours(first)]).merges
    assert (merge.partition, merge.saved_files) == (first, 23)


def test_a_file_of_a_span_alone_is_done() -> None:
    """Nothing is due for it, whenever it was made."""
    (only,) = plan([of_span(DAY)]).partitions
    assert only.standing is Standing.UP_TO_DATE


def test_late_rows_of_a_cold_day_wait_for_its_rest() -> None:
    """A day after its last merge they are written into the day's file; until then two late files of an hour
    become one, as in any hour."""
    hour = DAY.hours[5]
    for age_s, wanted in ((86_399, Standing.COOLING_DOWN), (86_400, Standing.DUE)):
        own = of_span(DAY, merged_ms=NOW_MS - age_s * 1000)
        late = Partition(hour, (file(hour), file(hour, at=1)))
        told = {each.partition: each for each in plan([late, own]).partitions}
        assert told[DAY].standing is wanted
        assert (hour in told) == (wanted is Standing.COOLING_DOWN)
    merge = told[DAY].merge
    assert merge is not None
    assert merge.saved_files == 2


def test_equality_deletes_and_files_of_other_formats_leave_a_span_alone() -> None:
    """Such hours stay hours."""
    two, hour = hours(DAY, 5_000, count=2), DAY.hours[2]
    odd = file(hour, 5_000)
    assert not plan([*two, Partition(hour, (odd,), equality_delete_files=1)]).merges
    assert not plan([*two, Partition(hour, (replace(odd, file_format="ORC"),))]).merges


@pytest.mark.parametrize(
    ("properties", "kept_h", "units"),
    [
        ({}, None, (Unit.MONTH, Unit.DAY)),
        ({}, 310 * 24, (Unit.MONTH, Unit.DAY)),
        ({}, 309 * 24, (Unit.DAY,)),
        ({}, 10 * 24, (Unit.DAY,)),
        ({}, 239, ()),
        ({"firn.key": '["id"]'}, None, ()),
    ],
)
def test_a_span_is_a_tenth_of_the_retention_at_most(
    properties: dict[str, str], kept_h: int | None, units: Any
) -> None:
    """A table with a key has none."""
    assert ColdSpans.of(properties, kept_h, SETTINGS, NOW_MS).units == units


def test_a_late_hour_reaches_all_that_may_become_one_file_with_it() -> None:
    """Also spans that the table may not have any more: they may be there. An hour that is not cold reaches
    itself."""
    cold, hour = ColdSpans.of({}, None, SETTINGS, NOW_MS), DAY.hours[5]
    assert cold.reach([hour]) == {*DAY.parts()}
    old = MONTH.hours[5]
    assert cold.reach([old]) >= {*MONTH.parts()}
    some = ColdSpans.of({}, 20 * 24, SETTINGS, NOW_MS)
    assert some.reach([old]) == {*Span.holding(Unit.DAY, old).parts(), MONTH}
    now_hour = NOW_MS // MS_PER_HOUR
    assert cold.reach([now_hour]) == {now_hour}


def test_times_out_of_the_calendar_stay_hours() -> None:
    """A record may claim the year -5, which other programs could not read as a day."""
    hour = Span(Unit.MONTH, -(1_975 * 12)).hours[3]
    assert not plan([Partition(hour, (file(hour, 5_000),))]).merges
    assert ColdSpans.of({}, None, SETTINGS, NOW_MS).reach([hour]) == {hour}


def test_a_large_hour_beside_its_day_is_not_given_to_spark() -> None:
    """rewrite_data_files would write the day's rows into hours."""
    hour, property_ = DAY.hours[5], {"write.target-file-size-bytes": str(2_048 * MIB)}
    large = Partition(hour, (file(hour, 400 * MIB), file(hour, 400 * MIB, at=1)))
    facts = TableFacts(
        TableName("a", "logs"),
        "a",
        1,
        1,
        (),
        has_been_replaced=False,
        properties=property_,
        spanned=DAY.hours,
    )
    (only,) = plan_table(facts, [large], SETTINGS, NOW_MS).partitions
    assert only.standing is Standing.TOO_LARGE
    (only,) = plan_table(replace(facts, spanned=frozenset()), [large], SETTINGS, NOW_MS).partitions
    assert only.merge is not None
    assert only.merge.engine is Engine.SPARK
