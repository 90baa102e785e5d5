"""Who is due, as looking at all would find it."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.commit.schedule import Schedule

ONES = st.integers(0, 5)
STEPS = st.lists(st.one_of(st.tuples(st.just("put"), ONES, st.integers(0, 9)), st.tuples(ONES), st.none()))


@given(STEPS)
def test_it_finds_who_is_due(steps: list[tuple[str, int, int] | tuple[int] | None]) -> None:
    """Whatever is put, put elsewhere and taken away, while time goes on."""
    schedule, moments, now = Schedule[int](), dict[int, int](), 0
    for step in steps:
        match step:
            case None:
                now += 1
            case (one,):
                schedule.discard(one)
                moments.pop(one, None)
            case (_, one, moment):
                schedule.put(one, moment)
                moments[one] = moment
        assert set(schedule.due(now)) == {one for one, moment in moments.items() if moment <= now}


def test_who_is_due_first_stands_first() -> None:
    """Who waits longest is served first; who is put again waits anew."""
    schedule = Schedule[str]()
    for one, moment_s in (("late", 2.0), ("early", 1.0), ("never", 9.0)):
        schedule.put(one, moment_s)
    assert list(schedule.due(3.0)) == ["early", "late"]
    schedule.put("early", 2.5)
    assert list(schedule.due(3.0)) == ["late", "early"]
    schedule.put("late", 2.0)
    assert list(schedule.due(3.0)) == ["late", "early"]
