"""What a table says of its days."""

from datetime import date, timedelta

import pytest

from lake.day_counts import COUNT_MAX, DAYS_KEPT, DAYS_PROPERTY, DayCount, counted_day, day_counts

DAY = date(2026, 11, 26)


def test_commits_of_a_day_add_up_and_old_days_go() -> None:
    """Each day for itself; the property does not grow."""
    said: dict[str, str] = {}
    for at in range(DAYS_KEPT + 3):
        for _ in range(2):
            said = counted_day(said, DAY + timedelta(days=at), DayCount(3, 100 + at))
    counts = day_counts(said)
    assert len(counts) == DAYS_KEPT
    assert min(counts) == (DAY + timedelta(days=3)).isoformat()
    assert counts[max(counts)] == DayCount(6, 2 * (100 + DAYS_KEPT + 2))


def test_a_count_stays_one_that_a_table_can_hold() -> None:
    """However much somebody has written there."""
    said = {DAYS_PROPERTY: f'{{"2026-11-26":[{COUNT_MAX},{COUNT_MAX}]}}'}
    assert day_counts(counted_day(said, DAY, DayCount(5, 5))) == {
        "2026-11-26": DayCount(COUNT_MAX, COUNT_MAX)
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "7",
        '{"2026-11-26":7}',
        '{"2026-11-26":[1]}',
        '{"2026-11-26":[1,-1]}',
        '{"2026-11-26":[1,true]}',
        '{"2026-11-26":[1,"2"]}',
        '{"20261126":[1,2]}',
        '{"tomorrow":[1,2]}',
        '{"2026-11-26":[1,9223372036854775808]}',
    ],
)
def test_what_is_no_count_is_left_out(text: str) -> None:
    """Whoever may write to a table may write its properties; the next commit counts from nothing."""
    assert day_counts({DAYS_PROPERTY: text}) == {}
    assert day_counts(counted_day({DAYS_PROPERTY: text}, DAY, DayCount(1, 2))) == {
        "2026-11-26": DayCount(1, 2)
    }
