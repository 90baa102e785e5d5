"""The rule says of what grows that it does, and of what goes up and down that it does not."""

import numpy as np
import pytest

from tests.simulation.growth import Design, by_design, judged, verdicts
from tests.simulation.weekly import of_most_days

WEEKS = 11


def _week(number: int, **changed: float) -> dict[str, object]:
    operation = {
        "cpu_ms": 2.0,
        "statements": 3.0,
        "reads": 1.0,
        "read_bytes": 900,
        "writes": 2.0,
        "written_bytes": 5_000,
    }
    return {
        "week": number,
        "tables": {"level": {"files": {"median": 20.0, "p99": 80.0, "max": 300.0}}},
        "operations": {"commit": {**operation, **changed}},
        "maintenance_cpu_s_per_hour": 1.0,
        "fresh": {"commit": {"cpu_ms": 1.5}, "plan": {"cpu_ms": 1.0}, "flush": {"cpu_ms": 1.0}},
        "database": {"used_bytes": 1e6, "rows_tables": 100},
        "memory_mb": {"catalog": 100.0},
        "kept": {"node_tables": 100},
    }


def _growing(weeks: list[dict[str, object]]) -> set[str]:
    return {verdict.series for verdict in verdicts(weeks) if verdict.grows}


def test_what_stays_does_not_grow() -> None:
    """Everything that must not grow is looked at."""
    weeks = [_week(number) for number in range(1, WEEKS)]
    assert _growing(weeks) == set()
    assert {verdict.series for verdict in verdicts(weeks)} >= {
        "tables.level.files.p99",
        "operations.commit.statements",
        "operations.commit.cpu",
        "maintenance.cpu",
        "database.rows_tables",
        "memory.catalog",
        "kept.node_tables",
    }


@pytest.mark.parametrize("a_week", [0.02, 0.05, 0.3])
def test_what_grows_steadily_is_found(a_week: float) -> None:
    """However small its steps are: by their sum."""
    weeks = [_week(number, read_bytes=900 * (1 + a_week) ** number) for number in range(1, WEEKS)]
    assert _growing(weeks) == {"operations.commit.read_bytes"}


def test_what_goes_up_and_down_is_let_be() -> None:
    """Traffic is never the same twice."""
    draws = np.random.default_rng(5)
    for _ in range(20):
        weeks = [_week(number, read_bytes=900 * draws.uniform(0.97, 1.03)) for number in range(1, WEEKS)]
        assert _growing(weeks) == set()


def test_the_first_weeks_may_grow() -> None:
    """Until what most tenants keep has levelled off."""
    weeks = [_week(number, read_bytes=300 * min(number, 3)) for number in range(1, WEEKS)]
    assert _growing(weeks) == set()


def test_a_busy_machine_is_no_growth() -> None:
    """Times are compared with those on a fresh catalog in the same week."""
    weeks = []
    for number in range(1, WEEKS):
        week = _week(number, cpu_ms=2.0 * number)
        week["fresh"] = {name: {"cpu_ms": 1.5 * number} for name in ("commit", "plan", "flush")}
        week["maintenance_cpu_s_per_hour"] = 1.0 * number
        weeks.append(week)
    assert _growing(weeks) == set()
    for week in weeks:
        week["fresh"] = {name: {"cpu_ms": 1.5} for name in ("commit", "plan", "flush")}
    assert _growing(weeks) == {"operations.commit.cpu", "maintenance.cpu"}


def test_one_week_decides_nothing() -> None:
    """A third week that was cheap, or a last one that was dear: of a count it is told that it is above."""
    for name, told in (("cpu_ms", 0), ("read_bytes", 1)):
        for at, share in ((3, 0.6), (WEEKS - 1, 1.75)):
            costs = [900.0 * (share if number == at else 1) for number in range(WEEKS)]
            weeks = [_week(number, **{name: costs[number]}) for number in range(1, WEEKS)]
            assert _growing(weeks) == set()
            assert len([verdict for verdict in verdicts(weeks) if verdict.is_above]) == told


def test_a_step_is_found() -> None:
    """Also one that is so young that the line through all weeks does not show it."""
    for since in (6, WEEKS - 2):
        weeks = [_week(number, read_bytes=900 if number < since else 1_100) for number in range(1, WEEKS)]
        assert _growing(weeks) == {"operations.commit.read_bytes"}, since


@pytest.mark.parametrize("a_week", [0.03, 0.3])
def test_a_time_that_grows_steadily_is_found(a_week: float) -> None:
    """Although each week is a little off the line."""
    draws = np.random.default_rng(7)
    weeks = [
        _week(number, cpu_ms=2.0 * (1 + a_week * number) * draws.uniform(0.98, 1.02))
        for number in range(1, WEEKS)
    ]
    assert _growing(weeks) == {"operations.commit.cpu"}


def test_a_whole_number_may_be_one_more() -> None:
    """Three manifests and four are the same."""
    assert not judged("manifests", [3, 3, 3, 4]).grows
    assert judged("manifests", [3, 3, 5, 5]).grows
    assert judged("bytes", [3.5, 3.5, 4.5, 4.5]).grows


def test_few_weeks_tell_nothing() -> None:
    """A verdict over two weeks would be chance."""
    weeks = [_week(number, read_bytes=900 * 2**number) for number in range(1, 5)]
    assert list(verdicts(weeks)) == []


def test_what_grows_by_design_is_held_to_its_bound() -> None:
    """It is told with its bound, and is no verdict of the rule."""
    weeks = [_week(number, read_bytes=900 * number) for number in range(1, WEEKS)]
    series = "operations.commit.read_bytes"
    designs = [Design(series, "bytes", "a thousand a week", lambda week: 1_000 * week["week"])]
    assert not any(verdict.grows for verdict in verdicts(weeks, designs))
    (told,) = by_design(weeks, designs)
    assert (told["third"], told["last"], told["most"], told["within"]) == (2_700, 9_000, 10_000, True)
    tight = [Design(series, "bytes", "five hundred a week", lambda week: 500 * week["week"])]
    assert not by_design(weeks, tight)[0]["within"]


def test_what_is_remembered_is_a_weeks_median_and_grows_as_its_days_do() -> None:
    """One day's count says nothing; what is there on most days of each week does."""

    def week(number: int) -> dict[str, int]:
        return of_most_days([{"tables": 100 + 10 * number}] * 6 + [{"tables": 1_000}])

    assert week(0) == {"tables": 100}
    assert judged("kept.tables", [week(at)["tables"] for at in range(10)]).grows
