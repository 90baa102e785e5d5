"""What grows: a rule over the weekly figures of a simulation.

**The rule.** A series is judged from the third week on, when what most tenants keep has levelled off. It
grows if its last whole week is above

    third week x (1 + 10 % + noise)

and if that is no chance of one of these two weeks: one of two comparisons that a single week does not move is
above its limit as well, which is made in the same way.

- the ends of the line through all weeks (Theil and Sen's, whose slope is the median of the slopes between any
  two weeks): what grows steadily is found out by the sum of its steps, however small they are;
- the median of the last three weeks against that of the first three: what has grown in a step, not long ago.

`noise` is what the series itself does from week to week: the median of its relative steps, up or down. A
whole number may be one more. What is above in the last week alone is told too (`above_third_week`).

CPU times are judged by the line alone, twice: as they are, and divided by those of the same operation on a
fresh catalog at the end of the same week (`yardstick.py`). A machine that is busier than before shows in the
first alone, a moment's chance at the yardstick in the second; what grows shows in both, and only that counts.

**By design** some things grow, each with a bound that the figures are held to: beyond it they count as
growing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from tests.simulation.weekly import OPERATIONS

SHARE = 0.10
FROM_WEEK = 3
WINDOW = 3  # weeks
WEEKS_MIN = 5  # of fewer nothing is told
BY_FRESH = " by fresh"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a series has gone. `limit`: what the last week is held to; `by_chance`: other weeks do not say that
    it grows."""

    series: str
    first: float
    last: float
    limit: float
    noise: float
    by_chance: bool = False

    @property
    def is_above(self) -> bool:
        """Whether the last week is above the limit."""
        return self.last > self.limit

    @property
    def grows(self) -> bool:
        return self.is_above and not self.by_chance

    def to_json(self) -> dict[str, float | str]:
        names = ("first", "last", "limit", "noise")
        return {"series": self.series, **{name: round(getattr(self, name), 4) for name in names}}


def judged(series: str, values: Sequence[float]) -> Verdict:
    """The verdict over counts of weeks, of which the first is the one that the last is compared with."""
    noise, is_whole = noise_of(values), all(float(value).is_integer() for value in values)

    def limit(first: float) -> float:
        most = first * (1 + SHARE + noise)
        return max(most, first + 1) if is_whole else most

    line, window = levelled(values), max(1, min(WINDOW, len(values) // 2))
    ends = ((line[0], line[-1]), (median(values[:window]), median(values[-window:])))
    by_chance = not any(last > limit(first) for first, last in ends)
    return Verdict(series, values[0], values[-1], limit(values[0]), noise, by_chance)


def levelled(values: Sequence[float]) -> list[float]:
    """The values of the line through these."""
    pairs = [(one, other) for one in range(len(values)) for other in range(one)]
    slope = median((values[one] - values[other]) / (one - other) for one, other in pairs)
    begin = median(value - slope * at for at, value in enumerate(values))
    return [begin + slope * at for at in range(len(values))]


def judged_time(series: str, values: Sequence[float]) -> Verdict:
    """The verdict over times: the line's ends are compared, the noise is that of the weeks."""
    line = levelled(values)
    noise = noise_of(values)
    return Verdict(series, line[0], line[-1], line[0] * (1 + SHARE + noise), noise)


def noise_of(values: Sequence[float]) -> float:
    """The median of the relative steps from one week to the next."""
    steps = [
        abs(after - before) / max(abs(before), abs(after))
        for before, after in pairwise(values)
        if before or after
    ]
    return median(steps) if steps else 0.0


# ---- the series of a simulation

_COUNTS = ("statements", "reads", "read_bytes", "writes", "written_bytes")
# Which operation on a fresh catalog is like which.
_LIKE = {"plan_day": "plan", "plan_everything": "plan", "flush": "flush"}
# An erasure rewrites what the data make it rewrite.
_LEVEL_OPERATIONS = (*(each for each in OPERATIONS if each != "erasure"), "plan_day", "plan_everything")


def level_series(week: Json) -> dict[str, float]:
    """What must not grow, of one week."""
    found: dict[str, float] = {}
    for figure, spread in week["tables"].get("level", {}).items():
        found |= {f"tables.level.{figure}.{name}": value for name, value in spread.items()}
    for name in _LEVEL_OPERATIONS:
        figures = week["operations"].get(name)
        if figures is not None:
            found |= {f"operations.{name}.{each}": figures[each] for each in _COUNTS}
            found |= _time(f"operations.{name}.cpu", figures["cpu_ms"], week, name)
    found |= _time("maintenance.cpu", week["maintenance_cpu_s_per_hour"] * 1_000, week, "commit")
    found |= {f"database.{name}": value for name, value in week["database"].items() if name != "log_bytes"}
    found |= {f"memory.{name}": value for name, value in week["memory_mb"].items()}
    found |= {f"kept.{name}": value for name, value in week["kept"].items()}
    return found


def _is_time(series: str) -> bool:
    return series.removesuffix(BY_FRESH).endswith(".cpu")


def _time(series: str, took_ms: float, week: Json, name: str) -> dict[str, float]:
    """A time as it is, and beside it by that of the like operation on a fresh catalog."""
    return {series: took_ms, series + BY_FRESH: took_ms / week["fresh"][_LIKE.get(name, "commit")]["cpu_ms"]}


@dataclass(frozen=True, slots=True)
class Design:
    """What grows by design: series that begin so, why, and its bound, in words and for a week."""

    prefix: str
    why: str
    bound: str
    most: Callable[[Json], float]


def verdicts(weeks: Sequence[Json], designs: Sequence[Design] = ()) -> Iterator[Verdict]:
    """Of every series that must not grow, but for those that do by design. Nothing of a few weeks."""
    if len(weeks) < WEEKS_MIN:
        return
    compared = [level_series(week) for week in weeks[FROM_WEEK - 1 :]]
    found = {
        name: (judged_time if _is_time(name) else judged)(name, [week[name] for week in compared])
        for name in compared[0]
        if all(name in week for week in compared) and not any(name.startswith(d.prefix) for d in designs)
    }
    for name, verdict in found.items():
        if not name.endswith(BY_FRESH):
            # Of a time the one that has grown less.
            both = (verdict, found.get(name + BY_FRESH, verdict))
            yield replace(min(both, key=lambda each: each.last / (each.limit or 1)), series=name)


def by_design(weeks: Sequence[Json], designs: Sequence[Design]) -> list[dict[str, Any]]:
    """What grows by design, with its bound, and whether it has kept to that."""
    found = []
    for design in designs:
        third, last = (
            _value(week, design.prefix) for week in (weeks[min(FROM_WEEK, len(weeks)) - 1], weeks[-1])
        )
        most = design.most(weeks[-1])
        found.append(
            {
                "series": design.prefix,
                "why": design.why,
                "bound": design.bound,
                "third": third,
                "last": last,
                "most": round(most, 1),
                "within": last <= most,
            }
        )
    return found


def _value(week: Json, path: str) -> float:
    found: Any = week
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return float(found or 0)
