"""The simulation in small: some tenants, "weeks" of six hours, everything that happens in months; and the
long proof."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.simulation.months import lived, result_of
from tests.simulation.traffic import Keeping
from tests.simulation.weekly import figures_of_week
from tests.simulation.world import Plan, World

pytestmark = pytest.mark.stack
WEEK_H, WEEKS = 6, 5
WHAT_IS_DONE = ("flushes", "merges", "deleted", "searches", "tenants_gone")
HOUR_S = 3_600.0
# As much shorter as the weeks.
SETTINGS = {
    "merge__closed_after_s": 60.0,
    "merge__late_cooldown_s": HOUR_S,
    "cold__after_s": 6 * HOUR_S,
    "cold__span_share_max": 1.0,
    "cold__interval_s": HOUR_S,
    "retention__interval_s": 6 * HOUR_S,
    "retention__reader_grace_s": HOUR_S,
    "retention__purge_after_s": HOUR_S,
}


def test_a_small_simulation_does_everything_and_loses_no_row(tmp_path: Path) -> None:
    """Rows are flushed, merged, expired, erased and searched for, tenants come and go, half of the time with
    maintenance beside it; at the end of each week every table has the rows that it should, and every figure
    is there."""
    keeping = Keeping(12, 24, 36)
    plan = Plan(
        10,
        1.0,
        seed=3,
        round_hours=2,
        week_h=WEEK_H,
        keeping=keeping,
        settings=SETTINGS,
        come_and_go=0.2,
        erase_every_h=12,
        counted=(range(3),),
    )
    weeks = list[dict[str, Any]]()
    with World(tmp_path, plan) as world:
        for _ in range(WEEK_H * WEEKS):
            world.live()
            if world.hour % WEEK_H == 0:
                fresh = weeks[0]["fresh"] if weeks else None  # one is dear
                weeks.append(figures_of_week(world, world.hour // WEEK_H, fresh))
        result = result_of(world, weeks, 1.0, 0.0)
        kinds = set(world.node.letters.reasons)
    assert result["wrong_rows"] == []
    assert result["series_judged"] > 50
    done = result["done"]
    assert min(done[name] for name in WHAT_IS_DONE) > 0
    assert weeks[-1]["operations"].keys() >= {"commit", "round", "daily_tasks", "plan_day", "plan_everything"}
    assert weeks[-1]["fresh"].keys() == {"flush", "commit", "plan"}
    assert weeks[-1]["system_table"]["files"] > 0
    assert kinds <= {"past_retention", "too_late"}
    orjson.dumps(result)


@pytest.mark.prove
@pytest.mark.timeout(7_200)
def test_nothing_grows_in_months(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """But what does by design, and that keeps to its bound."""
    plan = Plan(int(os.environ.get("FIRN_MONTHS_TENANTS", "200")), round_hours=6)
    result = lived(plan, int(os.environ.get("FIRN_MONTHS_DAYS", "42")), tmp_path, print)
    record_property("wall_s", result["wall_s"])
    record_property("series_judged", result["series_judged"])
    assert result["wrong_rows"] == []
    assert result["grows"] == []
