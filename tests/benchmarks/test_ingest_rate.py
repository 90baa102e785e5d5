"""Records a second, of what was seen of nodes at work."""

import pytest

from tests.benchmarks.ingest import _rate


def test_it_is_of_the_time_before_most_are_written() -> None:
    """What a node does that has nothing to read any more, and the last flush, are left out."""
    looks = [(10.0, 100), (11.0, 200), (12.0, 300), (13.0, 380), (20.0, 400)]
    assert _rate(looks, 340) == 100


@pytest.mark.parametrize("looks", [[], [(1.0, 5)], [(1.0, 50), (2.0, 60)]])
def test_there_is_none_of_fewer_than_two_looks(looks: list[tuple[float, int]]) -> None:
    assert _rate(looks, 40) == 0
