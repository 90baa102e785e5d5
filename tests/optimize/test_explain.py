"""`explain` gives the reason that matters most."""

import pytest

from lake.catalog_client import TableName
from lake.settings import OptimizeSettings
from optimize.explain import verdict
from optimize.ingestion_lag import Share, share_of
from optimize.planner import Engine, Merge, PartitionPlan, Standing, TablePlan
from optimize.table_states import Memory, State

NOW_MS = 1_800_000_000_000
ALL = Share(1.0)
MERGE = Merge(1, Engine.ARROW, ((),))


def plan(*standings: Standing, never: bool = False) -> TablePlan:
    partitions = tuple(PartitionPlan(at, s, 2, 10, MERGE if s is Standing.DUE else None, NOW_MS + 60_000) for at, s in enumerate(standings))
    return TablePlan(TableName("acme", "logs"), "acme", partitions, never_optimized=never)


@pytest.mark.parametrize(
    ("known", "memory", "share", "words"),
    [
        (plan(Standing.DUE, never=True), None, ALL, "never optimized"),
        (plan(Standing.UP_TO_DATE), None, ALL, "up to date"),
        (plan(), None, ALL, "up to date"),
        (plan(Standing.OPEN_HOUR), None, ALL, "open hour"),
        (plan(Standing.DUE), None, Share(0.1, "ingestion lags by 5 records"), "lag: ingestion lags by 5 records"),
        (plan(Standing.DUE), Memory(State.PAUSED, 3, "the file is damaged", NOW_MS + 1), ALL, "paused after 3 failures"),
        (plan(Standing.DUE), Memory(State.PAUSED, 3, "the file is damaged", NOW_MS - 1), ALL, "due at the next round"),
        (plan(Standing.DUE), Memory(State.FAILING, 1, "storage"), ALL, "failed 1 times in a row (storage)"),
        (plan(Standing.DUE), Memory(State.WAITING), ALL, "waiting its turn"),
        (plan(Standing.DUE, Standing.EQUALITY_DELETES), None, ALL, "foreign writer with equality deletes"),
        (plan(Standing.COOLING_DOWN, Standing.UP_TO_DATE), None, ALL, "cooling down"),
    ],
)
def test_verdict_names_the_reason(known: TablePlan, memory: Memory | None, share: Share, words: str) -> None:
    """Never optimized, up to date, open hour, lag, paused, failing, waiting its turn, equality deletes, cooling down: each in its words."""
    assert words in verdict(known, memory, share, NOW_MS)


def test_maintenance_stands_back_while_ingestion_lags_but_never_below_its_floor() -> None:
    """The more ingestion lags the less is done, at least the floor; without lag, or with nobody to ask, all of it."""
    settings = OptimizeSettings(lag_records_max=1_000, lag_share_floor=0.1)
    assert [share_of(lag, settings).share for lag in (None, 0, 1_000, 2_000, 10**9)] == [1.0, 1.0, 1.0, 0.5, 0.1]
    assert "2,000 records" in share_of(2_000, settings).reason
