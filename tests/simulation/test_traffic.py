"""The simulation's traffic is like that of a lake, and the same every time."""

from collections import Counter

import numpy as np
import orjson

from lake.table_layout import US_PER_HOUR
from tests.simulation.traffic import (
    FOR_EVER,
    HOT,
    HOURS_OF_WEEK,
    SATURDAY_H,
    START,
    Keeping,
    Population,
    Tenant,
    Traffic,
    rhythm,
)

COUNT, SEED = 50, 7
FIRST_HOUR = int(START.timestamp()) // 3600


def _rows(traffic: Traffic, population: Population, hours: range) -> Counter[int]:
    """Records by slot."""
    rows = Counter[int]()
    for hour in hours:
        for each in traffic.arrivals(population.alive, hour):
            rows[each.tenant.slot] += len(each.times_us)
    return rows


def test_the_same_seed_sends_the_same() -> None:
    """Whoever finds something can have it again."""
    sent = [
        [
            each.bodies()
            for each in Traffic(COUNT, 100.0, SEED).arrivals(Population(COUNT, Keeping(), SEED).alive, 30)
        ]
        for _ in range(2)
    ]
    assert sent[0] == sent[1]
    assert sent[0] != [
        each.bodies()
        for each in Traffic(COUNT, 100.0, SEED + 1).arrivals(Population(COUNT, Keeping(), SEED).alive, 30)
    ]


def test_tenants_are_of_all_sizes_and_one_is_hot() -> None:
    """All together they send what is asked for in a working day; the hot one most of it, the last ones hardly
    anything."""
    population, rate = Population(COUNT, Keeping(), SEED), 400.0
    rows = _rows(Traffic(COUNT, rate, SEED), population, range(24))
    assert abs(rows.total() / (24 * rate) - 1) < 0.1
    assert rows[HOT] > 1.3 * rows[1] > rows[10] > rows[40] > 0


def test_nights_and_weekends_are_quiet() -> None:
    """The busiest hour of a working day has several times the records of the night, a Saturday fewer."""
    day = [rhythm(hour) for hour in range(24)]
    assert max(day) > 3 * min(day)
    assert np.isclose(np.mean(day), 1.0)
    assert rhythm(SATURDAY_H + 12) < 0.5 * rhythm(12)
    assert np.isclose(rhythm(HOURS_OF_WEEK + 5), rhythm(5))


def test_some_records_come_late() -> None:
    """Most are of their hour, some of hours before, a few of weeks before; none of the future."""
    population, hour = Population(COUNT, Keeping(), SEED), 20
    times = [
        FIRST_HOUR + hour - time_us // US_PER_HOUR
        for each in Traffic(COUNT, 40_000.0, SEED).arrivals(population.alive, hour)
        for time_us in each.times_us
    ]
    late = np.array(times)
    assert late.min() == 0
    assert 0.01 < (late > 0).mean() < 0.04
    assert (late > 14 * 24).any()


def test_a_drifting_tenant_brings_a_field_a_week() -> None:
    """Others have the same fields for ever."""
    population, traffic = Population(COUNT, Keeping(), SEED), Traffic(COUNT, 4_000.0, SEED)

    def fields(drifts: bool, week: int) -> set[str]:
        found = set[str]()
        for each in traffic.arrivals(population.alive, week * HOURS_OF_WEEK + 10):
            if each.tenant.drifts == drifts:
                found |= {name for body in each.bodies() for name in orjson.loads(body)}
        return found

    assert fields(drifts=False, week=0) == fields(drifts=False, week=9)
    assert "field_9" in fields(drifts=True, week=9) - fields(drifts=True, week=8)


def test_tenants_come_and_go_and_two_stay() -> None:
    """Each has a name of its own, so no table comes back under a name that was dropped."""
    population = Population(COUNT, Keeping(), SEED, come_and_go=0.05)
    names = {tenant.table for tenant in population.alive}
    changed = 0
    for day in range(1, 91):
        for gone, come in population.change_hands(day):
            assert gone.slot == come.slot
            assert come.table not in names
            names.add(come.table)
            changed += 1
    assert 100 < changed < 350
    assert len(population.alive) == COUNT
    assert population.alive[HOT] == Tenant(HOT, 0, Keeping().middle_h)
    assert population.alive[FOR_EVER] == Tenant(FOR_EVER, 0, None)


def test_all_tenants_but_one_keep_less_than_a_fortnight() -> None:
    """So that their tables are as large in the third week as ever after."""
    kept = Counter(Keeping().hours(slot) for slot in range(1_000))
    assert kept.pop(None) == 1
    assert kept == {5 * 24: 499, 10 * 24: 400, 11 * 24: 100}
