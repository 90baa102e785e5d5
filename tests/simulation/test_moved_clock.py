"""The simulation's clock is one for whoever has its file, and tells when a file was written."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.simulation.moved_clock import MovedClock, SharedClock
from tests.simulation.traffic import START

MOMENT = timedelta(minutes=1)


def test_who_shares_the_file_has_the_same_time(tmp_path: Path) -> None:
    """It jumps for both, and goes on by itself."""
    clock = MovedClock(tmp_path / "clock", START)
    other = SharedClock(tmp_path / "clock")
    assert START <= clock.now() < START + MOMENT
    clock.move_to(START + timedelta(days=9))
    first, second, third = clock.now(), other.now(), clock.now()
    assert START + timedelta(days=9) <= first <= second <= third < START + timedelta(days=9) + MOMENT
    assert other.monotonic_s() > START.timestamp()


def test_it_never_goes_back(tmp_path: Path) -> None:
    """Leases, and what is due, depend on that."""
    clock = MovedClock(tmp_path / "clock", START)
    clock.move_to(START + timedelta(hours=2))
    clock.move_to(START + timedelta(hours=1))
    assert clock.now() >= START + timedelta(hours=2)


def test_a_moment_of_the_machine_is_one_of_the_simulation(tmp_path: Path) -> None:
    """What was written between two jumps was written after the first."""
    clock = MovedClock(tmp_path / "clock", START)
    clock.move_to(START + timedelta(days=1))
    between = datetime.now(UTC)
    clock.move_to(START + timedelta(days=8))
    after = datetime.now(UTC)
    assert START + timedelta(days=1) <= clock.simulated(between) < START + timedelta(days=1) + MOMENT
    assert START + timedelta(days=8) <= clock.simulated(after) < START + timedelta(days=8) + MOMENT
    other = SharedClock(tmp_path / "clock")
    assert [other.simulated(each) for each in (between, after)] == [
        clock.simulated(each) for each in (between, after)
    ]
    clock.move_to(START + timedelta(days=9))
    assert other.simulated(datetime.now(UTC)) >= START + timedelta(days=9)
