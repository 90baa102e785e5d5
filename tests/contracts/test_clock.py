"""The contract of clocks for the machine's and for the one that tests move."""

import threading
from collections.abc import Callable
from datetime import UTC

import pytest

from lake.clock import Clock, SystemClock, epoch_ms
from tests.ingest.support.fake_clock import FakeClock

Wait = Callable[[float], object]


class ClockContract:
    """The suite. A subclass gives the fixtures `clock` and `wait` (seconds pass)."""

    def test_the_time_of_day_is_in_utc(self, clock: Clock) -> None:
        assert clock.now().tzinfo is UTC

    def test_both_go_on_as_seconds_pass(self, clock: Clock, wait: Wait) -> None:
        """By at least as many, and never back."""
        moment, count_s = clock.now(), clock.monotonic_s()
        assert clock.monotonic_s() >= count_s
        wait(0.05)
        assert clock.monotonic_s() - count_s >= 0.05 - 1e-9
        assert epoch_ms(clock.now()) - epoch_ms(moment) >= 49


class TestSystemClock(ClockContract):
    """The machine's."""

    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()

    @pytest.fixture
    def wait(self) -> Wait:
        return threading.Event().wait


class TestFakeClock(ClockContract):
    """The one that stands still until a test moves it."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def wait(self, clock: FakeClock) -> Wait:
        def wait(seconds: float) -> None:
            clock.s += seconds

        return wait

    def test_it_stands_still(self, clock: FakeClock) -> None:
        assert (clock.now(), clock.monotonic_s()) == (clock.now(), clock.monotonic_s())
