"""Maintenance in a process of its own says what it did, what it cost, and why it failed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake.errors import FatalError
from tests.simulation.moved_clock import MovedClock
from tests.simulation.processes import CatalogProcess
from tests.simulation.traffic import START
from tests.simulation.upkeep import Hour
from tests.simulation.upkeep_process import Place, UpkeepProcess

pytestmark = pytest.mark.stack


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogProcess]:
    """One with an empty lake."""
    clock = tmp_path / "clock"
    MovedClock(clock, START)
    with CatalogProcess(tmp_path / "lake", clock) as process:
        yield process


@pytest.fixture
def upkeep(catalog: CatalogProcess, tmp_path: Path) -> Iterator[UpkeepProcess]:
    """Maintenance beside it."""
    place = Place(catalog.uri, catalog.pid, catalog.counts, tmp_path / "clock", {}, spark=False)
    with UpkeepProcess(place) as process:
        yield process


@pytest.mark.prove
def test_costs_are_handed_over_once(upkeep: UpkeepProcess) -> None:
    """Of hours in which they are counted."""
    upkeep.begin(Hour(2, counts=True))
    did = upkeep.ended()
    assert did is not None
    assert did.counted["rounds"] == 1
    assert did.retained_at >= START
    assert upkeep.ended() is None
    costs = upkeep.take_costs()
    assert costs.keys() == {"snapshot_watch", "round", "daily_tasks", "weekly_tasks"}
    assert [count for count, _ in costs["round"]] == [2]
    for _ in range(3):
        upkeep.begin(Hour(2, counts=False))
    did = upkeep.ended()
    assert did is not None
    assert did.counted["rounds"] == 3
    assert upkeep.take_costs() == {}
    assert set(upkeep.kept().values()) == {0}


@pytest.mark.prove
def test_what_fails_there_fails_here(catalog: CatalogProcess, upkeep: UpkeepProcess) -> None:
    """A simulation does not go on without maintenance."""
    upkeep.begin(Hour(1, counts=True))
    upkeep.ended()
    catalog.process.kill()
    catalog.process.wait()
    upkeep.begin(Hour(1, counts=True))
    with pytest.raises(FatalError, match="did not answer"):
        upkeep.ended()
    os.kill(upkeep.pid, signal.SIGKILL)
    with pytest.raises(FatalError, match="has ended"):
        upkeep.kept()
