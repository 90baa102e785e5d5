"""The planner of the Spark engine: bounds, balance, and what stays together."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.node.engines.spark_plan import (
    PIECE_RECORDS_MIN,
    TASK_RECORDS_MIN,
    Capacity,
    Lag,
    OffsetRange,
    Spread,
    plan,
    waiting,
)

SMALL = Capacity(slots=4, records_max=100_000, bytes_max=100_000_000)
LAGS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 3_000_000), st.floats(1, 100_000), st.booleans()),
    max_size=12,
)


@given(LAGS, st.integers(1, 8))
def test_ranges_begin_where_the_lag_begins_and_leave_no_gap(
    drawn: list[tuple[int, int, float, bool]], slots: int
) -> None:
    """Whatever waits: no task is empty or has two ranges of a source, pieces of a source join, and nothing
    beyond its end is read."""
    lags = [
        Lag(source, start, start + records, size, measured)
        for source, (start, records, size, measured) in enumerate(drawn)
    ]
    tasks = plan(lags, Capacity(slots, 100_000, 50_000_000))
    assert len(tasks) <= slots
    for ranges in tasks:
        assert ranges
        assert len({each.source for each in ranges}) == len(ranges)
    for lag in lags:
        pieces = sorted(
            (each for ranges in tasks for each in ranges if each.source == lag.source),
            key=lambda each: each.start,
        )
        assert bool(pieces) == bool(lag.records)
        at = lag.start
        for piece in pieces:
            assert piece.start == at < piece.end <= lag.end
            at = piece.end
        assert len(pieces) <= 1 or (lag.measured and all(piece.whole for piece in pieces))


def test_tasks_are_bounded_by_records_and_bytes_and_who_lags_most_catches_up_most() -> None:
    """A job takes as much as the slots hold, of each partition the same share of what waits."""
    lags = [Lag(0, 0, 900_000, 100.0), Lag(1, 50, 300_050, 100.0)]
    taken = [
        sum(each.end - each.start for ranges in plan(lags, SMALL) for each in ranges if each.source == source)
        for source in (0, 1)
    ]
    assert taken == [300_000, 100_000]
    heavy = plan([Lag(0, 0, 1_000_000, 10_000.0)], SMALL)
    assert sum(each.end - each.start for ranges in heavy for each in ranges) == 40_000
    assert plan([Lag(0, 5, 6, 1e12)], SMALL) == [[OffsetRange(0, 5, 6)]]


def test_little_is_one_task_and_more_is_spread() -> None:
    """A table gets a file from every task that meets it, so tasks have to be worth it."""
    quiet = [Lag(source, 0, TASK_RECORDS_MIN // 50, 300.0) for source in range(20)]
    assert len(plan(quiet, SMALL)) == 1
    busy = [Lag(source, 0, TASK_RECORDS_MIN, 300.0) for source in range(20)]
    assert [len(ranges) for ranges in plan(busy, SMALL)] == [5, 5, 5, 5]


def test_only_a_hot_partition_is_split_and_only_when_its_records_are_known() -> None:
    """Pieces are worth reading apart; a partition of which nothing was read yet may have to end early, and
    then it has to be one range."""
    hot = Lag(0, 0, 8 * PIECE_RECORDS_MIN // 2, 10.0)
    tasks = plan([hot, Lag(1, 0, 1_000, 10.0)], SMALL)
    assert sorted(each.start for ranges in tasks for each in ranges if each.source == 0) == [
        0,
        50_000,
        100_000,
        150_000,
    ]
    assert len(plan([Lag(0, 0, hot.end, 10.0, measured=False)], SMALL)) == 1
    assert plan([], SMALL) == []
    assert waiting([hot], SMALL) == 2.0


def test_small_parts_are_handed_on_only_when_the_files_saved_cost_more_than_the_way() -> None:
    """Ten thousand tables in both of two tasks: yes. Each table in one task, few tables, or parts that are
    hardly small: no."""
    assert Spread(20_000, 10_000, 480_000_000).pays_to_hand_on
    assert not Spread(10_000, 10_000, 480_000_000).pays_to_hand_on
    assert not Spread(100, 50, 20_000_000).pays_to_hand_on
    assert not Spread(2_000, 1_000, 2_000 * 250_000).pays_to_hand_on
    assert not Spread().pays_to_hand_on
