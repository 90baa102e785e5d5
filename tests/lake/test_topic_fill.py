"""What a table's properties say of the past of a topic that a backfill has brought in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import ProtocolError
from lake.marks import Range, TopicPartition
from lake.topic_fill import TopicFill, all_fills, fill_property, filled_ends, join, parse_fill

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda p: Range(*p)), max_size=8)


def _offsets(ranges: list[Range]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


@given(RANGES, st.integers(0, 30))
def test_stretches_hold_exactly_the_offsets_that_were_joined(ranges: list[Range], at: int) -> None:
    """Joined one by one or at once, they are in order, neither overlap nor touch, and tell of every offset
    whether it is there."""
    fill = TopicFill("t")
    for each in ranges:
        fill = fill.joined(1, each)
    found = list(fill.of(1))
    assert tuple(found) == join(ranges)
    assert _offsets(found) == _offsets(ranges)
    assert all(one.end < other.start for one, other in pairwise(found))
    assert fill.has(1, at) == (at in _offsets(ranges))
    assert fill.next(1, at) == next(offset for offset in range(at, 100) if offset not in _offsets(ranges))
    assert parse_fill({fill_property("id"): fill.to_property()}, "id") == fill


def test_property_is_of_a_topic() -> None:
    """One property for each topic; other properties say nothing."""
    fill = TopicFill("t", {0: (Range(0, 3), Range(5, 9)), 2: (Range(1, 2),)})
    properties = {fill_property("id"): fill.to_property(), "firn.backfill.0123": "{}", "firn.offsets": "{}"}
    assert fill.to_property() == '{"v":1,"topic":"t","filled":{"0":[[0,3],[5,9]],"2":[[1,2]]}}'
    assert parse_fill(properties, "other") is None
    assert all_fills(properties) == {
        TopicPartition("id", 0): (Range(0, 3), Range(5, 9)),
        TopicPartition("id", 2): (Range(1, 2),),
    }
    assert filled_ends(properties) == {TopicPartition("id", 0): 9, TopicPartition("id", 2): 2}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "7",
        "{}",
        '{"v":1,"topic":"t"}',
        '{"v":1,"topic":"t","filled":{"0":[[1]]}}',
        '{"v":2,"topic":"t","filled":{}}',
    ],
)
def test_unreadable_property_is_an_error(value: str) -> None:
    """It is not taken for none: the records would be read again."""
    with pytest.raises(ProtocolError):
        parse_fill({fill_property("id"): value}, "id")
