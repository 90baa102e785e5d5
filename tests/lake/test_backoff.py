"""Delays between tries."""

import pytest

from lake.backoff import Backoff


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(0.2, 5.0), [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (Backoff(1.0, 2.0, factor=1.5), [1.0, 1.5, 2.0, 2.0]),
        (Backoff(2.0, 1.0), [1.0, 1.0]),
    ],
)
def test_delays_grow_up_to_the_longest(backoff: Backoff, delays: list[float]) -> None:
    assert [backoff.delay_s(failures) for failures in range(1, len(delays) + 1)] == pytest.approx(delays)


def test_a_failure_that_lasts_for_years_is_no_overflow() -> None:
    assert Backoff(0.2, 5.0).delay_s(10**9) == 5.0
