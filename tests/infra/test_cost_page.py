"""docs/cost.md and the coefficients are what their commands make from the kept results."""

import pytest

from infra.cost.coefficients import FILE
from tests.benchmarks.cost_coefficients import coefficients, nonnegative_fit, text_of
from tests.benchmarks.cost_page import PAGE, page


def test_the_coefficients_are_those_of_the_kept_results() -> None:
    """`python -m tests.benchmarks.cost_coefficients` would write what is there."""
    assert FILE.read_text() == text_of(list(coefficients()))


@pytest.mark.long
def test_the_page_is_what_its_command_writes() -> None:
    """`python -m tests.benchmarks.cost_page` would write what is there."""
    assert PAGE.read_text() == page()


def test_what_would_be_worth_less_than_nothing_is_worth_nothing() -> None:
    """A fit finds what made the sums, and gives no cause a negative share."""
    rows = [(1, 0, 2), (0, 1, 1), (3, 1, 0), (2, 2, 2)]
    exact = [sum(x * y for x, y in zip(row, (2.0, 0.5, 1.0), strict=True)) for row in rows]
    assert nonnegative_fit(rows, exact) == pytest.approx([2.0, 0.5, 1.0])
    worthless = [sum(x * y for x, y in zip(row, (2.0, -0.1, 1.0), strict=True)) for row in rows]
    found = nonnegative_fit(rows, worthless)
    assert found[1] == 0
    assert min(found) == 0
