"""Pins come from links, which anybody may write: how much work one asks for has a bound."""

import time

import pytest

from lake.marks import Range, TopicPartition
from query.language.search_sql import within_offsets
from query.model.point_in_time import RANGES_MAX, PointInTime, parse_point_in_time
from query.model.problem import BadRequestError

pytestmark = pytest.mark.finding(19)


def pin_of(partitions: int, ranges: int) -> PointInTime:
    """So many partitions with so many ranges each."""
    every = tuple(Range(at * 10, at * 10 + 5) for at in range(ranges))
    return PointInTime(
        "11111111-2222-3333-4444-555555555555",
        {TopicPartition(f"topic-{at % 3}", at): every for at in range(partitions)},
    )


@pytest.mark.parametrize(("partitions", "ranges"), [(9_000, 1), (1, 9_000), (90, 100), (RANGES_MAX + 1, 1)])
def test_a_pin_of_thousands_of_ranges_is_refused(partitions: int, ranges: int) -> None:
    """However they are spread over partitions; the sentence says how many are allowed."""
    with pytest.raises(BadRequestError, match=r"at most 2,000 are allowed"):
        parse_point_in_time(pin_of(partitions, ranges).to_text())


@pytest.mark.long
def test_as_many_ranges_as_are_allowed_cost_little() -> None:
    """Their condition is made, copied and written in a moment of processor time (14.7 s for 9,000 before),
    and a partition is compared once."""
    pin = parse_point_in_time(pin_of(20, RANGES_MAX // 20).to_text())
    before_s = time.process_time()
    sql = within_offsets(pin.committed).copy().sql(dialect="duckdb")
    assert time.process_time() - before_s < 3.0
    assert sql.count('"_topic_partition"') == 20
    assert sql.count('"_offset" <') == RANGES_MAX


def test_pins_keep_their_rows() -> None:
    """Ranges in and out are the same."""
    pin = pin_of(3, 4)
    assert parse_point_in_time(pin.to_text()) == pin
