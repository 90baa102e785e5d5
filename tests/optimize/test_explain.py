"""`explain` gives the reason that matters most."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lake.catalog_client import TableName
from lake.settings import OptimizeSettings
from optimize.explain import verdict
from optimize.ingestion_lag import Lag, Share, lag_of, share_of
from optimize.planner import Engine, Merge, PartitionPlan, Standing, TablePlan
from optimize.table_states import Memory, State

NOW_MS = 1_800_000_000_000
ALL = Share(1.0)
MERGE = Merge(1, Engine.ARROW, ((),))


def plan(*standings: Standing, never: bool = False) -> TablePlan:
    partitions = tuple(
        PartitionPlan(at, s, 2, 10, MERGE if s is Standing.DUE else None, NOW_MS + 60_000)
        for at, s in enumerate(standings)
    )
    return TablePlan(TableName("acme", "logs"), "acme", partitions, never_optimized=never)


@pytest.mark.parametrize(
    ("known", "memory", "share", "words"),
    [
        (plan(Standing.DUE, never=True), None, ALL, "never optimized"),
        (plan(Standing.UP_TO_DATE), None, ALL, "up to date"),
        (plan(), None, ALL, "up to date"),
        (plan(Standing.OPEN_HOUR), None, ALL, "open hour"),
        (
            plan(Standing.DUE),
            None,
            Share(0.1, "ingestion lags by 5 records"),
            "lag: ingestion lags by 5 records",
        ),
        (
            plan(Standing.DUE),
            Memory(State.PAUSED, 3, "the file is damaged", NOW_MS + 1),
            ALL,
            "paused after 3 failures",
        ),
        (
            plan(Standing.DUE),
            Memory(State.PAUSED, 3, "the file is damaged", NOW_MS - 1),
            ALL,
            "due at the next round",
        ),
        (
            plan(Standing.DUE),
            Memory(State.FAILING, 1, "storage"),
            ALL,
            "failing: 1 failure in a row (storage)",
        ),
        (plan(Standing.DUE), Memory(State.WAITING), ALL, "waiting its turn: other tables"),
        (plan(Standing.DUE), Memory(State.LAG), ALL, "waiting its turn: the last round did only a part"),
        (plan(Standing.DUE), Memory(State.RUNNING), ALL, "in work"),
        (plan(Standing.DUE, Standing.EQUALITY_DELETES), None, ALL, "foreign writer with equality deletes"),
        (replace(plan(Standing.DUE), equality_deletes=2), None, ALL, "2 equality deletes of another engine"),
        (plan(Standing.DUE, Standing.TOO_LARGE), None, ALL, "has files too large"),
        (plan(Standing.UP_TO_DATE, Standing.GATHERING), None, ALL, "gathering: few small files"),
        (plan(Standing.COOLING_DOWN, Standing.UP_TO_DATE), None, ALL, "cooling down"),
    ],
)
def test_verdict_names_the_reason(known: TablePlan, memory: Memory | None, share: Share, words: str) -> None:
    """Never optimized, up to date, open hour, lag, paused, failing, waiting its turn, equality deletes,
    cooling down: each in its words."""
    assert words in verdict(known, memory, share, NOW_MS)


def test_maintenance_stands_back_while_ingestion_lags_but_never_below_its_floor() -> None:
    """The more ingestion lags, or the longer a record waits, the less is done, at least the floor; without
    lag, or with nobody to ask, all of it."""
    settings = OptimizeSettings.load(lag__records_max=1_000, lag__age_max_s=600, lag__share_floor=0.1)
    assert [share_of(lag, settings).share for lag in (None, Lag(0), Lag(1_000), Lag(2_000), Lag(10**9))] == [
        1.0,
        1.0,
        1.0,
        0.5,
        0.1,
    ]
    assert [share_of(Lag(0, age_s), settings).share for age_s in (None, 600.0, 1_200.0, 1e9)] == [
        1.0,
        1.0,
        0.5,
        0.1,
    ]
    assert "2,000 records" in share_of(Lag(2_000, 700.0), settings).reason
    assert "waits for 1,200 s" in share_of(Lag(1_001, 1_200.0), settings).reason


def test_buffered_records_are_no_lag() -> None:
    """Where the partitions tell how far reading is, that counts; otherwise `lag_records`; the age is that of
    the oldest record in no table."""
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    partitions = [
        {"end": 100, "routed": 90, "stored": 0},
        {"end": 50, "routed": None},
        {"end": 10, "routed": 12},
    ]
    assert lag_of({"lag_records": 95, "partitions": partitions}, now) == Lag(10)
    assert lag_of(
        {"lag_records": 95, "partitions": [], "complete_until": "2026-11-21T11:59:00.000Z"}, now
    ) == Lag(95, 60.0)
    assert lag_of({}, now) == Lag(0)
